"""``send_batch`` against a real broker: nothing of a record is lost, and no record without an outcome.

librdkafka and kafka-python are the witnesses of what was written.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog import (
    Admin,
    AsyncProducer,
    BatchDeliveryError,
    BatchResult,
    BatchSourceError,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    Producer,
    ProducerRecord,
    RequestTimeoutError,
    TransactionAbortableError,
    TransactionStateError,
)
from tidelog.client.producer._send_batch.batch_input import InvalidRecordError
from tidelog.client.producer.errors import TransactionAbortedError
from tidelog.client.serialization import SerializationError
from tidelog.ids import TopicPartition
from tidelog.testing.broker_process import BrokerProcess

WAIT_S = 60

Seen = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""Offset, key, value, headers and timestamp of a record."""


@pytest.fixture
def new_topic(bootstrap: str, topic_name: Callable[[], str]) -> Iterator[Callable[..., str]]:
    with Admin(bootstrap_servers=bootstrap) as admin:

        def create(partitions: int = 1, **config: str) -> str:
            name = topic_name()
            admin.create_topics([NewTopic(name, partitions, configs=config)])
            return name

        yield create


def send(face: str, bootstrap: str, topic: str, records: Any, **options: Any) -> BatchResult:
    """The result of a batch, by a producer of its own."""
    timeout = options.pop("timeout", None)
    if face == "sync":
        with Producer(bootstrap_servers=bootstrap, **options) as producer:
            return producer.send_batch(topic, records, timeout=timeout)

    async def run() -> BatchResult:
        async with AsyncProducer(bootstrap_servers=bootstrap, **options) as producer:
            return await producer.send_batch(topic, records, timeout=timeout)

    return asyncio.run(run())


faces = pytest.mark.parametrize("face", ["sync", "asyncio"])


def values(bootstrap: str, topic: str, partitions: int = 1, **options: Any) -> list[list[bytes | None]]:
    """The values of all records, by partition."""
    found: list[list[bytes | None]] = [[] for _ in range(partitions)]
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **options) as consumer:
        assigned = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        while any(consumer.position(each) < ends[each] for each in assigned):
            for record in consumer.poll(1):
                found[record.partition].append(record.value)
    return found


# What foreign readers see


class Witnesses:
    """Consumers of other libraries on one partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._librdkafka = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
        self._librdkafka.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        self._kafka_python = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1000
        )
        self._kafka_python.assign([kafka.TopicPartition(topic, 0)])

    def next(self, count: int) -> tuple[list[Seen], list[Seen]]:
        """The next records, as each sees them."""
        first: list[Seen] = []
        while len(first) < count:
            for message in self._librdkafka.consume(count - len(first), WAIT_S):
                assert message.error() is None
                headers: Any = message.headers() or []
                offset, key, value = message.offset(), message.key(), message.value()
                first.append((offset or 0, key, value, headers, message.timestamp()[1]))
        second: list[Seen] = [
            (each.offset, each.key, each.value, list(each.headers), each.timestamp)
            for each in itertools.islice(self._kafka_python, count)
        ]
        return first, second

    def close(self) -> None:
        self._librdkafka.close()
        self._kafka_python.close()


small_bytes = st.none() | st.binary(max_size=20)
# librdkafka shows a header's name up to its first NUL.
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
headers = st.lists(st.tuples(names, small_bytes), max_size=4)
batches = st.lists(
    st.tuples(small_bytes, small_bytes, headers, st.integers(0, 4_000_000_000_000)), min_size=1, max_size=30
)
FORMS: dict[str, Callable[[str, tuple[Any, ...]], Any]] = {
    "tuple": lambda topic, parts: parts,
    "mapping": lambda topic, parts: dict(
        zip(("key", "value", "headers", "timestamp_ms"), parts, strict=True)
    ),
    "record": lambda topic, parts: ProducerRecord(topic, parts[1], parts[0], None, parts[3], parts[2]),
}


def table_of(batch: Sequence[tuple[Any, ...]]) -> pa.Table:
    """The same records as a table."""
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = list(zip(*batch, strict=True))
    pairs = [[{"key": name, "value": value} for name, value in each] for each in columns[2]]
    return pa.table(
        {
            "key": pa.array(columns[0], pa.binary()),
            "value": pa.array(columns[1], pa.binary()),
            "headers": pa.array(pairs, pa.list_(pair)),
            "timestamp": pa.array(columns[3], pa.int64()),
        }
    )


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_foreign_readers_see_every_part_of_every_record(
    bootstrap: str, new_topic: Callable[..., str], codec: str
) -> None:
    """Null and empty keys and values differ, headers keep order, duplicates and nulls, times stay."""
    topic = new_topic(1, **{"message.timestamp.after.max.ms": str(2**62)})
    witnesses = Witnesses(bootstrap, topic)
    options: dict[str, Any] = {"compression_type": codec}
    with Producer(bootstrap_servers=bootstrap, **options) as producer:

        @settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(batches, st.sampled_from([*FORMS, "table"]))
        def check(batch: list[tuple[Any, ...]], form: str) -> None:
            records = table_of(batch) if form == "table" else [FORMS[form](topic, each) for each in batch]
            result = producer.send_batch(topic, records).raise_for_failures()
            assert [outcome.index for outcome in result] == list(range(len(batch)))
            wanted = sorted((outcome.offset, *parts) for outcome, parts in zip(result, batch, strict=True))
            for seen in witnesses.next(len(batch)):
                assert sorted(seen, key=lambda each: each[0]) == wanted

        try:
            check()
        finally:
            witnesses.close()


# Failures


@faces
def test_a_record_that_cannot_be_sent_fails_alone_and_by_its_index(
    bootstrap: str, new_topic: Callable[..., str], face: str
) -> None:
    topic = new_topic(2)
    records: list[Any] = [
        {"value": b"0", "partition": 0},
        {"value": b"x" * 3_000_000, "partition": 0},
        {"value": b"2", "partition": 1},
        {"value": "a text", "partition": 0},
        {"value": b"4", "partition": 7},
        {"valeu": b"5"},
        {"value": b"6", "headers": [(None, b"")]},
        (b"k",),
        {"value": b"8", "timestamp_ms": "today"},
        ProducerRecord("another", b"9"),
        ProducerRecord(topic, b"10", partition=[]),  # type: ignore[arg-type]
        {"value": b"11", "partition": 0},
    ]
    result = send(face, bootstrap, topic, records)
    assert len(result) == len(records)
    assert (result.stored_count, result.failed_count) == (3, 9)
    assert [each.index for each in result.failures()] == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    errors = {each.index: each.error for each in result.failures()}
    assert isinstance(errors[1], KafkaError)
    assert errors[1].code is ErrorCode.MESSAGE_TOO_LARGE
    assert isinstance(errors[3], SerializationError)
    assert "has the partitions 0 to 1, and no partition 7" in str(errors[4])
    assert "no field 'valeu'" in str(errors[5])
    assert "a header's name is a str" in str(errors[6])
    assert "2 to 5 fields" in str(errors[7])
    assert isinstance(errors[8], TypeError | ValueError)
    assert "send each topic by its own call" in str(errors[9])
    assert isinstance(errors[10], InvalidRecordError)
    assert [(result[at].partition, result[at].offset) for at in (0, 2, 11)] == [(0, 0), (1, 0), (0, 1)]
    assert values(bootstrap, topic, 2) == [[b"0", b"11"], [b"2"]]
    with pytest.raises(BatchDeliveryError, match=r"9 of 12 records .* were not stored, the first at index 1"):
        result.raise_for_failures()


@faces
def test_rows_that_cannot_be_sent_fail_alone_and_by_their_index(
    bootstrap: str, new_topic: Callable[..., str], face: str
) -> None:
    topic = new_topic(2)
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    rows = pa.table(
        {
            "key": pa.array(["", None, "k", None, None, "k"]),
            "value": pa.array([b"0", b"x" * 3_000_000, b"2", b"3", b"4", b"5"]),
            "partition": pa.array([0, 0, 7, 1, 1, 0], pa.int16()),
            "headers": pa.array([None, None, None, [{"key": None, "value": b""}], [], None], pa.list_(pair)),
        }
    )
    result = send(face, bootstrap, topic, rows)
    assert [each.index for each in result.failures()] == [1, 2, 3]
    assert [result[at].offset for at in (0, 4, 5)] == [0, 0, 1]
    assert values(bootstrap, topic, 2) == [[b"0", b"5"], [b"4"]]
    assert result.to_arrow()["error"].null_count == 3


@faces
def test_a_row_with_an_invalid_timestamp_fails_alone(
    bootstrap: str, new_topic: Callable[..., str], face: str
) -> None:
    topic = new_topic()
    times = pa.array([5, -7, None, 6], pa.timestamp("ms"))
    rows = pa.table({"value": [b"0", b"1", b"2", b"3"], "timestamp": times})
    result = send(face, bootstrap, topic, rows)
    assert [(each.index, str(each.error)) for each in result.failures()] == [
        (1, "a record cannot have the timestamp -7")
    ]
    assert values(bootstrap, topic) == [[b"0", b"2", b"3"]]


@faces
@pytest.mark.parametrize("timeout", ["5", float("nan")])
def test_a_timeout_that_is_not_a_number_is_refused_before_anything_is_sent(
    bootstrap: str, new_topic: Callable[..., str], face: str, timeout: Any
) -> None:
    topic = new_topic()
    with pytest.raises(TypeError, match=r"send_batch\(\) takes timeout as a number of seconds"):
        send(face, bootstrap, topic, [(None, b"x")], timeout=timeout)
    assert values(bootstrap, topic) == [[]]


@faces
def test_records_that_the_broker_refuses_fail_and_the_others_are_stored(
    bootstrap: str, new_topic: Callable[..., str], face: str
) -> None:
    topic = new_topic(1, **{"max.message.bytes": "2000"})
    records = [{"value": b"%d" % index * (5000 if index == 50 else 10)} for index in range(100)]
    result = send(face, bootstrap, topic, records, linger_ms=1000)
    assert len(result) == 100
    assert [each.index for each in result.failures()] == [50]
    assert values(bootstrap, topic)[0] == [each["value"] for index, each in enumerate(records) if index != 50]
    assert [each.offset for each in result] == [*range(50), -1, *range(50, 99)]


def test_a_refused_batch_fails_with_all_of_its_records_and_no_other(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2, **{"message.timestamp.before.max.ms": "1000"})
    records = [
        {"value": b"%d" % index, "partition": index % 2, "timestamp_ms": 5 if index == 4 else None}
        for index in range(10)
    ]
    result = send("sync", bootstrap, topic, records, linger_ms=1000)
    assert [each.index for each in result.failures()] == [0, 2, 4, 6, 8]
    assert "another record of the same batch" in str(result[0].error)
    assert values(bootstrap, topic, 2) == [[], [b"1", b"3", b"5", b"7", b"9"]]


@faces
def test_a_broker_that_dies_leaves_no_record_without_an_outcome(tmp_path: Path, face: str) -> None:
    """What is reported as stored is in the log once, in order; everything else is reported as failed."""
    with BrokerProcess(tmp_path / "data") as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 2)])

        def records() -> Iterator[dict[str, Any]]:
            for index in range(20_000):
                if index == 15_000:
                    broker.kill()
                yield {"value": b"%d" % index, "partition": index % 2}

        result = send(
            face,
            broker.bootstrap,
            "t",
            records(),
            delivery_timeout_ms=3000,
            request_timeout_ms=1000,
            linger_ms=0,
            batch_size=1000,
            buffer_memory=100_000,
            max_block_ms=5000,
        )
        assert len(result) == 20_000
        stored = [each for each in result if each.is_stored]
        assert stored
        assert result.failed_count == 20_000 - len(stored) > 0
        assert all(each.error is not None and each.offset == -1 for each in result.failures())
        broker.start()
        logs = values(broker.bootstrap, "t", 2)
        for outcome in stored:
            assert logs[outcome.partition][outcome.offset] == b"%d" % outcome.index
        for log in logs:
            numbers = [int(value or b"") for value in log]
            assert numbers == sorted(set(numbers))


@faces
def test_after_the_timeout_the_rest_fails_and_is_counted(tmp_path: Path, face: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1)])

        def records() -> Iterator[tuple[None, bytes]]:
            for index in range(1000):
                if index == 10 and broker.alive:
                    broker.kill()
                yield (None, b"%d" % index)

        result = send(
            face,
            broker.bootstrap,
            "t",
            records(),
            timeout=1.0,
            # Nothing is sent before the broker is gone.
            linger_ms=5000,
            delivery_timeout_ms=6000,
            request_timeout_ms=1000,
        )
        assert len(result) == 1000
        assert result.failed_count == 1000
        assert {type(each.error) for each in result.failures()} == {RequestTimeoutError}
        broker.restart()


@faces
def test_no_row_of_a_table_is_sent_after_the_timeout(
    bootstrap: str, new_topic: Callable[..., str], face: str
) -> None:
    topic = new_topic()
    result = send(face, bootstrap, topic, pa.table({"value": [b"1", b"2"]}), timeout=0)
    assert {type(each.error) for each in result} == {RequestTimeoutError}
    assert (len(result), values(bootstrap, topic)) == (2, [[]])


def test_an_input_that_fails_reports_what_was_sent_before(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()

    def records() -> Iterator[tuple[None, bytes]]:
        yield (None, b"1")
        yield (None, b"2")
        raise OSError("the disk is gone")

    with pytest.raises(BatchSourceError, match="after 2 records: the disk is gone") as caught:
        send("sync", bootstrap, topic, records())
    assert [each.offset for each in caught.value.result] == [0, 1]
    assert isinstance(caught.value.__cause__, OSError)


# Transactions


def test_a_batch_of_an_aborted_transaction_is_reported_as_failed(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    options: dict[str, Any] = {"transactional_id": topic, "linger_ms": 60_000}
    with Producer(bootstrap_servers=bootstrap, **options) as producer:
        producer.init_transactions()
        with pytest.raises(TransactionStateError):
            producer.send_batch(topic, [(None, b"x")])
        producer.begin_transaction()

        def records() -> Iterator[tuple[None, bytes]]:
            for index in range(10):
                if index == 6:
                    producer.abort_transaction()
                yield (None, b"%d" % index)

        result = producer.send_batch(topic, records())
        assert [each.index for each in result.failures()] == list(range(10))
        assert {type(result[at].error) for at in range(6)} == {TransactionAbortedError}
        assert {type(result[at].error) for at in range(6, 10)} == {TransactionStateError}
        producer.begin_transaction()
        producer.send_batch(topic, [(None, b"good")]).raise_for_failures()
        producer.commit_transaction()
    assert values(bootstrap, topic, isolation_level="read_committed") == [[b"good"]]


def test_a_table_of_an_aborted_transaction_has_an_end(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """Its batch was never closed, so that nothing knew how many rows it holds."""
    topic = new_topic()
    options: dict[str, Any] = {"transactional_id": topic, "linger_ms": 60_000}
    with Producer(bootstrap_servers=bootstrap, **options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send_arrow(pa.table({"value": [b"1", b"2"]}), topic)
        producer.abort_transaction()
        assert isinstance(future.exception(WAIT_S), TransactionAbortedError)


def test_a_slice_and_the_end_of_a_result_are_read_as_of_a_list(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    result = send("sync", bootstrap, new_topic(), [(None, b"%d" % number) for number in range(5)])
    assert [each.offset for each in result[1:3]] == [1, 2]
    assert result[-1] == result[4]
    assert result.to_arrow()["offset"].to_pylist() == list(range(5))
    with pytest.raises(IndexError, match="no record 5 among 5"):
        result[5]


@faces
@pytest.mark.parametrize("as_table", [False, True])
def test_a_transaction_with_a_failed_record_cannot_be_committed(
    bootstrap: str, new_topic: Callable[..., str], face: str, as_table: bool
) -> None:
    topic = new_topic()
    bad: Any = [(None, b"1"), (None, b"x" * 3_000_000)]
    if as_table:
        bad = pa.table({"value": [value for _, value in bad]})
    if face == "sync":
        with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            assert producer.send_batch(topic, bad).failed_count >= 1
            with pytest.raises(TransactionAbortableError):
                producer.commit_transaction()
            producer.abort_transaction()
    else:

        async def run() -> None:
            async with AsyncProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                assert (await producer.send_batch(topic, bad)).failed_count >= 1
                with pytest.raises(TransactionAbortableError):
                    await producer.commit_transaction()
                await producer.abort_transaction()

        asyncio.run(run())
    assert values(bootstrap, topic, isolation_level="read_committed") == [[]]


# Any amount, any form


@faces
def test_a_generator_larger_than_the_buffer_is_sent_in_order(
    bootstrap: str, new_topic: Callable[..., str], face: str
) -> None:
    topic = new_topic(3)
    count = 30_000
    records = ({"value": b"%d" % index, "key": b"%d" % (index % 7)} for index in range(count))
    result = send(face, bootstrap, topic, records, buffer_memory=200_000, batch_size=8000)
    assert (len(result), result.failed_count) == (count, 0)
    logs = values(bootstrap, topic, 3)
    assert sum(map(len, logs)) == count
    for outcome in result:
        assert logs[outcome.partition][outcome.offset] == b"%d" % outcome.index
    for log in logs:
        assert log == sorted(log, key=lambda value: int(value or b""))


@faces
def test_a_reader_larger_than_the_buffer_is_sent_and_every_row_is_found(
    bootstrap: str, new_topic: Callable[..., str], face: str
) -> None:
    topic = new_topic(3)
    schema = pa.schema([("key", pa.string()), ("value", pa.large_binary()), ("partition", pa.int64())])

    def parts() -> Iterator[pa.RecordBatch]:
        for first in range(0, 30_000, 10_000):
            numbers = range(first, first + 10_000)
            yield pa.record_batch(
                [
                    pa.array([None if each % 5 == 0 else str(each % 11) for each in numbers]),
                    pa.array([b"%d" % each for each in numbers], pa.large_binary()),
                    pa.array([each % 3 if each % 4 == 0 else None for each in numbers], pa.int64()),
                ],
                schema=schema,
            )

    reader = pa.RecordBatchReader.from_batches(schema, parts())
    result = send(face, bootstrap, topic, reader, buffer_memory=200_000, batch_size=8000)
    assert (len(result), result.failed_count) == (30_000, 0)
    logs = values(bootstrap, topic, 3)
    for outcome in result:
        assert logs[outcome.partition][outcome.offset] == b"%d" % outcome.index
        if outcome.index % 4 == 0:
            assert outcome.partition == outcome.index % 3


def test_tables_choose_the_same_partitions_as_records(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(5)
    keys = [b"%d" % number for number in range(200)]
    one = send("sync", bootstrap, topic, [(key, b"") for key in keys])
    other = send("sync", bootstrap, topic, pa.table({"key": keys}))
    assert [each.partition for each in one] == [each.partition for each in other]


def test_data_frames_and_consumed_records_are_sent(bootstrap: str, new_topic: Callable[..., str]) -> None:
    first, second = new_topic(), new_topic()
    frames: list[Any] = [
        pl.DataFrame({"key": ["a"], "value": ["polars"]}),
        pd.DataFrame({"key": ["a"], "value": ["pandas"]}),
        pa.record_batch({"value": pa.array(["arrow"]).dictionary_encode()}),
    ]
    for frame in frames:
        send("sync", bootstrap, first, frame).raise_for_failures()
    assert values(bootstrap, first) == [[b"polars", b"pandas", b"arrow"]]
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(first, 0)])
        records = list(itertools.islice(consumer.records(WAIT_S), 3))
    send("sync", bootstrap, second, records).raise_for_failures()
    assert values(bootstrap, second) == [[b"polars", b"pandas", b"arrow"]]


def test_an_asynchronous_input_is_read(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()

    async def records() -> AsyncIterator[tuple[None, bytes]]:
        for number in range(10):
            await asyncio.sleep(0)
            yield (None, b"%d" % number)

    result = send("asyncio", bootstrap, topic, records())
    assert [each.offset for each in result] == list(range(10))


def test_records_without_acknowledgment_are_stored_at_an_unknown_offset(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    result = send("sync", bootstrap, new_topic(), [(None, b"x")], acks="0", enable_idempotence=False)
    assert [(each.offset, each.error) for each in result] == [(-1, None)]


INVALID: list[tuple[Any, str]] = [
    (b"bytes", "got bytes"),
    ({"value": b"x"}, "put a single record into a list"),
    (ProducerRecord("t", b"x"), "put a single record into a list"),
    (5, "got int"),
    (pa.table({"value": [b"x"], "offset": [1]}), "no column 'offset'"),
    (pa.table({"timestamp": [1]}), "a key or a value column"),
    (pa.table({"value": [1.5]}), "the value column holds double"),
    (pa.table({"value": [b"x"], "timestamp": ["now"]}), "the timestamp column holds string"),
    (pa.table({"value": [b"x"], "partition": ["0"]}), "the partition column holds string"),
    (pa.table({"value": [b"x"], "headers": [["a"]]}), "the headers column holds list"),
    (pa.Table.from_arrays([pa.array([b"x"])] * 2, ["value", "value"]), "several columns 'value'"),
    (pa.array([b"x"]), "a table with a key or a value column, got BinaryArray"),
    (pl.Series("value", [b"x"]), "a table with a key or a value column, got Series"),
    (pd.DataFrame({"value": [b"x", b"y"]}).iloc[[1]], r"drop it with reset_index\(drop=True\)"),
]


@faces
@pytest.mark.parametrize(("records", "message"), INVALID, ids=[message for _, message in INVALID])
def test_an_input_that_is_no_collection_of_records_is_refused(
    bootstrap: str, face: str, records: Any, message: str, shared_topic: str
) -> None:
    with pytest.raises(ValueError, match=message):
        send(face, bootstrap, shared_topic, records)


@pytest.fixture(scope="module")
def shared_topic(bootstrap: str) -> str:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("send-batch-refusals", 1)])
    return "send-batch-refusals"


def test_a_batch_cannot_be_sent_from_a_callback(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    seen: list[Exception] = []
    with Producer(bootstrap_servers=bootstrap) as producer:

        def delivered(metadata: object, error: object) -> None:
            try:
                producer.send_batch(topic, [(None, b"x")])
            except Exception as raised:
                seen.append(raised)

        producer.send(topic, b"x", on_delivery=delivered)
        producer.flush()
    assert [str(each) for each in seen] == ["a delivery callback cannot wait for a batch: call send there"]


def test_an_empty_batch_is_empty(bootstrap: str, shared_topic: str) -> None:
    empty: list[Iterable[Any]] = [[], pa.table({"value": pa.array([], pa.binary())})]
    for records in empty:
        result = send("sync", bootstrap, shared_topic, records)
        assert (len(result), list(result.failures()), result.to_arrow().num_rows) == (0, [], 0)
