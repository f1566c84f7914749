"""Produce requests of transactions, as seen on the wire: who may write, and what readers see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch, values
from tests.rigs.raw_transaction import RawTransactions, committed_values

from tidelog.errors import ErrorCode
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import parse_response_header
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.produce import PartitionProduceData, ProduceResponse

NewTopic = Callable[..., RawTopic]
NewProducer = Callable[[], RawTransactions]


@pytest.fixture
def new_producer(client: RawClient, request: pytest.FixtureRequest) -> NewProducer:
    count = 0

    def make() -> RawTransactions:
        nonlocal count
        count += 1
        return RawTransactions(client, f"{request.node.name}-{count}").init()

    return make


@pytest.fixture
def producer(new_producer: NewProducer) -> RawTransactions:
    return new_producer()


def committed(topic: RawTopic, partition: int = 0) -> list[bytes | None]:
    """The values that a reader of committed records keeps."""
    return committed_values(topic.fetch(isolation_level=1, partition=partition))


def latest(topic: RawTopic, isolation_level: int) -> int:
    wanted = ListOffsetsTopic(name=topic.name, partitions=[ListOffsetsPartition(timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[wanted])
    return topic.client.ask(9, request, ListOffsetsResponse).topics[0].partitions[0].offset


def described(topic: RawTopic) -> list[ProducerState]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])
    (found,) = topic.client.ask(0, request, DescribeProducersResponse).topics[0].partitions
    return found.active_producers


# -- who may write ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 12))
def test_before_version_12_a_partition_must_have_been_added(
    producer: RawTransactions, new_topic: NewTopic, version: int
) -> None:
    topic, other = new_topic(), new_topic()
    assert producer.add(topic) == [0]
    assert producer.produce(topic, b"a", version=version).error_code == 0
    refused = producer.produce(other, b"x", version=version)
    expected = ErrorCode.TRANSACTION_ABORTABLE if version == 11 else ErrorCode.INVALID_TXN_STATE
    assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (expected, -1, -1)
    if version in (8, 10):
        assert refused.error_message == "Partition was not added to the transaction"
    assert producer.produce(topic, b"b", version=version).base_offset == 1
    assert producer.end(committed=True, version=4) == 0
    assert committed(topic) == [b"a", b"b"]
    assert topic.fetch().high_watermark == 3
    assert other.fetch().high_watermark == 0


@pytest.mark.parametrize("version", [12, 13])
def test_from_version_12_on_the_first_batch_adds_its_partition(
    producer: RawTransactions, new_topic: NewTopic, version: int
) -> None:
    topic = new_topic(partitions=2)
    for n in range(3):
        epoch = producer.epoch
        for partition in range(2):
            assert producer.produce(topic, b"%d" % n, partition=partition, version=version).error_code == 0
        assert producer.end(committed=n != 1) == 0
        assert producer.epoch == epoch + 1
    assert committed(topic) == committed(topic, 1) == [b"0", b"2"]


def test_a_transaction_may_be_verified_in_one_partition_and_open_in_another(
    producer: RawTransactions, new_topic: NewTopic, client: RawClient
) -> None:
    topic = new_topic(partitions=3)
    assert producer.produce(topic, b"open", partition=0).error_code == 0
    request = producer.request(topic, b"more", partition=0)
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=producer.batch(topic, b"new", partition=1)),
        PartitionProduceData(index=2, records=batch(b"plain")),
        PartitionProduceData(index=3, records=producer.batch(topic, b"nowhere", partition=3)),
    ]
    (answered,) = client.ask(12, request, ProduceResponse).responses
    assert [(each.index, each.error_code, each.base_offset) for each in answered.partition_responses] == [
        (0, 0, 1),
        (1, 0, 0),
        (2, 0, 0),
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert producer.end(committed=True) == 0
    assert [committed(topic, each) for each in range(3)] == [[b"open", b"more"], [b"new"], [b"plain"]]


def test_records_of_two_producers_refuse_the_whole_request(
    new_producer: NewProducer, new_topic: NewTopic, client: RawClient
) -> None:
    topic = new_topic(partitions=3)
    one, two = new_producer(), new_producer()
    request = one.request(topic, b"a")
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=two.batch(topic, b"b")),
        PartitionProduceData(index=2, records=batch(b"plain")),
    ]
    (answered,) = client.ask(12, request, ProduceResponse).responses
    codes = {each.error_code for each in answered.partition_responses}
    assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert topic.fetch(partition=2).high_watermark == 0


def test_transactional_records_need_a_transactional_id(
    producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic = new_topic()
    answer = topic.produce(producer.batch(topic, b"a"))
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        -1,
        -1,
    )


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_producer_id_that_is_not_the_transactional_ids_is_refused(
    producer: RawTransactions, new_topic: NewTopic, version: int, code: ErrorCode
) -> None:
    producer.producer_id += 1000
    assert producer.produce(new_topic(), b"a", version=version).error_code == code


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_fenced_producer_is_told_that_its_epoch_is_old(
    producer: RawTransactions, new_topic: NewTopic, version: int
) -> None:
    topic, written = new_topic(), new_topic()
    assert producer.produce(written, b"a").error_code == 0
    RawTransactions(producer.client, producer.transactional_id).init()
    for each in (topic, written):
        assert (
            producer.produce(each, b"zombie", version=version).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        )
    assert committed(written) == []
    assert topic.fetch().high_watermark == 0


def test_without_verification_older_clients_are_believed(tmp_path: Path) -> None:
    options = {"transaction.partition.verification.enable": "false"}
    with (
        BrokerThread(tmp_path / "data", options=options) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        topic = RawTopic(client, "t")
        producer = RawTransactions(client, "id").init()
        assert producer.produce(topic, b"a", version=9).error_code == 0
        assert described(topic)[0].current_txn_start_offset == 0


@pytest.mark.parametrize(("version", "text"), [(9, "COORDINATOR"), (12, "COORDINATOR")])
def test_a_coordinator_that_is_not_there_is_tried_again_as_too_few_replicas(
    tmp_path: Path, version: int, text: str
) -> None:
    with BrokerThread(tmp_path / "data") as broker, RawClient(broker.host, broker.port) as client:
        producer = RawTransactions(client, "id")
        producer.producer_id, producer.epoch = 5, 0
        answer = producer.produce(RawTopic(client, "t"), b"a", version=version)
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert answer.error_message is not None
        assert text in answer.error_message


# -- sequence numbers and epochs ----------------------------------------------------------------------


def test_every_transaction_of_version_2_begins_with_sequence_0(
    producer: RawTransactions, new_topic: NewTopic, client: RawClient
) -> None:
    topic = new_topic()
    producer.sequences[topic.name, 0] = 7
    assert producer.produce(topic, b"x").error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.sequences.clear()
    for n in range(2):
        assert [producer.produce(topic, b"%d" % n).error_code for _ in range(2)] == [0, 0]
        assert producer.end(committed=True) == 0
    producer.sequences[topic.name, 0] = 2
    assert producer.produce(topic, b"x").error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_late_batch_of_an_ended_transaction_is_refused(
    producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer.produce(topic, b"a")
    old_epoch = producer.epoch
    assert producer.end(committed=False) == 0
    producer.epoch, producer.sequences[topic.name, 0] = old_epoch, 1
    assert producer.produce(topic, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert topic.fetch().high_watermark == 2


def test_a_repeated_batch_is_answered_with_its_first_offsets(
    producer: RawTransactions, new_topic: NewTopic, client: RawClient
) -> None:
    topic = new_topic()
    request = producer.request(topic, b"a", b"b")
    answers = [client.ask(12, request, ProduceResponse).responses[0].partition_responses[0] for _ in range(2)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 0)]
    assert topic.fetch().high_watermark == 2


# -- what readers see ---------------------------------------------------------------------------------


def test_readers_of_committed_records_wait_for_the_oldest_open_transaction(
    new_producer: NewProducer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    first, second = new_producer(), new_producer()
    topic.produce(batch(b"before"))
    first.produce(topic, b"first")
    second.produce(topic, b"second")
    topic.produce(batch(b"after"))
    assert (latest(topic, 0), latest(topic, 1)) == (4, 1)
    data = topic.fetch(isolation_level=1)
    assert (data.high_watermark, data.last_stable_offset, values(data)) == (4, 1, [b"before"])
    assert [(each.producer_id, each.current_txn_start_offset) for each in described(topic)] == [
        (first.producer_id, 1),
        (second.producer_id, 2),
    ]
    second.end(committed=True)
    assert latest(topic, 1) == 1
    first.end(committed=False)
    assert latest(topic, 1) == topic.fetch().high_watermark == 6
    assert committed(topic) == [b"before", b"second", b"after"]
    aborted = topic.fetch(isolation_level=1).aborted_transactions or []
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(first.producer_id, 1)]
    assert {each.current_txn_start_offset for each in described(topic)} == {-1}
    assert {each.coordinator_epoch for each in described(topic)} == {0}


def test_a_long_poll_for_committed_records_ends_with_the_transaction(
    broker: BrokerThread, producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer.produce(topic, b"a")
    with RawClient(broker.host, broker.port) as reader:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=20_000,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            replica_id=-1,
            topics=[topic.fetch_topic(13, wanted)],
        )
        reader.send_request(ApiKey.FETCH, 13, request)
        assert producer.end(committed=True) == 0
        frame = reader.receive()
        _, pos = parse_response_header(ApiKey.FETCH, 13, frame)
        response, _ = decode(FetchResponse, 13, frame, pos)
        assert values(response.responses[0].partitions[0])[0] == b"a"


def test_a_transaction_on_a_topic_that_syncs_every_message_ends_when_its_marker_is_synced(
    producer: RawTransactions, new_topic: NewTopic
) -> None:
    topic = new_topic(flush_messages="1")
    for n in range(3):
        while producer.produce(topic, b"%d" % n).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        assert producer.end(committed=n != 1) == 0
    while topic.fetch(isolation_level=1).last_stable_offset < 6:
        pass
    assert committed(topic) == [b"0", b"2"]


def test_records_are_deleted_up_to_the_last_stable_offset_at_most(
    producer: RawTransactions, new_topic: NewTopic, client: RawClient
) -> None:
    topic = new_topic()
    topic.produce(batch(b"before"))
    producer.produce(topic, b"a")

    def delete(offset: int) -> tuple[int, int]:
        wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=[wanted])], timeout_ms=1000
        )
        (found,) = client.ask(2, request, DeleteRecordsResponse).topics[0].partitions
        return found.error_code, found.low_watermark

    assert delete(1) == (0, 1)
    assert producer.end(committed=True) == 0
    assert delete(-1) == (0, 3)
    assert committed(topic) == []


def test_transactions_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker, RawClient(broker.host, broker.port) as client:
        topic = RawTopic(client, "t")
        open_one, ended = RawTransactions(client, "open").init(), RawTransactions(client, "ended").init()
        ended.produce(topic, b"aborted")
        ended.end(committed=False)
        open_one.produce(topic, b"open")
    with BrokerThread(tmp_path / "data") as broker, RawClient(broker.host, broker.port) as client:
        topic.client = open_one.client = client
        assert latest(topic, 1) == 2
        RawTransactions(client, "ended").init()
        assert open_one.produce(topic, b"more").error_code == 0
        assert open_one.end(committed=True) == 0
        assert committed(topic) == [b"open", b"more"]
