"""Records that pipelines write from Spark's tasks: once, whatever comes again, and nothing on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.integration.pipeline_traffic import read_all

from tidelog import Admin, NewTopic
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.partition_work import Batches, Parcel, work_on_parts
from tidelog.spark.sinks.record_sink import (
    RECORD_SCHEMA,
    NamedBatch,
    RecordSink,
    write_records,
)
from tidelog.spark.write.epoch_task import ReplayRefusedError
from tidelog.spark.write.write_message import WriteOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def topic(bootstrap: str, topic_name: Callable[[], str]) -> str:
    name = topic_name()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1)])
    return name


def records(topic: str, *values: bytes) -> pa.RecordBatch:
    rows = [{"topic": topic, "value": value} for value in values]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def sink(bootstrap: str, topic: str, version: int, run: str) -> RecordSink:
    settings = PipelineSettings(bootstrap, Path())
    return RecordSink(settings, NamedBatch(f"app-{topic}", version, run, streaming=True))


def test_a_batch_is_written_once_in_the_same_run_or_in_another(bootstrap: str, topic: str) -> None:
    def write(version: int, run: str, *values: bytes) -> WriteOutcome:
        opened = sink(bootstrap, topic, version, run)
        written = opened.write(0, [records(topic, *values)])
        assert opened.finish([opened.told(written)]) == len(values)
        return written.outcome

    assert write(4, "first", b"a", b"b") is WriteOutcome.PREPARED
    assert write(4, "first", b"b", b"a") is WriteOutcome.FOUND
    assert write(5, "first", b"c") is WriteOutcome.COMMITTED
    assert write(5, "second", b"c") is WriteOutcome.FOUND
    # Batches without records leave no trace.
    assert write(9, "second", b"d") is WriteOutcome.PREPARED
    with pytest.raises(ReplayRefusedError, match="other rows now"):
        write(9, "second", b"e")
    assert [record.value for record in read_all(bootstrap, topic)] == [b"a", b"b", b"c", b"d"]


def test_an_attempt_that_hangs_is_fenced_before_the_next_one_asks_for_its_records(
    bootstrap: str, topic: str
) -> None:
    order: list[str] = []

    def hanging() -> Iterator[pa.RecordBatch]:
        yield records(topic, b"old")
        order.append("hangs")
        opened = sink(bootstrap, topic, 0, "new")
        opened.finish([opened.told(opened.write(0, fresh()))])
        yield records(topic, b"too late")

    def fresh() -> Iterator[pa.RecordBatch]:
        order.append("asked")
        yield records(topic, b"new")

    with pytest.raises(Exception, match="was fenced"):
        sink(bootstrap, topic, 0, "old").write(0, hanging())
    assert order == ["hangs", "asked"]
    assert [record.value for record in read_all(bootstrap, topic)] == [b"new"]


def _pack(batches: Batches) -> Iterator[Parcel]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield Parcel(number % 3, "number", str(number).encode())


def _unpack(part: int, parcels: Iterator[Parcel]) -> Iterator[str]:
    yield f"{part}: {sorted(int(parcel.data) for parcel in parcels)}"


@pytest.mark.slow
def test_tasks_write_frames_and_work_on_parts(spark: SparkSession, bootstrap: str, topic: str) -> None:
    assert sorted(work_on_parts(spark.range(7), _pack, 5, _unpack)) == [
        "0: [0, 3, 6]",
        "1: [1, 4]",
        "2: [2, 5]",
    ]
    rows = spark.createDataFrame(
        [(topic, None, b"x", None), (topic, b"k", b"y", [("reason", b"no")])],
        "topic STRING, key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )
    assert write_records(rows, sink(bootstrap, topic, 0, "run")) == 2
    assert write_records(rows, sink(bootstrap, topic, 0, "another")) == 2
    assert write_records(rows.where("false"), sink(bootstrap, topic, 1, "run")) == 0
    found = sorted(read_all(bootstrap, topic), key=lambda record: record.value)
    assert [(record.value, record.headers) for record in found] == [
        (b"x", ()),
        (b"y", (("reason", b"no"),)),
    ]
