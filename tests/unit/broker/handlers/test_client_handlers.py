"""The handlers that clients need besides produce and fetch, on the wire and in all their versions."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch

from tidelog.broker import handlers
from tidelog.broker.served import SERVED, SERVED_IN_CLUSTERS
from tidelog.errors import ErrorCode
from tidelog.ids import ZERO_UUID, Uuid, random_uuid
from tidelog.records.record import Record, encode_batch
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def every_version(key: ApiKey) -> range:
    return range(API_TABLE[key].min_version, API_TABLE[key].max_version + 1)


# -- the table of handlers ----------------------------------------------------------------------------


def test_the_dispatch_table_and_the_handler_modules_are_the_same() -> None:
    modules = {module.name for module in pkgutil.iter_modules(handlers.__path__)}
    assert modules == {key.name.lower() for key in (*SERVED, *SERVED_IN_CLUSTERS)}


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_a_handler_serves_the_versions_that_can_be_read(key: ApiKey) -> None:
    module = importlib.import_module(f"tidelog.broker.handlers.{key.name.lower()}")
    assert module.API is key
    assert (API_TABLE[key].min_version, API_TABLE[key].max_version) == module.VERSIONS


# -- ApiVersions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", every_version(ApiKey.API_VERSIONS))
def test_api_versions_tells_what_is_served(client: RawClient, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0-x")
    response = client.ask(version, request, ApiVersionsResponse)
    assert response.error_code == 0
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}  # once somebody has subscribed
    assert ranges.keys() == {int(key) for key in SERVED if key not in telemetry}
    assert ranges[ApiKey.PRODUCE] == (0, 13)
    assert ranges[ApiKey.FETCH] == (4, 18)
    assert ranges[ApiKey.INIT_PRODUCER_ID] == (0, 5)


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_tells_the_features_of_the_cluster(client: RawClient, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    response = client.ask(version, request, ApiVersionsResponse)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    # Java clients before version 4 cannot read a lowest level of 0 (KAFKA-17492).
    assert supported == ({"group.version": (0, 1), "transaction.version": (0, 2)} if version == 4 else {})
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    assert finalized == {"group.version": 1, "transaction.version": 2}
    assert response.finalized_features_epoch >= 0


def test_api_versions_of_the_future_is_answered_in_version_0(client: RawClient) -> None:
    client.send_frame(b"\0\x12\0\x63\0\0\0\x07\0\x01x\0" + b"whatever comes here")
    frame = client.receive()
    response, end = decode(ApiVersionsResponse, 0, frame, 4)
    assert (int.from_bytes(frame[:4], "big"), end) == (7, len(frame))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a", "1."), ("a b", "1")])
def test_client_software_must_have_a_proper_name(client: RawClient, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert client.ask(3, request, ApiVersionsResponse).error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(2, request, ApiVersionsResponse).error_code == 0


# -- Metadata -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", every_version(ApiKey.METADATA))
def test_metadata_describes_brokers_and_topics(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic], version: int
) -> None:
    topic = new_topic(partitions=2)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])
    response = client.ask(version, request, MetadataResponse)
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (1, broker.host, broker.port)
    ]
    (found,) = response.topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, topic.name, 2)
    assert found.topic_id == (topic.id if version >= 10 else ZERO_UUID)
    assert [(each.leader_id, each.replica_nodes, each.isr_nodes) for each in found.partitions] == [
        (1, [1], [1])
    ] * 2
    if version >= 2:
        assert response.cluster_id
    if version >= 1:
        assert response.controller_id == 1


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (13, None)])
def test_metadata_of_all_topics(
    client: RawClient,
    new_topic: Callable[..., RawTopic],
    version: int,
    topics: list[MetadataRequestTopic] | None,
) -> None:
    names = {new_topic().name, new_topic().name}
    response = client.ask(version, MetadataRequest(topics=topics), MetadataResponse)
    assert names <= {topic.name for topic in response.topics}


def test_metadata_of_no_topics(client: RawClient, new_topic: Callable[..., RawTopic]) -> None:
    new_topic()
    assert client.ask(12, MetadataRequest(topics=[]), MetadataResponse).topics == []


def test_metadata_by_topic_id(client: RawClient, new_topic: Callable[..., RawTopic]) -> None:
    topic, unknown = new_topic(), random_uuid()
    wanted = [MetadataRequestTopic(topic_id=each, name=None) for each in (topic.id, unknown)]
    found, missing = client.ask(12, MetadataRequest(topics=wanted), MetadataResponse).topics
    assert (found.error_code, found.name) == (0, topic.name)
    assert (missing.error_code, missing.name, missing.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)


@pytest.mark.parametrize(
    "wanted", [MetadataRequestTopic(name=None), MetadataRequestTopic(name="a", topic_id=Uuid(b"x" * 16))]
)
def test_metadata_by_topic_id_needs_version_12(client: RawClient, wanted: MetadataRequestTopic) -> None:
    response = client.ask(11, MetadataRequest(topics=[wanted]), MetadataResponse)
    assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_unknown_topics_are_created_if_client_and_broker_allow_it(client: RawClient) -> None:
    def ask(name: str, allow: bool, version: int = 12) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=allow)
        return client.ask(version, request, MetadataResponse).topics[0].error_code

    assert ask("made-on-demand", False) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask("made-on-demand", True) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "clients ask again"
    assert ask("made-on-demand", False) == 0
    assert ask("no spaces", True) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ask("no spaces", False) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_unknown_topics_are_not_created_if_the_broker_forbids_it(tmp_path: Path) -> None:
    with (
        BrokerThread(tmp_path / "data", options={"auto.create.topics.enable": "false"}) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        request = MetadataRequest(topics=[MetadataRequestTopic(name="nothing")])
        response = client.ask(12, request, MetadataResponse)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_clients_are_told_the_addresses_of_the_listener_they_came_by(tmp_path: Path) -> None:
    options = {
        "listeners": "INNER://127.0.0.1:0,OUTER://127.0.0.1:0",
        "advertised.listeners": "INNER://127.0.0.1:0,OUTER://localhost:7777",
        "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:PLAINTEXT",
        "inter.broker.listener.name": "INNER",
    }
    with BrokerThread(tmp_path / "data", options=options) as broker:
        ports = broker.call(lambda inner: [acceptor.listener.port for acceptor in inner.network._acceptors])
        told = []
        for port in ports:
            with RawClient(broker.host, port) as client:
                brokers = client.ask(12, MetadataRequest(topics=[]), MetadataResponse).brokers
                told.append((brokers[0].host, brokers[0].port))
        assert told == [("127.0.0.1", ports[0]), ("localhost", 7777)]


def test_authorized_operations_are_all_operations_if_asked_for(
    client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    wanted = [MetadataRequestTopic(name=new_topic().name)]
    asked = MetadataRequest(
        topics=wanted, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    response = client.ask(8, asked, MetadataResponse)
    assert response.cluster_authorized_operations > 0
    assert response.topics[0].topic_authorized_operations > 0
    silent = client.ask(8, MetadataRequest(topics=wanted), MetadataResponse)
    assert silent.topics[0].topic_authorized_operations == -(2**31)


# -- ListOffsets --------------------------------------------------------------------------------------


def list_offset(
    topic: RawTopic,
    timestamp: int,
    version: int = 9,
    *,
    isolation_level: int = 0,
    partition: int = 0,
    epoch: int = -1,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic.name, partitions=[wanted])],
    )
    return topic.client.ask(version, request, ListOffsetsResponse).topics[0].partitions[0]


@pytest.fixture
def timed_topic(new_topic: Callable[..., RawTopic]) -> RawTopic:
    """Records with the timestamps 1000, 3000 and 2000."""
    topic = new_topic()
    for timestamp in (1000, 3000, 2000):
        topic.produce(encode_batch([Record(timestamp=timestamp, value=b"v")]))
    return topic


@pytest.mark.parametrize("version", every_version(ApiKey.LIST_OFFSETS))
@pytest.mark.parametrize(
    ("timestamp", "since", "offset", "found_timestamp", "epoch"),
    [
        (-1, 1, 3, -1, 0),
        (-2, 1, 0, -1, 0),
        (-3, 7, 1, 3000, 0),
        (-4, 8, 0, -1, 0),
        (-5, 9, -1, -1, -1),
        (-6, 11, -1, -1, -1),
        (0, 1, 0, 1000, 0),
        (1001, 1, 1, 3000, 0),
        (3001, 1, -1, -1, -1),
    ],
)
def test_offsets_are_found_by_position_and_timestamp(
    timed_topic: RawTopic,
    version: int,
    timestamp: int,
    since: int,
    offset: int,
    found_timestamp: int,
    epoch: int,
) -> None:
    found = list_offset(timed_topic, timestamp, version)
    if version < since:
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        return
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_timestamp)
    assert found.leader_epoch == (epoch if version >= 4 else -1)


@pytest.mark.parametrize("timestamp", [-1, -2])
def test_the_ends_of_an_empty_log_have_the_current_epoch(
    new_topic: Callable[..., RawTopic], timestamp: int
) -> None:
    found = list_offset(new_topic(), timestamp)
    assert (found.error_code, found.offset, found.leader_epoch) == (0, 0, 0)


def test_offsets_that_cannot_be_listed_say_why(client: RawClient, new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    assert list_offset(topic, -7, 11).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(topic, -1, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(topic, -1, epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    twice = ListOffsetsTopic(name=topic.name, partitions=[ListOffsetsPartition(timestamp=-1)] * 2)
    response = client.ask(9, ListOffsetsRequest(replica_id=-1, topics=[twice]), ListOffsetsResponse)
    codes = [each.error_code for each in response.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_readers_of_committed_records_see_the_end_before_an_open_transaction(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    topic.produce(batch(b"a"))
    begun = batch(b"b", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    # Over the network only a coordinator's transactions are taken; this one is put into the log from inside.
    broker.call(lambda inner: inner.partitions.get(topic.name, 0).append(memoryview(begun)))
    assert list_offset(topic, -1, isolation_level=0).offset == 2
    assert list_offset(topic, -1, isolation_level=1).offset == 1
    committed = topic.fetch(isolation_level=1)
    assert (committed.high_watermark, committed.last_stable_offset) == (2, 1)
    assert committed.aborted_transactions == []
    assert topic.fetch(isolation_level=0).aborted_transactions is None


# -- OffsetForLeaderEpoch -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", every_version(ApiKey.OFFSET_FOR_LEADER_EPOCH))
@pytest.mark.parametrize(
    ("current", "epoch", "expected"),
    [
        (-1, 0, (ErrorCode.NONE, 0, 2)),
        (0, 0, (ErrorCode.NONE, 0, 2)),
        (-1, 7, (ErrorCode.NONE, -1, -1)),
        (3, 0, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ],
)
def test_leader_epochs_end_where_they_end(
    client: RawClient,
    new_topic: Callable[..., RawTopic],
    version: int,
    current: int,
    epoch: int,
    expected: tuple[int, int, int],
) -> None:
    topic = new_topic()
    topic.produce(batch(b"a", b"b"))
    wanted = OffsetForLeaderPartition(current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[wanted])]
    )
    (found,) = client.ask(version, request, OffsetForLeaderEpochResponse).topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == expected


# -- FindCoordinator, InitProducerId ------------------------------------------------------------------


@pytest.mark.parametrize("version", every_version(ApiKey.FIND_COORDINATOR))
@pytest.mark.parametrize("key_type", [0, 1])
def test_coordinators_of_groups_and_transactions_are_found(
    broker: BrokerThread, client: RawClient, version: int, key_type: int
) -> None:
    if version < 4:
        request = FindCoordinatorRequest(key="group", key_type=key_type if version else 0)
        response = client.ask(version, request, FindCoordinatorResponse)
        assert (response.error_code, response.node_id) == (0, 1)
        assert (response.host, response.port) == (broker.host, broker.port)
        return
    batched = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["one", "two"])
    found = client.ask(version, batched, FindCoordinatorResponse).coordinators
    assert [(each.key, each.error_code, each.node_id, each.port) for each in found] == [
        ("one", 0, 1, broker.port),
        ("two", 0, 1, broker.port),
    ]


@pytest.mark.parametrize("version", range(1, API_TABLE[ApiKey.FIND_COORDINATOR].max_version + 1))
@pytest.mark.parametrize("key_type", [2, 9])
def test_other_kinds_of_coordinators_do_not_exist(client: RawClient, version: int, key_type: int) -> None:
    code = ErrorCode.INVALID_REQUEST
    if version < 4:
        request = FindCoordinatorRequest(key="key", key_type=key_type)
        response = client.ask(version, request, FindCoordinatorResponse)
        assert (response.error_code, response.node_id) == (code, -1)
        return
    batched = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["one", "two"])
    found = client.ask(version, batched, FindCoordinatorResponse).coordinators
    assert [(each.key, each.error_code, each.node_id) for each in found] == [
        ("one", code, -1),
        ("two", code, -1),
    ]


@pytest.mark.parametrize("version", every_version(ApiKey.INIT_PRODUCER_ID))
def test_idempotent_producers_get_ids_of_their_own(client: RawClient, version: int) -> None:
    responses = [
        client.ask(version, InitProducerIdRequest(transactional_id=None), InitProducerIdResponse)
        for _ in range(3)
    ]
    ids = {response.producer_id for response in responses}
    assert len(ids) == 3
    assert min(ids) >= 0
    assert {(response.error_code, response.producer_epoch) for response in responses} == {(0, 0)}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_producers_get_no_id(client: RawClient, fields: dict[str, str], code: ErrorCode) -> None:
    response = client.ask(4, InitProducerIdRequest(**fields), InitProducerIdResponse)  # type: ignore[arg-type]
    assert (response.error_code, response.producer_id) == (code, -1)


# -- logging in -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (ApiKey.SASL_HANDSHAKE, ErrorCode.ILLEGAL_SASL_STATE),
        (ApiKey.SASL_AUTHENTICATE, ErrorCode.ILLEGAL_SASL_STATE),
        (ApiKey.CREATE_DELEGATION_TOKEN, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (ApiKey.RENEW_DELEGATION_TOKEN, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (ApiKey.DESCRIBE_DELEGATION_TOKEN, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    ],
)
def test_logging_in_is_refused_as_on_a_plaintext_listener(
    client: RawClient, key: ApiKey, code: ErrorCode
) -> None:
    """Served so that clients which guess a broker's version from its APIs do not take it for Kafka 0.9."""
    for version in every_version(key):
        response: Any = client.request(key, version, API_TABLE[key].request())
        assert response.error_code == code
