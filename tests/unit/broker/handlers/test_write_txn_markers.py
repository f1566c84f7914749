"""WriteTxnMarkers on the wire: what other coordinators and people who abort hanging transactions send."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch
from tests.rigs.raw_transaction import RawTransactions, committed_values

from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.metadata.image import PartitionImage
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import parse_response_header
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NewTopic = Callable[..., RawTopic]
PRODUCER = 4_000_000


def begin(
    broker: BrokerThread, topic: RawTopic, *, epoch: int = 0, sequence: int = 0, partition: int = 0
) -> None:
    """Open a transaction that no coordinator knows of: one that hangs."""
    records = batch(
        b"hanging", producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    broker.call(
        lambda inner: inner.partitions.get(topic.name, partition).append(memoryview(bytearray(records)))
    )


def marker(*topics: tuple[str, list[int]], **fields: int) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=fields.get("producer_id", PRODUCER),
        producer_epoch=fields.get("epoch", 0),
        coordinator_epoch=fields.get("coordinator_epoch", 0),
        transaction_version=fields.get("transaction_version", 0),
        transaction_result=bool(fields.get("committed", 0)),
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics],
    )


def write(
    client: RawClient, *markers: WritableTxnMarker, version: int = 2
) -> dict[int, dict[TopicPartition, int]]:
    response = client.ask(version, WriteTxnMarkersRequest(markers=list(markers)), WriteTxnMarkersResponse)
    return {
        each.producer_id: {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in each.topics
            for partition in topic.partitions
        }
        for each in response.markers
    }


def code(client: RawClient, topic: RawTopic, **fields: int) -> int:
    return write(client, marker((topic.name, [0]), **fields))[PRODUCER][TopicPartition(topic.name, 0)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("committed", "kept"), [(1, [b"hanging", b"hanging"]), (0, [])])
def test_a_marker_ends_the_transaction_in_its_partitions(
    broker: BrokerThread,
    client: RawClient,
    new_topic: NewTopic,
    version: int,
    committed: int,
    kept: list[bytes],
) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        begin(broker, topic, partition=partition)
        begin(broker, topic, sequence=1, partition=partition)
    assert topic.fetch(isolation_level=1).last_stable_offset == 0
    answer = write(client, marker((topic.name, [0, 1]), committed=committed), version=version)
    assert answer == {PRODUCER: {TopicPartition(topic.name, n): 0 for n in range(2)}}
    for partition in range(2):
        data = topic.fetch(isolation_level=1, partition=partition)
        assert (data.last_stable_offset, committed_values(data)) == (3, kept)


def test_no_markers_are_answered_with_none(client: RawClient) -> None:
    assert write(client) == {}
    assert write(client, marker()) == {}


def test_every_partition_is_answered_by_itself_and_every_producer_once(
    client: RawClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    answer = write(
        client,
        marker((topic.name, [0, 3])),
        marker(("nowhere", [0])),
        marker((topic.name, [0]), producer_id=PRODUCER + 1),
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer == {
        PRODUCER: {
            TopicPartition(topic.name, 0): 0,
            TopicPartition(topic.name, 3): unknown,
            TopicPartition("nowhere", 0): unknown,
        },
        PRODUCER + 1: {TopicPartition(topic.name, 0): 0},
    }


def test_a_partition_that_is_led_elsewhere_takes_no_marker(
    broker: BrokerThread, client: RawClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    state = PartitionImage(replicas=(1, 2), leader=2, leader_epoch=1, isr=(1, 2))
    broker.call(lambda inner: inner.partitions.get(topic.name, 0).apply(state))
    assert code(client, topic) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_markers_of_older_producers_and_coordinators_are_refused(
    broker: BrokerThread, client: RawClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    begin(broker, topic, epoch=5)
    assert code(client, topic, epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(client, topic, epoch=5, coordinator_epoch=7) == 0
    assert code(client, topic, epoch=5, coordinator_epoch=6) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_repeated_marker_is_written_again(
    broker: BrokerThread, client: RawClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    begin(broker, topic)
    assert [code(client, topic, epoch=1, transaction_version=2, committed=1) for _ in range(2)] == [0, 0]
    data = topic.fetch(isolation_level=1)
    assert (data.last_stable_offset, committed_values(data)) == (3, [b"hanging"])


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(
    broker: BrokerThread, client: RawClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    begin(broker, topic, epoch=0)
    assert code(client, topic, epoch=1, transaction_version=2, committed=1) == 0
    begin(broker, topic, epoch=1)
    late = code(client, topic, epoch=1, transaction_version=2, committed=1)
    assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    assert topic.fetch(isolation_level=1).last_stable_offset == 2
    assert code(client, topic, epoch=1, transaction_version=1, committed=1) == 0, "version 1 cannot tell"


def test_an_answer_waits_until_the_marker_is_replicated(
    broker: BrokerThread, client: RawClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    begin(broker, topic)

    def set_in_sync(*isr: int) -> None:
        state = PartitionImage(replicas=(1, 2), leader=1, leader_epoch=0, isr=isr)
        broker.call(lambda inner: inner.partitions.get(topic.name, 0).apply(state))

    set_in_sync(1, 2)
    with RawClient(broker.host, broker.port) as waiting:
        request = WriteTxnMarkersRequest(markers=[marker((topic.name, [0]))])
        waiting.send_request(ApiKey.WRITE_TXN_MARKERS, 2, request)
        end = 0
        while end < 2:
            end = broker.call(lambda inner: inner.partitions.get(topic.name, 0).log.log_end_offset)
        assert topic.fetch(isolation_level=1).last_stable_offset == 0
        set_in_sync(1)
        frame = waiting.receive()
        _, pos = parse_response_header(ApiKey.WRITE_TXN_MARKERS, 2, frame)
        response, _ = decode(WriteTxnMarkersResponse, 2, frame, pos)
        assert response.markers[0].topics[0].partitions[0].error_code == 0
    assert topic.fetch(isolation_level=1).last_stable_offset == 2


def test_markers_for_committed_offsets_go_through_the_group_coordinator(client: RawClient) -> None:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    client.ask(4, find, FindCoordinatorResponse)
    offsets = marker(("__consumer_offsets", [0, 77]))
    answer: dict[int, int] = {}
    while answer.get(0, ErrorCode.NOT_LEADER_OR_FOLLOWER) == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        written = write(client, offsets)[PRODUCER]
        answer = {partition.partition: code for partition, code in written.items()}
    assert answer == {0: 0, 77: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_an_aborted_hanging_transaction_lets_readers_go_on(
    broker: BrokerThread, client: RawClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    begin(broker, topic)
    producer = RawTransactions(client, "a-good-one").init()
    producer.produce(topic, b"good")
    assert producer.end(committed=True) == 0
    assert committed_values(topic.fetch(isolation_level=1)) == []
    assert code(client, topic) == 0
    assert committed_values(topic.fetch(isolation_level=1)) == [b"good"]


@pytest.mark.parametrize(
    ("producer_id", "epoch", "expected"),
    [
        (-1, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (-1, -1, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (PRODUCER, -1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_of_nobody_is_refused_and_not_written(
    client: RawClient,
    new_topic: NewTopic,
    producer_id: int,
    epoch: int,
    expected: ErrorCode,
    broker: BrokerThread,
) -> None:
    topic = new_topic()
    answer = write(client, marker((topic.name, [0]), producer_id=producer_id, epoch=epoch))
    assert answer == {producer_id: {TopicPartition(topic.name, 0): expected}}
    assert broker.call(lambda inner: inner.partitions.get(topic.name, 0).log.log_end_offset) == 0
