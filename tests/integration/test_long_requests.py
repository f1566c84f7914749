"""Requests and answers that list very much hold nobody up: no step of the loop is longer than 20 ms."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient

from tidelog.testing.broker_process import STRICT_LOOP, BrokerProcess
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import encode
from tidelog.wire.headers import RequestHeader, sized_request_header
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.schema import Payload

MANY = 50_000
TOPIC, BROKER = 2, 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = {
        **STRICT_LOOP,
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    with BrokerProcess(tmp_path_factory.mktemp("long") / "data", options=options) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    before = len(broker.broken_rule)
    with RawClient(broker.host, broker.port) as connected:
        yield connected
    assert broker.broken_rule[before:] == []


def names(count: int) -> list[str]:
    return [f"a-topic-with-a-name-{number}" for number in range(count)]


def offsets(topics: int, partitions: int) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    return ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=name, partitions=wanted) for name in names(topics)]
    )


def test_offsets_of_a_hundred_thousand_partitions(client: RawClient) -> None:
    answer = client.request(ApiKey.LIST_OFFSETS, 7, offsets(1000, 100))
    assert isinstance(answer, ListOffsetsResponse)
    assert [len(topic.partitions) for topic in answer.topics] == [100] * 1000


def test_offsets_of_one_topic_with_very_many_partitions(client: RawClient) -> None:
    answer = client.request(ApiKey.LIST_OFFSETS, 7, offsets(1, MANY))
    assert isinstance(answer, ListOffsetsResponse)
    assert len(answer.topics[0].partitions) == MANY


def test_metadata_of_many_topics(client: RawClient) -> None:
    topics = [MetadataRequestTopic(name=name) for name in names(MANY)]
    answer = client.request(ApiKey.METADATA, 12, MetadataRequest(topics=topics))
    assert isinstance(answer, MetadataResponse)
    assert [topic.name for topic in answer.topics] == names(MANY)


def test_configs_of_many_topics(client: RawClient) -> None:
    created = client.request(
        ApiKey.CREATE_TOPICS,
        7,
        CreateTopicsRequest(
            topics=[CreatableTopic(name="one", num_partitions=1, replication_factor=1)], timeout_ms=30_000
        ),
    )
    assert isinstance(created, CreateTopicsResponse)
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name="one")] * 2000
    answer = client.request(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources))
    assert isinstance(answer, DescribeConfigsResponse)
    assert len(answer.results) == 2000
    assert all(len(result.configs) > 20 for result in answer.results)


@pytest.fixture
def large_group(client: RawClient) -> str:
    """A group with one member that has much to say."""
    wait_for_coordinator(client)
    protocol = JoinGroupRequestProtocol(name="mine", metadata=b"x" * 900_000)
    joined = client.request(
        ApiKey.JOIN_GROUP,
        3,
        JoinGroupRequest(
            group_id="large",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="mine",
            protocols=[protocol],
        ),
    )
    assert isinstance(joined, JoinGroupResponse)
    assert joined.error_code == 0
    request = SyncGroupRequest(
        group_id="large", generation_id=joined.generation_id, member_id=joined.member_id
    )
    synced = client.request(ApiKey.SYNC_GROUP, 2, request)
    assert isinstance(synced, SyncGroupResponse)
    assert synced.error_code == 0
    return "large"


def wait_for_coordinator(client: RawClient) -> None:
    deadline = time.monotonic() + 30
    client.request(ApiKey.FIND_COORDINATOR, 0, FindCoordinatorRequest(key="large"))
    while True:
        answer = client.request(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["large"]))
        assert isinstance(answer, DescribeGroupsResponse)
        if not answer.groups[0].error_code:
            return
        assert time.monotonic() < deadline


def test_a_large_group_that_is_named_very_often_is_told_of_within_bounds(
    client: RawClient, broker: BrokerProcess, large_group: str
) -> None:
    answer = client.request(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[large_group] * 50))
    assert isinstance(answer, DescribeGroupsResponse)
    assert [len(group.members[0].member_metadata) for group in answer.groups] == [900_000] * 50
    before = broker.peak_rss_bytes
    client.send_request(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[large_group] * 8000))
    assert client.is_closed()
    assert broker.peak_rss_bytes < before + 400_000_000
    assert "the answer to its DescribeGroups (client raw) would be longer than" in broker.log


def test_deletion_of_many_topics_that_are_not_there(client: RawClient) -> None:
    topics = [DeleteTopicState(name=name) for name in names(MANY)]
    answer = client.request(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=topics, timeout_ms=30_000))
    assert isinstance(answer, DeleteTopicsResponse)
    assert len(answer.responses) == MANY


def test_many_topics_come_and_go(client: RawClient) -> None:
    topics = [CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in names(60)]
    created = client.request(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    assert isinstance(created, CreateTopicsResponse)
    assert [topic.error_code for topic in created.topics] == [0] * 60
    described = client.request(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    assert isinstance(described, MetadataResponse)
    assert sum(len(topic.partitions) for topic in described.topics) >= 180
    deleted = client.request(
        ApiKey.DELETE_TOPICS,
        6,
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names(60)], timeout_ms=30_000),
    )
    assert isinstance(deleted, DeleteTopicsResponse)
    assert [topic.error_code for topic in deleted.responses] == [0] * 60


@pytest.mark.parametrize("elements", [10_000_000, 1_000_000])
def test_more_than_anybody_needs_is_refused_before_it_takes_memory(
    client: RawClient, broker: BrokerProcess, elements: int
) -> None:
    """Names of no letters take one byte each on the wire, and sixty in memory."""
    request: Payload = DeleteTopicsRequest(topic_names=[], timeout_ms=1000)
    body = encode(request, 5)
    assert body[0] == 1
    count = elements + 1
    varint = b""
    while count > 127:
        varint += bytes([count & 127 | 128])
        count >>= 7
    body = varint + bytes([count]) + b"\x01" * elements + body[1:]
    head = sized_request_header(RequestHeader(ApiKey.DELETE_TOPICS, 5, 1, "peer"), len(body))
    before = broker.peak_rss_bytes
    client.send(bytes(head) + body)
    assert client.is_closed()
    assert broker.peak_rss_bytes < before + 4 * elements + 20_000_000
    assert "lists more things than this broker takes in one" in broker.log


def test_a_frame_that_is_large_and_not_whole_is_put_together_and_answered(client: RawClient) -> None:
    topics = [MetadataRequestTopic(name="x" * 200) for _ in range(2000)]
    body = encode(MetadataRequest(topics=topics), 12)
    frame = bytes(sized_request_header(RequestHeader(ApiKey.METADATA, 12, 9, "peer"), len(body))) + body
    for start in range(0, len(frame), 50_000):
        client.send(frame[start : start + 50_000])
    assert struct.unpack(">i", client.receive()[:4]) == (9,)


def test_as_many_requests_as_queued_max_requests_are_worked_on_at_once(tmp_path: Path) -> None:
    """Two long requests take turns with one slot, as one after the other; both are answered."""
    with (
        BrokerProcess(tmp_path / "data", options={"queued.max.requests": "1", **STRICT_LOOP}) as broker,
        RawClient(broker.host, broker.port) as first,
        RawClient(broker.host, broker.port) as second,
    ):
        frame = offsets(100, 100)
        answers: list[int] = []
        for client in (first, second):
            body = encode(frame, 7)
            header = RequestHeader(ApiKey.LIST_OFFSETS, 7, len(answers), "peer")
            client.send(bytes(sized_request_header(header, len(body))) + body)
        for client in (first, second):
            answers.append(len(client.receive()))
        assert answers[0] == answers[1] > 100_000
        assert broker.broken_rule == []


def test_nobody_waits_for_what_is_worked_out_for_a_client_that_is_gone(tmp_path: Path) -> None:
    """A hundred thousand times all options of a broker would keep the only slot for a minute."""
    many = [DescribeConfigsResource(resource_type=BROKER, resource_name="1")] * 100_000
    with BrokerProcess(tmp_path / "data", options={"queued.max.requests": "1", **STRICT_LOOP}) as broker:
        with RawClient(broker.host, broker.port) as gone:
            gone.send_request(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=many))
        with RawClient(broker.host, broker.port) as client:
            answer = client.request(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=many[:1000]))
        assert isinstance(answer, DescribeConfigsResponse)
        assert len(answer.results) == 1000
        assert broker.broken_rule == []
