"""What the task of some buckets does with dead letters."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
from tests.unit.rewards.detecting import RECORDS, WRITTEN, Detecting

from tidelog.spark.write.write_options import write_options
from tidelog_rewards.detection.alert_tasks import AlertSink, Answer, BatchTask
from tidelog_rewards.events import DEAD_LETTERS
from tidelog_rewards.jobs.account_switch.detector import SwitchDetector

LETTERS = 40
LETTER_BYTES = 800_000
BUCKETS = 4
PARTITIONS = 3


@dataclass(frozen=True)
class LettersSeen(AlertSink):
    """Notes which records come, and how large they are, by task."""

    seen: dict[int, list[tuple[str, bytes, int]]] = field(default_factory=dict)

    def write(self, records: Iterable[pa.RecordBatch], task: int, batch_id: int) -> None:
        for batch in records:
            rows = batch.select(["topic", "key", "value"]).to_pylist()
            self.seen.setdefault(task, []).extend(
                (row["topic"], row["key"], len(row["value"])) for row in rows
            )


def shares(task: BatchTask) -> Iterator[pa.RecordBatch]:
    """Large records that are no events, one by one."""
    for offset in range(LETTERS):
        record = (task.detector.kind.topic, offset % PARTITIONS, offset, WRITTEN, b"k", b"{" * LETTER_BYTES)
        batch = pa.RecordBatch.from_pylist([dict(zip(RECORDS.names, record, strict=True))], schema=RECORDS)
        yield from task.sort_out(iter([batch]))


def made(directory: Path) -> BatchTask:
    return Detecting(directory, SwitchDetector(), buckets=BUCKETS)._task()


def offsets(keys: Iterable[bytes]) -> list[int]:
    return [int(key.split(b"/")[3]) for key in keys]


def test_letters_are_written_by_bucket_in_their_order_and_memory_does_not_hold_them(tmp_path: Path) -> None:
    options = write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}, streaming=False)
    sink = LettersSeen(options, "test", "run")
    task = replace(made(tmp_path / "task"), sink=sink)
    # What the first letter of a process imports is not what is measured.
    list(made(tmp_path / "first").merge(islice(shares(task), 1)))
    tracemalloc.start()
    try:
        results = list(task.merge(shares(task)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    answers = [
        msgspec.json.decode(row["answer"], type=Answer) for result in results for row in result.to_pylist()
    ]
    assert {each.bucket: each.letters for each in answers if each.letters} == {
        bucket: len(letters) for bucket, letters in sink.seen.items()
    }
    assert sum(each.letters for each in answers) == LETTERS
    for letters in sink.seen.values():
        assert {(topic, size) for topic, _, size in letters} == {(DEAD_LETTERS, LETTER_BYTES)}
        found = offsets(key for _, key, _ in letters)
        assert found == sorted(found)
    assert peak_bytes < LETTERS * LETTER_BYTES / 2


def test_without_a_sink_letters_are_rows_behind_the_answer_of_their_bucket(tmp_path: Path) -> None:
    task = made(tmp_path)
    rows = [row for result in task.merge(shares(task)) for row in result.to_pylist()]
    assert len([row for row in rows if row["topic"] == DEAD_LETTERS]) == LETTERS
    expected = 0
    for row in rows:
        if row["answer"] is not None:
            assert expected == 0
            expected = msgspec.json.decode(row["answer"], type=Answer).letters
        else:
            expected -= 1
    assert expected == 0
