"""The task of collect that writes the letters of a micro-batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.partition_work import Parcel, to_bytes
from tidelog.spark.sinks.record_sink import RECORD_SCHEMA, RecordSink, single_batch
from tidelog.spark.write.write_message import WriteName, WriteOutcome, WrittenTask
from tidelog_rewards.jobs.collect.task_work import (
    FILES,
    LETTERS,
    QUALITY,
    files_of,
    report_of,
    told_quality,
    writing_letters,
)


class Delivery:
    """Parcels as Spark brings them, counted."""

    def __init__(self, parcels: Iterable[Parcel]) -> None:
        self._parcels = parcels
        self.brought = 0

    def __iter__(self) -> Iterator[Parcel]:
        for parcel in self._parcels:
            self.brought += 1
            yield parcel


class WatchingSink(RecordSink):
    """Notes each letter that comes, with how many parcels there were by then."""

    def __init__(self, directory: Path, delivery: Delivery) -> None:
        super().__init__(PipelineSettings("127.0.0.1:1", directory), single_batch("test"))
        self._delivery = delivery
        self.seen: list[tuple[bytes, int]] = []

    def write(self, task: int, records: Iterable[pa.RecordBatch]) -> WrittenTask:
        for batch in records:
            self.seen += [(key, self._delivery.brought) for key in batch.column("key").to_pylist()]
        name = WriteName("test", 0, "run", task, streaming=False)
        return WrittenTask(name, ContentDigest(len(self.seen)), WriteOutcome.COMMITTED, None)


def letters(*keys: bytes) -> Parcel:
    rows = [{"topic": "letters", "key": key} for key in keys]
    return Parcel(0, LETTERS, to_bytes(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)))


def test_letters_are_written_as_they_come_in_their_order_and_the_rest_is_answered(tmp_path: Path) -> None:
    delivery = Delivery(
        [
            Parcel(0, QUALITY, b"q1"),
            letters(b"a", b"b"),
            letters(b"c"),
            Parcel(0, FILES, b"f1"),
            letters(b"d"),
            Parcel(0, QUALITY, b"q2"),
        ]
    )
    sink = WatchingSink(tmp_path, delivery)
    answers = list(writing_letters(sink)(0, iter(delivery)))
    # Nobody waits for the rest: a batch of nothing but letters is larger than memory.
    assert sink.seen == [(b"a", 2), (b"b", 2), (b"c", 3), (b"d", 5)]
    assert (told_quality(answers), files_of(answers)) == (["q1", "q2"], ["f1"])
    assert len(report_of(answers)) == 1
    assert sink.finish(report_of(answers)) == 4


def test_without_letters_nothing_is_written(tmp_path: Path) -> None:
    delivery = Delivery([Parcel(0, QUALITY, b"q"), Parcel(0, FILES, b"f")])
    sink = WatchingSink(tmp_path, delivery)
    answers = list(writing_letters(sink)(0, iter(delivery)))
    assert [kind for kind, _ in map(json.loads, answers)] == [QUALITY, FILES]
    assert sink.seen == []
