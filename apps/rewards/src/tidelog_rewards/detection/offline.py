"""Detection without Spark and without a topic to write to: what rules would raise over given records.

The tasks of ``alert_tasks`` one after the other in this process, with a state in a directory that is thrown
away. Records may come in any order; nothing is late. Used by ``tidelog pipeline dry-run``, which holds a file
of rules against a past range, and by ``tidelog events score --adversaries``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tidelog_rewards.detection.alert_evidence import Window
from tidelog_rewards.detection.alert_state import StateReader, left_behind
from tidelog_rewards.detection.alert_tasks import Batch, BatchTask, Detector
from tidelog_rewards.detection.detection_rules import RulesName
from tidelog_rewards.detection.incidents import IncidentBook, Terms, without_numbers
from tidelog_rewards.phones.phone_tokens import CLEAR, PhonesWritten

_RECORDS_AT_ONCE = 50_000
_BUCKETS = 4
_NOTHING_IS_LATE = -1
_RECORDS = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
    }
)


class LogRecord(NamedTuple):
    """A record of an event log."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None


def detect_offline(
    detector: Detector,
    rules: RulesName,
    records: Iterable[LogRecord],
    within: Window | None = None,
    phones: PhonesWritten = CLEAR,
) -> list[dict[str, Any]]:
    """The incidents that records come to; of a range of time, those with evidence in it.

    ``phones`` says what stands for blocks of phone numbers.
    """
    terms = Terms(detector.name, rules, detector.quiet_us, _NOTHING_IS_LATE, allow=detector.allow)
    with tempfile.TemporaryDirectory(prefix="tidelog-detect-") as name:
        state = Path(name)
        left: set[bytes] = set()
        last = 0
        for number, some in enumerate(_chunks(records)):
            task = BatchTask(
                detector, state, _BUCKETS, Batch(number, _NOTHING_IS_LATE), terms, phones, within=within
            )
            for _ in task.merge(task.sort_out(iter([some]))):
                pass
            left |= set(left_behind(state, _BUCKETS, number))
            last = number
        reader = StateReader(state, _BUCKETS, last, detector.schema)
        book = IncidentBook(state, 0)
        linked_us = 0 if within is None else within.start_us - detector.memory_us
        batch = Batch(last, _NOTHING_IS_LATE, linked_us)
        judged = detector.judge(sorted(left), reader.rows_of, book, batch).judged
        if within is not None:
            judged = [
                each
                for each in judged
                if any(within.start_us <= point.time_us < within.end_us for point in each.points)
            ]
        changes = book.update([without_numbers(each, phones) for each in judged], 0, terms)
    return [msgspec.json.decode(change.value) for change in changes if change.value is not None]


def _chunks(records: Iterable[LogRecord]) -> Iterator[pa.RecordBatch]:
    waiting = iter(records)
    while some := list(islice(waiting, _RECORDS_AT_ONCE)):
        columns = zip(*some, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _RECORDS.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_RECORDS)
