"""Produce as seen on the wire, in the versions where it differs."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import GeneratorType

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch, values
from tests.rigs.waiting import wait_until

from tidelog.broker.app import Broker
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.produce.batch_validation import RequestValidation
from tidelog.errors import ErrorCode
from tidelog.ids import random_uuid
from tidelog.metadata.image import PartitionImage
from tidelog.records.batch import write_crc
from tidelog.records.compression import Codec
from tidelog.records.record import Record, encode_batch
from tidelog.replication.append_group import AppendGroup
from tidelog.scheduling.slices import Slices
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.storage.log_config import LogConfig
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import RequestHeader, encode_request, parse_response_header
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.produce import ParsedProduce, TopicRecords


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 1])
def test_every_version_appends(new_topic: Callable[..., RawTopic], version: int, acks: int) -> None:
    topic = new_topic()
    for offset in (0, 2):
        answer = topic.produce(batch(b"a", b"b"), version=version, acks=acks)
        assert (answer.error_code, answer.base_offset) == (0, offset)
    assert values(topic.fetch(offset=2)) == [b"a", b"b"]


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_other_versions_of_produce_close_the_connection(broker: BrokerThread, version: int) -> None:
    with RawClient(broker.host, broker.port) as client:
        client.send_frame(b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\1\0\1x" + bytes(50))
        assert client.is_closed()


def test_requests_in_flight_are_answered_in_order(
    client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    sent = [
        client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"%d" % n))) for n in range(50)
    ]
    received = [int.from_bytes(client.receive()[:4], "big") for _ in sent]
    assert received == sent
    assert values(topic.fetch(offset=0)) == [b"%d" % n for n in range(50)]


def test_nothing_is_answered_with_acks_0(client: RawClient, new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"a"), acks=0))
    assert values(topic.fetch(offset=0)) == [b"a"]


def test_an_error_with_acks_0_closes_the_connection(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    before = errors_told(broker)
    with RawClient(broker.host, broker.port) as other:
        other.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"a"), acks=0, partition=7))
        assert other.is_closed()
    assert errors_told(broker) - before == {"UNKNOWN_TOPIC_OR_PARTITION": 1}


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(new_topic: Callable[..., RawTopic], acks: int) -> None:
    answer = new_topic().produce(batch(b"a"), acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)


def errors_told(broker: BrokerThread) -> Counter[str]:
    """How often the answers that had some error had which code."""
    return broker.call(lambda inner: Counter(inner.partitions.counts.errors.by_request["Produce"]))


def test_each_partition_is_answered_by_itself(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic(partitions=2)
    request = topic.produce_request(batch(b"a"))
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=b"garbage"),
        PartitionProduceData(index=2, records=batch(b"c")),
        PartitionProduceData(index=1, records=batch(b"d")),
    ]
    before = errors_told(broker)
    response = client.ask(9, request, ProduceResponse)
    codes = [(each.index, each.error_code) for each in response.responses[0].partition_responses]
    assert codes == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.INVALID_RECORD),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, ErrorCode.NONE),
    ]
    told = {"NONE": 2, "INVALID_RECORD": 1, "UNKNOWN_TOPIC_OR_PARTITION": 1}
    assert errors_told(broker) - before == told


def test_unknown_topics_are_refused_by_name_and_by_id(
    client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    topic.name, topic.id = "not-there", random_uuid()
    assert topic.produce(batch(b"a"), version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.produce(batch(b"a"), version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (batch(bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["null", "empty", "two batches", "bad checksum", "too large"],
)
def test_bad_records_are_refused(
    new_topic: Callable[..., RawTopic], records: bytes | None, code: ErrorCode
) -> None:
    topic = new_topic()
    assert topic.produce(records).error_code == code
    assert topic.produce(batch(b"good")).base_offset == 0


def test_a_key_is_missed_on_a_compacted_topic_and_the_record_named(
    new_topic: Callable[..., RawTopic],
) -> None:
    answer = new_topic(cleanup_policy="compact").produce(batch(b"a", b"b"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert answer.error_message is not None


def test_the_reason_is_told_where_bytes_are_no_batch(new_topic: Callable[..., RawTopic]) -> None:
    records = bytearray(batch(b"a"))
    records[16] = 9
    answer = new_topic().produce(bytes(records))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert answer.error_message == "Invalid magic found in record: 9"


def test_zstd_needs_version_7_to_write_and_none_to_read(new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic(compression_type="zstd")
    records = batch(b"a" * 100, codec=Codec.ZSTD)
    assert topic.produce(records, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert topic.produce(records, version=7).error_code == 0
    assert values(topic.fetch(version=9)) == values(topic.fetch(version=10)) == [b"a" * 100]


def test_internal_topics_are_closed_to_ordinary_clients(tmp_path: Path) -> None:
    options = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    with BrokerThread(tmp_path / "data", options=options) as broker:
        with RawClient(broker.host, broker.port) as client:
            described = client.ask(
                12,
                MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]),
                MetadataResponse,
            )
            assert described.topics[0].is_internal
            request = ProduceRequest(
                acks=1,
                topic_data=[
                    TopicProduceData(
                        name="__consumer_offsets",
                        partition_data=[
                            PartitionProduceData(
                                index=0, records=encode_batch([Record(key=b"k", value=b"v")])
                            )
                        ],
                    )
                ],
            )
            refused = client.ask(9, request, ProduceResponse)
            client.client_id = "__admin_client"
            taken = client.ask(9, request, ProduceResponse)
        codes = [each.responses[0].partition_responses[0].error_code for each in (refused, taken)]
        assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]


def test_no_more_replicas_are_asked_for_than_there_are(new_topic: Callable[..., RawTopic]) -> None:
    assert new_topic(min_insync_replicas="2").produce(batch(b"a"), acks=-1).error_code == 0


def set_in_sync(broker: BrokerThread, topic: RawTopic, *isr: int) -> None:
    """Let the partition believe that other replicas are in sync, as it will be with more brokers."""
    state = PartitionImage(replicas=(1, 2), leader=1, leader_epoch=0, isr=isr)
    broker.call(lambda inner: inner.partitions.get(topic.name, 0).apply(state))


def test_too_few_replicas_in_sync_refuse_acks_all_only(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic(min_insync_replicas="2")
    set_in_sync(broker, topic, 1)
    assert topic.produce(batch(b"a"), acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert topic.produce(batch(b"a"), acks=1).error_code == 0


def test_acks_all_waits_for_other_replicas_and_keeps_the_order_of_answers(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    set_in_sync(broker, topic, 1, 2)
    sent = [
        client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"%d" % n), acks=acks))
        for n, acks in enumerate((-1, 1, -1))
    ]
    with RawClient(broker.host, broker.port) as other:
        end = 0
        while end < 3:
            end = broker.call(lambda inner: inner.partitions.get(topic.name, 0).log.log_end_offset)
        assert topic.fetch(client=other).high_watermark == 0
    set_in_sync(broker, topic, 1)
    assert [int.from_bytes(client.receive()[:4], "big") for _ in sent] == sent


def end_offset(broker: BrokerThread, topic: RawTopic, partition: int = 0) -> int:
    return broker.call(lambda inner: inner.partitions.get(topic.name, partition).log.log_end_offset)


def set_state(broker: BrokerThread, topic: RawTopic, partition: int, state: PartitionImage) -> None:
    broker.call(lambda inner: inner.partitions.get(topic.name, partition).apply(state))


def set_min_in_sync(broker: BrokerThread, topic: RawTopic, count: int) -> None:
    broker.call(lambda inner: inner.partitions.configure(topic.name, LogConfig(min_insync_replicas=count)))


def wait_held_back(broker: BrokerThread) -> None:
    """Until a request has come that has to wait for those before it."""
    wait_until(
        lambda: broker.call(
            lambda inner: any(each.muted or each._inbox.waiting for each in inner.network.connections)
        )
    )


def outcome(client: RawClient) -> tuple[int, int, int]:
    """Correlation id, error code and offset of the next answer to a request for one partition."""
    frame = client.receive()
    correlation_id, pos = parse_response_header(ApiKey.PRODUCE, 9, frame)
    answer, _ = decode(ProduceResponse, 9, frame, pos)
    result = answer.responses[0].partition_responses[0]
    return correlation_id, result.error_code, result.base_offset


def send_together(client: RawClient, requests: list[ProduceRequest]) -> list[int]:
    """Send requests so that the broker finds all of them when it looks; their correlation ids."""
    headers = [RequestHeader(ApiKey.PRODUCE, 9, 900 + number, "x") for number in range(len(requests))]
    client.send(b"".join(map(encode_request, headers, requests)))
    return [header.correlation_id for header in headers]


THREE = PartitionImage(replicas=(1, 2, 3), leader=1, leader_epoch=0, isr=(1, 2))
ALONE = PartitionImage(replicas=(1, 2, 3), leader=1, leader_epoch=0, isr=(1,))


def test_a_request_is_not_refused_before_its_turn(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    """Otherwise the third batch of a producer is judged without the second, though all is well by then; some
    producers take that for a reason to begin anew, and write what other partitions have already."""
    topic = new_topic()
    numbered = [batch(b"%d" % n, producer_id=77, producer_epoch=0, base_sequence=n) for n in range(3)]
    set_state(broker, topic, 0, THREE)
    first = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(numbered[0], acks=-1))
    wait_until(lambda: end_offset(broker, topic) == 1)
    set_min_in_sync(broker, topic, 3)
    second = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(numbered[1], acks=-1))
    third = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(numbered[2], acks=-1))
    wait_held_back(broker)
    set_min_in_sync(broker, topic, 1)
    assert end_offset(broker, topic) == 1
    set_state(broker, topic, 0, ALONE)
    assert [outcome(client) for _ in range(3)] == [(first, 0, 0), (second, 0, 1), (third, 0, 2)]


def test_a_request_is_refused_when_it_is_its_turn(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic(partitions=2)
    set_state(broker, topic, 0, THREE)
    first = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"1"), acks=-1))
    wait_until(lambda: end_offset(broker, topic) == 1)
    set_state(broker, topic, 1, PartitionImage(replicas=(1, 2), leader=2, leader_epoch=1, isr=(1, 2)))
    second = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"2"), acks=-1, partition=1))
    third = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"3"), acks=1))
    wait_held_back(broker)
    assert end_offset(broker, topic) == 1
    set_state(broker, topic, 0, ALONE)
    answers = [outcome(client) for _ in range(3)]
    assert answers == [(first, 0, 0), (second, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (third, 0, 1)]


class HeldJudging:
    """Stands for the threads that judge: nothing is done before ``go_on``."""

    are_few = True

    def __init__(self) -> None:
        self.held: list[tuple[RequestValidation, Callable[[Exception | None], None]]] = []

    def judge(self, request: RequestValidation, when_done: Callable[[Exception | None], None]) -> None:
        self.held.append((request, when_done))

    def go_on(self) -> None:
        for request, when_done in self.held:
            while not request.advance(1 << 20, in_thread=True):
                pass
            when_done(None)


def test_a_request_that_is_judged_apart_is_not_refused_before_its_turn(
    broker: BrokerThread,
    client: RawClient,
    new_topic: Callable[..., RawTopic],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judging = HeldJudging()
    broker.call(lambda inner: monkeypatch.setattr(inner.judging_threads, "judge", judging.judge))
    topic = new_topic(partitions=2)
    set_state(broker, topic, 0, THREE)
    heavy = encode_batch([Record(value=bytes(4 << 20))], codec=Codec.GZIP)
    first = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"1"), acks=-1))
    second = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(heavy, acks=-1, partition=1))
    third = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"3"), acks=1))
    wait_until(lambda: bool(judging.held))
    # When it has been judged its partition is led elsewhere; that is over before the first is answered.
    set_state(broker, topic, 1, PartitionImage(replicas=(1, 2), leader=2, leader_epoch=1, isr=(1, 2)))
    broker.call(lambda inner: judging.go_on())
    wait_until(
        lambda: broker.call(lambda inner: any(each._turn is not None for each in inner.network.connections))
    )
    set_state(broker, topic, 1, PartitionImage(replicas=(1, 2), leader=1, leader_epoch=2, isr=(1,)))
    set_state(broker, topic, 0, ALONE)
    assert [outcome(client) for _ in range(3)] == [(first, 0, 0), (second, 0, 0), (third, 0, 1)]


def test_nothing_behind_a_refusal_is_judged_when_all_arrive_at_once(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic(partitions=2)
    set_state(broker, topic, 0, THREE)
    requests = [
        topic.produce_request(batch(b"1"), acks=-1),
        topic.produce_request(batch(b"2"), acks=-1, partition=7),
        topic.produce_request(batch(b"3"), acks=1),
    ]
    sent = send_together(client, requests)
    wait_until(lambda: end_offset(broker, topic) == 1)
    with RawClient(broker.host, broker.port) as other:
        assert topic.fetch(client=other).high_watermark == 0
    assert end_offset(broker, topic) == 1
    set_state(broker, topic, 0, ALONE)
    answers = [outcome(client) for _ in range(3)]
    assert answers == [(sent[0], 0, 0), (sent[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (sent[2], 0, 1)]


def test_nothing_is_judged_behind_a_request_that_is_refused_while_it_waits(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic(partitions=3)
    set_state(broker, topic, 0, THREE)
    set_state(broker, topic, 1, THREE)
    first, second = (
        client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"a"), acks=-1, partition=index))
        for index in (0, 1)
    )
    wait_until(lambda: end_offset(broker, topic, 1) == 1)
    # Broker 2 leads the second's partition now, and its answer waits behind the first's.
    set_state(broker, topic, 1, PartitionImage(replicas=(1, 2, 3), leader=2, leader_epoch=1, isr=(1, 2)))
    third = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"b"), acks=1, partition=2))
    wait_held_back(broker)
    assert end_offset(broker, topic, 2) == 0
    set_state(broker, topic, 0, ALONE)
    answers = [outcome(client) for _ in range(3)]
    assert answers == [(first, 0, 0), (second, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0), (third, 0, 0)]


def test_nothing_is_judged_behind_a_request_of_which_a_part_is_refused(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    set_state(broker, topic, 0, THREE)
    both = topic.produce_request(batch(b"a"), acks=-1)
    both.topic_data[0].partition_data.append(PartitionProduceData(index=7, records=batch(b"a")))
    client.send_request(ApiKey.PRODUCE, 9, both)
    behind = client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(batch(b"b"), acks=1))
    wait_held_back(broker)
    assert end_offset(broker, topic) == 1
    set_state(broker, topic, 0, ALONE)
    client.receive()
    assert outcome(client) == (behind, 0, 1)


def test_acks_all_gives_up_waiting_after_the_timeout_of_the_request(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    set_in_sync(broker, topic, 1, 2)
    request = topic.produce_request(batch(b"a"))
    request.timeout_ms = 20
    before = errors_told(broker)
    answer = client.ask(9, request, ProduceResponse).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert errors_told(broker) - before == {"REQUEST_TIMED_OUT": 1}


def test_repeated_batches_are_answered_and_not_written_again(new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    numbered = [batch(b"%d" % n, producer_id=77, producer_epoch=0, base_sequence=n) for n in range(3)]
    assert [topic.produce(each).base_offset for each in numbered] == [0, 1, 2]
    assert topic.produce(numbered[1]).base_offset == 1
    gap = topic.produce(batch(b"x", producer_id=77, producer_epoch=0, base_sequence=9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(topic.fetch(offset=0)) == [b"0", b"1", b"2"]


# -- what takes long to judge --------------------------------------------------------------------------


def heavy(name: bytes, *, codec: Codec = Codec.GZIP, **how: object) -> bytes:
    """A batch that is small on the wire and unpacks to megabytes."""
    now = int(time.time() * 1000)
    records = [
        Record(timestamp=now, key=b"k", value=name),
        Record(timestamp=now, key=b"k", value=bytes(6 << 20)),
    ]
    return encode_batch(records, codec=codec, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda each: each.label)
@pytest.mark.parametrize(
    "configs",
    [{}, {"cleanup_policy": "compact"}, {"message_timestamp_before_max_ms": "3600000"}],
    ids=["default", "compacted", "bounded"],
)
def test_heavy_batches_are_stored_as_they_came(
    new_topic: Callable[..., RawTopic], codec: Codec, configs: dict[str, str]
) -> None:
    topic = new_topic(**configs)
    sent = heavy(b"first", codec=codec)
    answer = topic.produce(sent)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    records = topic.fetch(offset=0).records
    assert records is not None
    assert records[21:] == sent[21:]


def test_requests_behind_a_heavy_one_wait_for_it(
    client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    batches = [batch(b"0"), heavy(b"1"), batch(b"2"), heavy(b"3"), batch(b"4")]
    sent = [client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(each)) for each in batches]
    assert [int.from_bytes(client.receive()[:4], "big") for _ in sent] == sent
    assert [value for value in values(topic.fetch(offset=0)) if value and len(value) < 10] == [
        b"0", b"1", b"2", b"3", b"4",
    ]  # fmt: skip


def test_a_sequence_of_heavy_and_light_batches_stays_in_order(
    client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    light = [Record(timestamp=1, value=b"1")]
    batches = [
        heavy(b"0", base_sequence=0, producer_id=4711, producer_epoch=0),
        encode_batch(light, base_sequence=2, producer_id=4711, producer_epoch=0),
        heavy(b"2", base_sequence=3, producer_id=4711, producer_epoch=0),
    ]
    for each in batches:
        client.send_request(ApiKey.PRODUCE, 9, topic.produce_request(each))
    answers = [decode(ProduceResponse, 9, client.receive(), 5)[0] for _ in batches]
    found = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [(each.error_code, each.base_offset) for each in found] == [(0, 0), (0, 2), (0, 3)]


def test_a_heavy_batch_whose_client_is_gone_is_stored_all_the_same(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    with RawClient(broker.host, broker.port) as leaving:
        leaving.send_request(ApiKey.PRODUCE, 9, topic.produce_request(heavy(b"kept"), acks=0))
    deadline = time.monotonic() + 20
    while topic.fetch(offset=0).high_watermark < 2:
        assert time.monotonic() < deadline, "the batch did not come"
        time.sleep(0.01)


def test_a_heavy_batch_may_be_refused(new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    good = bytearray(heavy(b"x"))
    good[57:61] = (3).to_bytes(4, "big")
    good[23:27] = (2).to_bytes(4, "big")
    write_crc(good, 0, len(good))
    assert topic.produce(bytes(good)).error_code == ErrorCode.INVALID_RECORD
    assert topic.fetch(offset=0).high_watermark == 0


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_heavy_batches_are_compressed_anew_where_the_topic_says_so(
    new_topic: Callable[..., RawTopic], wanted: str
) -> None:
    topic = new_topic(compression_type=wanted)
    now = int(time.time() * 1000)
    records = [Record(timestamp=now, value=b"%d" % each * 40) for each in range(5000)]
    for codec in (Codec.NONE, Codec.ZSTD):
        answer = topic.produce(encode_batch(records, codec=codec))
        assert answer.error_code == 0
    stored = topic.fetch(offset=5000)
    assert stored.records is not None
    assert stored.records[22] & 7 == Codec.from_label(wanted)
    assert values(stored) == [record.value for record in records]


def test_one_that_would_be_too_large_uncompressed_is_refused(new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic(compression_type="uncompressed")
    assert topic.produce(heavy(b"x")).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_request_of_many_partitions_is_answered_in_its_order(new_topic: Callable[..., RawTopic]) -> None:
    count = 300
    topic = new_topic(partitions=count)
    request = topic.produce_request(batch(b"v"))
    data = request.topic_data[0]
    chosen = list(range(count - 1, -1, -1))
    data.partition_data = [
        PartitionProduceData(index=index, records=heavy(b"h") if index == 7 else batch(b"v%d" % index))
        for index in chosen
    ]
    found = topic.client.ask(9, request, ProduceResponse).responses[0].partition_responses
    assert [each.index for each in found] == chosen
    assert all((each.error_code, each.base_offset) == (0, 0) for each in found)
    assert values(topic.fetch(offset=0, partition=299)) == [b"v299"]


def test_a_request_of_too_many_partitions_closes_the_connection(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    request = topic.produce_request(batch(b"v"))
    request.topic_data[0].partition_data = [PartitionProduceData(index=0, records=None)] * 20_001
    with RawClient(broker.host, broker.port) as client:
        client.send_request(ApiKey.PRODUCE, 9, request)
        assert client.is_closed()


@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda each: each.label)
def test_batches_judged_twice_are_taken_once(new_topic: Callable[..., RawTopic], codec: Codec) -> None:
    """Light batches before a heavy one in the same request: they are begun on the loop and judged again."""
    topic = new_topic(partitions=6, message_timestamp_type="LogAppendTime")
    request = topic.produce_request(batch(b"v"))
    light = encode_batch([Record(timestamp=1, value=b"v")], codec=codec)
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=heavy(b"h") if index == 5 else light) for index in range(6)
    ]
    found = topic.client.ask(9, request, ProduceResponse).responses[0].partition_responses
    assert [(each.index, each.error_code) for each in found] == [(index, 0) for index in range(6)]


def test_a_heavy_batch_of_a_client_that_is_gone_need_not_be_judged(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    for _ in range(3):
        with RawClient(broker.host, broker.port) as leaving:
            leaving.send_request(ApiKey.PRODUCE, 9, topic.produce_request(heavy(b"gone")))
    assert topic.produce(batch(b"after")).error_code == 0


def test_a_request_of_very_many_partitions_is_read_written_and_answered_in_slices(
    monkeypatch: pytest.MonkeyPatch, new_topic: Callable[..., RawTopic]
) -> None:
    done: list[str] = []
    run = SlowLane.run

    async def noted(lane: SlowLane, work: Slices[object]) -> object:
        assert isinstance(work, GeneratorType)
        done.append(work.__name__)
        return await run(lane, work)

    topic = new_topic(partitions=2)
    monkeypatch.setattr(SlowLane, "run", noted)
    request = topic.produce_request(batch(b"v"))
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=batch(b"v")) for index in range(1000)
    ]
    found = topic.client.ask(9, request, ProduceResponse).responses[0].partition_responses
    assert [each.index for each in found] == list(range(1000))
    assert [each.error_code for each in found[:2]] == [0, 0]
    assert {each.error_code for each in found[2:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    # Requests of clients that have gone may be finished meanwhile, in between.
    steps = iter(done)
    for step in ("parse_produce_in_slices", "_slow_in_slices", "stage_in_slices", "settle_in_slices"):
        assert step in steps, f"{step} is missing, or not in its place: {done}"
    assert values(topic.fetch(offset=0, partition=1)) == [b"v"]


def test_a_wide_request_that_is_cut_short_closes_the_connection(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    request = topic.produce_request(batch(b"v"))
    request.topic_data[0].partition_data = [PartitionProduceData(index=0, records=batch(b"v"))] * 1000
    frame = encode_request(RequestHeader(ApiKey.PRODUCE, 9, 1, "c"), request)
    with RawClient(broker.host, broker.port) as client:
        client.send_frame(frame[4:-4])
        assert client.is_closed()
    assert topic.produce(batch(b"w")).base_offset == 0


def test_a_look_at_very_many_partitions_is_taken_in_slices(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    """Whether they take records just now is asked before a wide request is written."""
    topic = new_topic()

    def look(inner: Broker, index: int) -> tuple[int, bool]:
        handler = ProduceHandler(inner.produces, AppendGroup(inner.log_dir_failed))
        topics: list[TopicRecords] = [(topic.name, None, [(index, None)] * 10_000)]
        work = handler._takes_writes_in_slices(ParsedProduce(None, acks=1, timeout_ms=0, topics=topics))
        slices = 0
        while True:
            try:
                next(work)
                slices += 1
            except StopIteration as end:
                return slices, end.value

    slices, all_take = broker.call(lambda inner: look(inner, 0))
    assert all_take
    assert slices >= 10
    assert broker.call(lambda inner: look(inner, 7)) == (0, False)


def test_refused_batches_leave_nothing_to_the_garbage_collector(new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    broken = bytearray(batch(b"a", codec=Codec.GZIP))
    broken[-1] ^= 1
    write_crc(broken, 0, len(broken))
    refused = 200

    def refuse() -> None:
        for _ in range(refused):
            assert topic.produce(bytes(broken)).error_code == ErrorCode.INVALID_RECORD

    refuse()
    gc.disable()
    try:
        gc.collect()
        refuse()
        assert gc.collect() < refused
    finally:
        gc.enable()
