"""Micro-batches of a detecting pipeline without Spark: its tasks one after the other, and a state on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tidelog_rewards.detection.alert_evidence import Window
from tidelog_rewards.detection.alert_state import newest_event_us, open_layout
from tidelog_rewards.detection.alert_tasks import Answer, Batch, BatchTask, Detector
from tidelog_rewards.detection.batch_terms import Settled
from tidelog_rewards.detection.detection_rules import RulesName
from tidelog_rewards.detection.incidents import Terms
from tidelog_rewards.detection.verdicts import Verdicts
from tidelog_rewards.events import DEAD_LETTERS, INCIDENTS
from tidelog_rewards.phones.phone_tokens import CLEAR

START = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
WRITTEN = START + timedelta(days=60)
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

    def __init__(
        self,
        directory: Path,
        detector: Detector,
        *,
        buckets: int | None = None,
        verdicts: Verdicts | None = None,
        within: Window | None = None,
    ) -> None:
        self.directory = directory
        self.detector = detector
        self.buckets = open_layout(directory, detector.schema, buckets).buckets
        self.verdicts = verdicts or Verdicts()
        self.within = within
        self.batch_id = 0
        self.offset = 0
        self.answers: list[Answer] = []
        self.letters: list[dict[str, Any]] = []
        self.settled: dict[int, Settled] = {}
        """By the number of the batch."""
        self.incidents: dict[str, Any] = {}
        """The newest of each, those that were taken back left out."""

    def feed(self, *values: Value, tasks: int = 2, written: datetime = WRITTEN) -> dict[str, Any]:
        """Work off a batch of values; the incidents that it has changed, by subject."""
        records = self.records(values, written)
        self.offset += len(values)
        found = self.work_off(records, tasks)
        self.batch_id += 1
        changed = {}
        for key, value in found:
            self.incidents.pop(key.decode(), None)
            if value is not None:
                told = json.loads(value)
                assert told["alert_id"] == key.decode()
                self.incidents[key.decode()] = changed[told["subject"]] = told
        return changed

    def records(self, values: Sequence[Value], written: datetime = WRITTEN) -> list[tuple[Any, ...]]:
        topic = self.detector.kind.topic
        return [(topic, 0, self.offset + at, written, b"k", value) for at, value in enumerate(values)]

    def work_off(
        self, records: Sequence[tuple[Any, ...]], tasks: int = 2
    ) -> list[tuple[bytes, bytes | None]]:
        """The batch of the present number, as so many tasks would have it; keys and values of alerts."""
        task = self._task()
        shares: list[pa.RecordBatch] = []
        for number in range(tasks):
            mine = records[number::tasks]
            columns = zip(*mine, strict=True) if mine else ((),) * len(RECORDS)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, RECORDS.types, strict=True)]
            shares += task.sort_out(iter([pa.RecordBatch.from_arrays(arrays, schema=RECORDS)]))
        rows = [row for result in task.merge(iter(shares)) for row in result.to_pylist()]
        rows += [row for result in task.follow_up(iter(())) for row in result.to_pylist()]
        self.answers = [msgspec.json.decode(row["answer"], type=Answer) for row in rows if row["answer"]]
        self.letters = [row for row in rows if row["topic"] == DEAD_LETTERS]
        told, newest = (
            sorted(((row["key"], row["value"]) for row in rows if row["topic"] == topic), key=_key)
            for topic in (self.detector.topic, INCIDENTS)
        )
        assert told == newest
        return told

    def _task(self) -> BatchTask:
        detector = self.detector
        newest_us = newest_event_us(self.directory, self.buckets, self.batch_id)
        settled = Settled(
            "test",
            "0",
            msgspec.Raw(msgspec.json.encode({"allow": detector.allow})),
            self.verdicts,
            newest_us - detector.watermark_delay_us,
            frozenset(),
        ).after(self.settled.get(self.batch_id - 1), detector.name)
        self.settled[self.batch_id] = settled
        batch = Batch(self.batch_id, settled.watermark_us, settled.watermark_us - detector.memory_us)
        if self.within is not None:
            batch = Batch(self.batch_id, -1, self.within.start_us - detector.memory_us)
        terms = Terms(
            detector.name,
            RulesName("test", "0"),
            detector.quiet_us,
            batch.watermark_us,
            self.verdicts,
            detector.allow,
            settled.changed,
        )
        return BatchTask(detector, self.directory, self.buckets, batch, terms, CLEAR, within=self.within)

    def total(self, name: str) -> int:
        """A figure of the last batch, over all buckets."""
        return sum(getattr(answer, name) for answer in self.answers)


def event(**fields: Any) -> bytes:
    """The value of a record."""
    return json.dumps(fields).encode()


def _key(record: tuple[bytes, bytes | None]) -> bytes:
    return record[0]


def compared(incidents: Iterable[Any]) -> dict[tuple[str, str], Any]:
    """Incidents by kind and subject, with all that does not say where their records were."""
    found = {}
    for told in incidents:
        shown = {name: value for name, value in told.items() if name not in {"evidence", "logins", "invites"}}
        proof = [
            {name: value for name, value in each.items() if name not in {"partition", "offset"}}
            for each in told.get("logins", told.get("invites", ()))
        ]
        found[told["subject_kind"], told["subject"]] = {**shown, "proof": proof}
    return found
