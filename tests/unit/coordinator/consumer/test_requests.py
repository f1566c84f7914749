"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on the wire, against a running broker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient

from tidelog.broker.access.authorized_operations import GROUP_OPERATIONS
from tidelog.errors import ErrorCode
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

OPTIONS = {"offsets.topic.num.partitions": "3"}
_group_numbers = itertools.count()


def prepare(client: RawClient) -> None:
    """A topic, and the coordinator's own."""
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    client.ask(7, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse)
    found = client.ask(4, FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    assert found.coordinators[0].error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    with (
        BrokerThread(Path(tmp_path_factory.mktemp("data")), options=OPTIONS) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        prepare(client)
        yield client


@pytest.fixture
def group_id() -> str:
    return f"group-{next(_group_numbers)}"


def joining(group_id: str, member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        rebalance_timeout_ms=5000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def beat(
    client: RawClient, request: ConsumerGroupHeartbeatRequest, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    return client.ask(version, request, ConsumerGroupHeartbeatResponse)


def describe(client: RawClient, *group_ids: str, **changes: bool) -> list[DescribedGroup]:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), **changes)
    return client.ask(1, request, ConsumerGroupDescribeResponse).groups


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_beats_and_leaves(client: RawClient, group_id: str, version: int) -> None:
    joined = beat(client, joining(group_id, "m"), version)
    assert joined.error_code == ErrorCode.NONE
    assert joined.assignment is not None
    assert joined.assignment.topic_partitions[0].partitions == [0, 1]
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id="m", member_epoch=joined.member_epoch
    )
    assert beat(client, request, version).error_code == ErrorCode.NONE
    request.member_epoch = -1
    left = beat(client, request, version)
    assert (left.error_code, left.member_id, left.member_epoch) == (ErrorCode.NONE, "m", -1)


def test_refusals_have_a_code_and_a_message(client: RawClient, group_id: str) -> None:
    nameless = beat(client, joining(group_id, ""))
    assert (nameless.error_code, nameless.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "MemberId can't be empty.",
    )
    stranger = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id="m", member_epoch=4)
    assert beat(client, stranger).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    picky = joining(group_id, "m")
    picky.server_assignor = "mine"
    assert beat(client, picky).error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    regex = joining(group_id, "m")
    regex.subscribed_topic_regex = "("
    assert beat(client, regex).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_groups_are_described_one_by_one(client: RawClient, group_id: str) -> None:
    beat(client, joining(group_id, "m"))
    known, unknown, nameless = describe(client, group_id, "nobody", "")
    assert (known.error_code, known.group_state, len(known.members)) == (ErrorCode.NONE, "Stable", 1)
    assert known.authorized_operations == -(1 << 31)
    assert (unknown.group_id, unknown.error_code) == ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


def test_the_operations_that_are_allowed_are_told_on_request(client: RawClient, group_id: str) -> None:
    beat(client, joining(group_id, "m"))
    (known,) = describe(client, group_id, include_authorized_operations=True)
    assert known.authorized_operations == GROUP_OPERATIONS


def test_where_the_protocol_is_not_served_nothing_is(tmp_path: Path) -> None:
    options = {**OPTIONS, "group.coordinator.rebalance.protocols": "classic"}
    with BrokerThread(tmp_path, options=options) as broker, RawClient(broker.host, broker.port) as client:
        prepare(client)
        assert beat(client, joining("g", "m")).error_code == ErrorCode.UNSUPPORTED_VERSION
        (group,) = describe(client, "g")
        assert (group.group_id, group.error_code) == ("g", ErrorCode.UNSUPPORTED_VERSION)


def test_a_group_survives_a_restart_of_its_broker(tmp_path: Path) -> None:
    with BrokerThread(tmp_path, options=OPTIONS) as broker, RawClient(broker.host, broker.port) as client:
        prepare(client)
        epoch = beat(client, joining("g", "m")).member_epoch
    with BrokerThread(tmp_path, options=OPTIONS) as broker, RawClient(broker.host, broker.port) as client:
        prepare(client)
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
        answers = (beat(client, request) for _ in range(10_000))
        answer = next(each for each in answers if each.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)
        (group,) = describe(client, "g")
        assert group.members[0].assignment.topic_partitions[0].partitions == [0, 1]
