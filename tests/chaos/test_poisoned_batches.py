"""Batches whose header and checksum are right, and whose records are not, or are too many, or too large.

What a broker takes, every client must be able to read, for as long as it is in the log; and what it refuses
must cost it, and its other clients, next to nothing.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lz4.frame
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.chaos.amount import WHOLE, times
from tests.chaos.clients import Admin, Session, Writer
from tests.chaos.conftest import StartBroker
from tests.rigs.delivered import offset_of

from tidelog.errors import ErrorCode
from tidelog.records.batch import HEADER_SIZE, BatchHeader, iter_batches, parse_header
from tidelog.records.compression import Codec, compress, decompress
from tidelog.records.record import Record, batch_body, decode_batch, encode_batch, join_batch
from tidelog.records.varint import encode_varint
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.messages import fetch, list_offsets, produce

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MB = 1024 * 1024
CODECS = list(Codec)
WAIT_S = 60.0
PEAK_BYTES = 300 * MB
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "bounded": {"message_timestamp_before_max_ms": "3600000"},
    "zipped": {"compression_type": "gzip"},
    "unzipped": {"compression_type": "uncompressed"},
}


@pytest.fixture
def broker(broker_at: StartBroker) -> BrokerProcess:
    broker = broker_at(log_cleaner_enable="false").start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("neighbour")
    for name, configs in TOPICS.items():
        admin.create_topic(name, **configs)
    return broker


def now_ms() -> int:
    return int(time.time() * 1000)


def batch_of(body: bytes, count: int, codec: Codec, **changes: int) -> bytes:
    """A batch with this uncompressed body, and a header that says ``count`` records."""
    now = changes.pop("now", now_ms())
    header = parse_header(encode_batch([Record(timestamp=now, value=b"")]))
    header = header._replace(
        attributes=int(codec), record_count=count, last_offset_delta=count - 1, max_timestamp=now, **changes
    )
    return bytes(join_batch(header, compress(codec, body)))


def send(session: Session, topic: str, batch: bytes, acks: int = -1) -> ErrorCode:
    data = produce.PartitionProduceData(index=0, records=batch)
    request = produce.ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = session.ask(9, request, produce.ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


# -- poison ----------------------------------------------------------------------------------------------


def poisoned(chance: random.Random, codec: Codec) -> bytes:
    """A small batch of which, mostly, something is wrong inside."""
    now = now_ms()
    records = [
        Record(
            timestamp=now + chance.choice([0, 0, 1, -5]),
            key=chance.choice([None, b"", b"key"]),
            value=chance.choice([None, b"", b"value" * 9]),
            headers=chance.choice([(), (), (("h", b"1"), ("", None))]),
        )
        for _ in range(chance.randrange(1, 6))
    ]
    whole = encode_batch(records)
    header = parse_header(whole)
    body = bytearray(batch_body(whole, header))
    for _ in range(chance.choice([0, 1, 1, 2, 4])):
        at = chance.randrange(len(body)) if body else 0
        match chance.randrange(6):
            case 0:
                body[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del body[at:]
            case 2:
                body[at:at] = chance.randbytes(chance.randrange(1, 8))
            case 3:
                body[at : at + 1] = b"\xff" * chance.randrange(1, 11)
            case 4:
                del body[at : at + 1]
            case _:
                body += chance.randbytes(chance.randrange(1, 20))
    count = max(1, len(records) + chance.choice([0, 0, 0, 0, 1, -1, 1000]))
    header = header._replace(
        attributes=int(codec),
        record_count=count,
        last_offset_delta=count - 1,
        max_timestamp=header.max_timestamp + chance.choice([0, 0, 0, 5, -5, 1 << 40]),
    )
    payload = bytearray(compress(codec, bytes(body)))
    if chance.random() < 0.15 and payload:
        payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
    return bytes(join_batch(header, payload))


@pytest.mark.parametrize("codec", CODECS, ids=lambda each: each.label)
def test_what_is_taken_can_be_read_by_all(broker: BrokerProcess, chance: random.Random, codec: Codec) -> None:
    session = Session(broker.bootstrap)
    taken = dict.fromkeys(TOPICS, 0)
    codes: set[ErrorCode] = set()
    for _ in range(600):
        topic = chance.choice(list(TOPICS))
        code = send(session, topic, poisoned(chance, codec))
        codes.add(code)
        taken[topic] += code is ErrorCode.NONE
    assert codes <= {ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}
    assert ErrorCode.INVALID_RECORD in codes
    assert min(taken.values()) > 0, "nothing was taken, so nothing was checked"
    for topic in TOPICS:
        ours = [record.offset for record in _read(session, topic)]
        assert ours == sorted(ours)
        assert list(_librdkafka_offsets(broker, topic)) == ours
    assert "Traceback" not in broker.log


def _read(session: Session, topic: str) -> list[Record]:
    """All records, strictly decoded; the header's highest timestamp is theirs."""
    found: list[Record] = []
    offset = 0
    while True:
        wanted = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=16 * MB)
        request = fetch.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=16 * MB,
            topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
        )
        answer = session.ask(12, request, fetch.FetchResponse).responses[0].partitions[0]
        data = answer.records or b""
        batches: list[tuple[int, BatchHeader]] = list(iter_batches(data))
        if not batches:
            assert offset == answer.high_watermark
            return found
        for pos, header in batches:
            records = decode_batch(data, pos)
            assert max(record.timestamp for record in records) == header.max_timestamp
            found += records
            offset = header.next_offset


def _librdkafka_offsets(broker: BrokerProcess, topic: str) -> Iterator[int]:
    """What a consumer of another make reads, up to the end."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return
            yield offset_of(message)
        raise AssertionError(f"librdkafka did not come to the end of {topic}")
    finally:
        consumer.close()


# -- bombs -----------------------------------------------------------------------------------------------


def tiny_records(mebibytes: int, *, consecutive: bool) -> tuple[bytes, int]:
    """As many of the smallest records with a key as fit, and how many that is."""
    if not consecutive:
        record = bytes([12, 0, 0, 0, 0, 1, 0])
        count = mebibytes * MB // len(record)
        return record * count, count
    parts = []
    size = count = 0
    while size < mebibytes * MB:
        delta = encode_varint(count)
        parts.append(encode_varint(5 + len(delta)) + b"\0\0" + delta + b"\0\1\0")
        size += len(parts[-1])
        count += 1
    return b"".join(parts), count


def one_huge_record(size: int, codec: Codec) -> bytes:
    """One record of ``size`` zeros, compressed, built piece by piece where it is very large."""
    prefix = b"\0\0\0\0" + encode_varint(size)
    head = encode_varint(len(prefix) + size + 1) + prefix
    if codec is Codec.GZIP:
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        pieces = [packer.compress(head)]
        pieces += [packer.compress(bytes(MB)) for _ in range(size // MB)]
        pieces += [packer.compress(bytes(size % MB) + b"\0"), packer.flush()]
        return b"".join(pieces)
    if codec is Codec.LZ4:
        return bytes(lz4.frame.compress(head + bytes(size) + b"\0", block_linked=False, store_size=False))
    return compress(codec, head + bytes(size) + b"\0")


@contextmanager
def neighbour(broker: BrokerProcess) -> Iterator[list[float]]:
    """Somebody who produces and reads one record after the other meanwhile; how long each took."""
    times: list[float] = []
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        writer = Writer(broker.bootstrap, "neighbour")
        session = Session(broker.bootstrap)
        try:
            while not stop.is_set():
                begun = time.monotonic()
                offset = writer.write([b"n"])
                wanted = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
                request = fetch.FetchRequest(
                    max_wait_ms=0,
                    min_bytes=0,
                    topics=[fetch.FetchTopic(topic="neighbour", partitions=[wanted])],
                )
                session.ask(12, request, fetch.FetchResponse)
                times.append(time.monotonic() - begun)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield times
    finally:
        stop.set()
        thread.join(WAIT_S)
    assert not failures, failures
    assert times, "the neighbour was not served at all"


def list_by_time(session: Session, topic: str, timestamp: int) -> int:
    wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    answer = session.ask(7, request, list_offsets.ListOffsetsResponse).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.offset


BOMBS: dict[str, Callable[[Codec], bytes]] = {
    "tiny records, gaps": lambda codec: batch_of(*tiny_records(16, consecutive=False), codec),
    "tiny records": lambda codec: batch_of(*tiny_records(4, consecutive=True), codec),
    "tiny records, header ahead": lambda codec: batch_of(
        *tiny_records(4, consecutive=True), codec, base_timestamp=now_ms() + 3_000_000_000
    ),
    "a record of 10 MB": lambda codec: _with_payload(one_huge_record(10 * MB, codec), 1, codec),
    "a record of 100 MB": lambda codec: _with_payload(one_huge_record(100 * MB, codec), 1, codec),
    "a record of 200 MB": lambda codec: _with_payload(one_huge_record(200 * MB, codec), 1, codec),
    "more records than allowed": lambda codec: batch_of(b"", 4_000_001, codec),
}


def _with_payload(payload: bytes, count: int, codec: Codec) -> bytes:
    header = parse_header(batch_of(b"", count, codec))
    return bytes(join_batch(header, payload))


def targets(number: int) -> list[str]:
    """The topics that a batch is sent to: all of them, or two and, by its number, others each time."""
    names = list(TOPICS)
    return names if WHOLE else [names[(2 * number + each) % len(names)] for each in range(2)]


@pytest.mark.parametrize("codec", CODECS[1:], ids=lambda each: each.label)
def test_small_batches_that_hold_much_harm_nobody(broker: BrokerProcess, codec: Codec) -> None:
    """The broker's loop is watched as well: no step of it may take longer than 20 ms (see conftest)."""
    bombs = {name: make(codec) for name, make in BOMBS.items()}
    session = Session(broker.bootstrap, timeout_s=WAIT_S)
    sent: list[str] = []
    with neighbour(broker):
        for number, (name, batch) in enumerate(bombs.items()):
            if len(batch) > MB:
                # Snappy packs at most 21 to 1, and numbers that rise are hard to pack for all.
                continue
            sent.append(name)
            for topic in targets(number):
                code = send(session, topic, batch)
                assert code in (
                    ErrorCode.NONE,
                    ErrorCode.INVALID_RECORD,
                    ErrorCode.INVALID_TIMESTAMP,
                    ErrorCode.MESSAGE_TOO_LARGE,
                ), f"{name} on {topic}"
                if "allowed" in name or "200 MB" in name:
                    assert code is ErrorCode.MESSAGE_TOO_LARGE
        for topic in TOPICS:
            for _ in range(times(1, 3)):
                list_by_time(session, topic, now_ms() + 100)
                list_by_time(session, topic, -3)
    assert len(sent) >= 2, sent
    assert broker.peak_rss_bytes < PEAK_BYTES
    assert "Traceback" not in broker.log


@pytest.mark.long
def test_a_record_of_a_gigabyte_in_a_megabyte_is_too_large(broker: BrokerProcess) -> None:
    payload = one_huge_record(1_000_000_000, Codec.GZIP)
    assert HEADER_SIZE + len(payload) < MB
    session = Session(broker.bootstrap, timeout_s=WAIT_S)
    with neighbour(broker):
        for topic in targets(0):
            assert send(session, topic, _with_payload(payload, 1, Codec.GZIP)) is ErrorCode.MESSAGE_TOO_LARGE
    assert broker.peak_rss_bytes < PEAK_BYTES


def test_many_heavy_batches_at_once_are_judged_one_slice_at_a_time(broker: BrokerProcess) -> None:
    batch = batch_of(*tiny_records(4, consecutive=True), Codec.GZIP)
    codes: list[ErrorCode] = []

    def attack() -> None:
        session = Session(broker.bootstrap, timeout_s=WAIT_S)
        codes.append(send(session, "plain", batch))

    with neighbour(broker):
        attackers = [threading.Thread(target=attack) for _ in range(20)]
        for each in attackers:
            each.start()
        for each in attackers:
            each.join(WAIT_S)
    assert codes == [ErrorCode.NONE] * 20
    assert broker.peak_rss_bytes < PEAK_BYTES


def test_empty_gzip_members_without_end_are_refused(broker: BrokerProcess) -> None:
    """Behind the records nothing but empty members, which would cost time and give no bytes."""
    member = compress(Codec.GZIP, b"")
    body = compress(Codec.GZIP, encode_batch([Record(timestamp=0)])[HEADER_SIZE:])
    payload = body + member * ((900_000 - len(body)) // len(member))
    assert len(decompress(Codec.GZIP, payload)) == len(decompress(Codec.GZIP, body))
    session = Session(broker.bootstrap, timeout_s=WAIT_S)
    with neighbour(broker):
        assert send(session, "plain", _with_payload(payload, 1, Codec.GZIP)) is ErrorCode.INVALID_RECORD


def test_a_request_of_a_hundred_partitions_of_a_megabyte_each_is_written_in_slices(
    broker_at: StartBroker,
) -> None:
    broker = broker_at().start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("neighbour")
    admin.create_topic("wide", 80)
    now = now_ms()
    batch = encode_batch([Record(timestamp=now, value=bytes(1000)) for _ in range(1000)])
    data = [produce.PartitionProduceData(index=each, records=batch) for each in range(80)]
    request = produce.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[produce.TopicProduceData(name="wide", partition_data=data)],
    )
    session = Session(broker.bootstrap, timeout_s=WAIT_S)
    with neighbour(broker):
        answer = session.ask(9, request, produce.ProduceResponse)
    assert [each.error_code for each in answer.responses[0].partition_responses] == [0] * 80
