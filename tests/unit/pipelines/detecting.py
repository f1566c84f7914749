"""Micro-batches of a detecting pipeline without Spark: its tasks one after the other, and a state on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tidelog.pipelines.framework.alert_state import newest_event_us, open_layout
from tidelog.pipelines.framework.alert_tasks import Answer, Batch, BatchTask, Detector

START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
WRITTEN = START + timedelta(days=2)
RECORDS = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
    }
)
Value = bytes | None


class Detecting:
    """A stream that is fed by hand."""

    def __init__(self, directory: Path, detector: Detector, *, buckets: int | None = None) -> None:
        self.directory = directory
        self.detector = detector
        self.buckets = open_layout(directory, detector.schema, buckets).buckets
        self.batch_id = 0
        self.offset = 0
        self.answers: list[Answer] = []

    def feed(self, *values: Value, tasks: int = 2) -> dict[bytes, Any]:
        """Work off a batch of values; its alerts by id."""
        records = self.records(values)
        self.offset += len(values)
        found = self.work_off(records, tasks)
        self.batch_id += 1
        return {key: json.loads(value) for key, value in found}

    def records(self, values: Sequence[Value]) -> list[tuple[Any, ...]]:
        topic = self.detector.kind.topic
        return [(topic, 0, self.offset + at, WRITTEN, b"k", value) for at, value in enumerate(values)]

    def work_off(self, records: Sequence[tuple[Any, ...]], tasks: int = 2) -> list[tuple[bytes, bytes]]:
        """The batch of the present number, as so many tasks would have it; keys and values of alerts."""
        newest_us = newest_event_us(self.directory, self.buckets, self.batch_id)
        task = BatchTask(
            self.detector,
            self.directory,
            self.buckets,
            Batch(self.batch_id, newest_us - self.detector.watermark_delay_us),
            None,
        )
        shares: list[pa.RecordBatch] = []
        for number in range(tasks):
            mine = records[number::tasks]
            columns = zip(*mine, strict=True) if mine else ((),) * len(RECORDS)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, RECORDS.types, strict=True)]
            shares += task.sort_out(iter([pa.RecordBatch.from_arrays(arrays, schema=RECORDS)]))
        results = list(task.merge(iter(shares)))
        rows = [row for result in results for row in result.to_pylist()]
        answers = [msgspec.json.decode(row["answer"], type=Answer) for row in rows if row["answer"]]
        if any(answer.follow_ups for answer in answers):
            more = [row for result in task.follow_up(iter(())) for row in result.to_pylist()]
            answers += [msgspec.json.decode(row["answer"], type=Answer) for row in more if row["answer"]]
            rows += more
        self.answers = answers
        self.letters = [row for row in rows if row["topic"] not in {None, self.detector.topic}]
        return sorted((row["key"], row["value"]) for row in rows if row["topic"] == self.detector.topic)

    def total(self, name: str) -> int:
        """A figure of the last batch, over all buckets."""
        return sum(getattr(answer, name) for answer in self.answers)


def event(**fields: Any) -> bytes:
    """The value of a record."""
    return json.dumps(fields).encode()


def by_subject(alerts: Iterable[Any], name: str) -> dict[tuple[str, str], Any]:
    """Alerts by subject and the time of day at which their window starts."""
    return {(alert[name], alert["window_start"][11:16]): alert for alert in alerts}
