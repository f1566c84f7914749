"""Transactional produce requests whose verification takes time: waiting, order, ends that come in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch, values
from tests.rigs.raw_transaction import RawTransactions, committed_values
from tests.rigs.waiting import wait_until

from tidelog.errors import ErrorCode
from tidelog.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from tidelog.metadata.image import PartitionImage
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import parse_response_header
from tidelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NewTopic = Callable[..., RawTopic]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    options = {"transaction.state.log.num.partitions": "1"}
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data", options=options) as running:
        yield running


@pytest.fixture
def other(broker: BrokerThread) -> Iterator[RawClient]:
    """A second connection, for what happens while the first one waits."""
    with RawClient(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def producer(client: RawClient, request: pytest.FixtureRequest) -> RawTransactions:
    return RawTransactions(client, request.node.name).init()


LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


def stall(broker: BrokerThread, partition: TopicPartition) -> None:
    """Let a partition wait for a replica that never fetches, as with a slow second broker."""
    state = PartitionImage(replicas=(1, 2), leader=1, leader_epoch=0, isr=(1, 2))
    broker.call(lambda inner: inner.partitions.get(*partition).apply(state))


def go_on(broker: BrokerThread, partition: TopicPartition) -> None:
    state = PartitionImage(replicas=(1,), leader=1, leader_epoch=0, isr=(1,))
    broker.call(lambda inner: inner.partitions.get(*partition).apply(state))


def end_offset(broker: BrokerThread, partition: TopicPartition) -> int:
    return broker.call(lambda inner: inner.partitions.get(*partition).log.log_end_offset)


def receive(client: RawClient, version: int = 12) -> PartitionProduceResponse:
    frame = client.receive()
    _, pos = parse_response_header(ApiKey.PRODUCE, version, frame)
    response, _ = decode(ProduceResponse, version, frame, pos)
    return response.responses[0].partition_responses[0]


def test_a_request_waits_for_its_verification_and_holds_back_those_behind_it(
    broker: BrokerThread, client: RawClient, other: RawClient, producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic = new_topic()
    stall(broker, LOG)
    before = end_offset(broker, LOG)
    client.send_request(ApiKey.PRODUCE, 12, producer.request(topic, b"first"))
    producer.sequences[topic.name, 0] = 1
    client.send_request(ApiKey.PRODUCE, 12, producer.request(topic, b"second"))
    client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"plain")))
    wait_until(lambda: end_offset(broker, LOG) > before)
    assert topic.fetch(client=other).high_watermark == 0
    go_on(broker, LOG)
    answers = [receive(client), receive(client), receive(client, 9)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 1), (0, 2)]
    assert values(topic.fetch()) == [b"first", b"second", b"plain"]
    assert producer.end(committed=True) == 0


def test_requests_before_one_that_waits_are_answered(
    broker: BrokerThread, client: RawClient, other: RawClient, producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic = new_topic()
    stall(broker, LOG)
    client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"plain")))
    client.send_request(ApiKey.PRODUCE, 12, producer.request(topic, b"a"))
    assert receive(client, 9).base_offset == 0
    go_on(broker, LOG)
    assert receive(client).base_offset == 1
    assert producer.end(committed=False) == 0


def test_with_acks_0_the_records_are_written_when_they_are_verified(
    broker: BrokerThread, client: RawClient, other: RawClient, producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic = new_topic()
    stall(broker, LOG)
    before = end_offset(broker, LOG)
    client.send_request(ApiKey.PRODUCE, 12, producer.request(topic, b"a", acks=0))
    wait_until(lambda: end_offset(broker, LOG) > before)
    assert topic.fetch(client=other).high_watermark == 0
    go_on(broker, LOG)
    assert producer.end(committed=True) == 0
    assert committed_values(topic.fetch(isolation_level=1)) == [b"a"]


def test_a_client_that_goes_away_while_it_waits_leaves_a_broker_that_serves(
    broker: BrokerThread, client: RawClient, producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic = new_topic()
    stall(broker, LOG)
    before = end_offset(broker, LOG)
    with RawClient(broker.host, broker.port) as leaving:
        leaving.send_request(ApiKey.PRODUCE, 12, producer.request(topic, b"a"))
        wait_until(lambda: end_offset(broker, LOG) > before)
    go_on(broker, LOG)
    wait_until(lambda: end_offset(broker, TopicPartition(topic.name, 0)) == 1)
    assert producer.end(committed=False) == 0


def test_a_marker_that_comes_before_the_answer_voids_it(
    broker: BrokerThread, client: RawClient, other: RawClient, producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic, more = new_topic(), new_topic()
    assert producer.add(topic) == [0]
    stall(broker, LOG)
    # What the coordinator tells waits until all it may tell of is replicated: here another partition.
    with RawClient(broker.host, broker.port) as third:
        twin = RawTransactions(third, producer.transactional_id)
        twin.producer_id, twin.epoch = producer.producer_id, producer.epoch
        before = end_offset(broker, LOG)
        third.send_request(ApiKey.PRODUCE, 12, twin.request(more, b"x"))
        wait_until(lambda: end_offset(broker, LOG) > before)
        client.send_request(ApiKey.PRODUCE, 9, producer.request(topic, b"late", version=9))
        wait_until(
            lambda: broker.call(
                lambda inner: bool(inner.partitions.get(topic.name, 0).log.producers.verifications)
            )
        )
        assert write_marker(other, producer, topic) == 0
        go_on(broker, LOG)
        assert receive(client, 9).error_code == ErrorCode.INVALID_TXN_STATE
        assert receive(third).error_code == 0
    assert values(topic.fetch(client=other))[:1] != [b"late"]
    assert producer.end(committed=False) == 0


def write_marker(client: RawClient, producer: RawTransactions, topic: RawTopic) -> int:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0])],
    )
    response = client.ask(1, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    return response.markers[0].topics[0].partitions[0].error_code


def test_while_a_transaction_is_being_completed_the_next_one_is_told_to_wait(
    broker: BrokerThread, producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic, next_topic = new_topic(), new_topic()
    assert producer.produce(topic, b"a").error_code == 0
    partition = TopicPartition(topic.name, 0)
    stall(broker, partition)
    assert producer.end(committed=True) == 0
    assert producer.produce(next_topic, b"b").error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    older = producer.produce(next_topic, b"b", version=11)
    assert (older.error_code, older.error_message) == (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "Unable to verify the partition has been added to the transaction. "
        "Underlying error: CONCURRENT_TRANSACTIONS",
    )
    go_on(broker, partition)
    wait_until(lambda: producer.produce(next_topic, b"b").error_code == 0)
    assert producer.end(committed=True) == 0
    assert committed_values(next_topic.fetch(isolation_level=1)) == [b"b"]


def test_adding_is_tried_again_until_the_transaction_before_is_complete(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    options = {"add.partitions.to.txn.retry.backoff.max.ms": "20000"}
    with (
        BrokerThread(tmp_path_factory.mktemp("patient") / "data", options=options) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        topic, next_topic = RawTopic(client, "t"), RawTopic(client, "u")
        producer = RawTransactions(client, "patient").init()
        assert producer.produce(topic, b"a").error_code == 0
        partition = TopicPartition("t", 0)
        stall(broker, partition)
        assert producer.end(committed=True) == 0
        client.send_request(ApiKey.PRODUCE, 12, producer.request(next_topic, b"b"))
        wait_until(lambda: broker.call(lambda inner: len(inner.coordinators.timers)) > 0)
        go_on(broker, partition)
        answer = receive(client)
        assert (answer.error_code, answer.base_offset) == (0, 0)
