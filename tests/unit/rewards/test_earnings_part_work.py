"""What the task of a part does: it checks that files are on its machine, and writes states and letters."""

from __future__ import annotations

import pickle
import socket
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.contract.ledgers import credit

from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.partition_work import Parcel, to_bytes
from tidelog.spark.sinks.record_sink import RECORD_SCHEMA, RecordSink, single_batch
from tidelog.spark.sinks.table import TableError
from tidelog.spark.write.write_message import WriteName, WriteOutcome, WrittenTask
from tidelog_rewards.events import DEAD_LETTERS, USER_EARNINGS
from tidelog_rewards.jobs.earnings.packing import CREDITS, LETTERS
from tidelog_rewards.jobs.earnings.part_work import BatchWork, merge_entries, publish_parts
from tidelog_rewards.jobs.earnings.parts import LedgerParts, ledger_parts

Run = Callable[[PipelineSettings, LedgerParts], object]
UNREACHABLE = "127.0.0.1:1"
"""Whoever writes to a topic is found out."""
TIME = "2026-03-01T12:00:00.000Z"


def stream(settings: PipelineSettings, parts: LedgerParts) -> object:
    work = BatchWork(settings, parts, RecordSink(settings, single_batch("test")), "test")
    return list(work(0, iter([])))


def backfill_of_entries(settings: PipelineSettings, parts: LedgerParts) -> object:
    return list(merge_entries(settings, parts)(0, iter([])))


def backfill_of_states(settings: PipelineSettings, parts: LedgerParts) -> object:
    publish = publish_parts(settings, parts, "test", "2026-03-01T00:00:00.000Z", "2026-03-02T00:00:00.000Z")
    return publish(iter([pa.table({"id": [0]})]))


@pytest.mark.parametrize("run", [stream, backfill_of_entries, backfill_of_states])
def test_a_task_on_another_machine_than_the_files_refuses_before_it_opens_or_writes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    settings = PipelineSettings(UNREACHABLE, tmp_path)
    parts = pickle.loads(pickle.dumps(ledger_parts(settings)))
    there = sorted(tmp_path.rglob("*"))
    driver = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-7")
    with pytest.raises(TableError, match=f"is on {driver}, and a task runs on worker-7; name a Cassandra"):
        run(settings, parts)
    assert sorted(tmp_path.rglob("*")) == there


def test_a_task_on_the_drivers_machine_merges(tmp_path: Path) -> None:
    settings = PipelineSettings(UNREACHABLE, tmp_path)
    parts = ledger_parts(settings)
    assert backfill_of_entries(settings, parts) == ["0"]
    assert parts.file(0).exists()


class LettersSeen(RecordSink):
    """Notes the values of records, and how large they are."""

    def __init__(self, settings: PipelineSettings) -> None:
        super().__init__(settings, single_batch("test"))
        self.seen: list[tuple[str, bytes, int]] = []

    def write(self, task: int, records: Iterable[pa.RecordBatch]) -> WrittenTask:
        for batch in records:
            rows = batch.select(["topic", "key", "value"]).to_pylist()
            self.seen += [(row["topic"], row["key"], len(row["value"])) for row in rows]
        name = WriteName("test", 0, "run", task, streaming=False)
        return WrittenTask(name, ContentDigest(len(self.seen)), WriteOutcome.COMMITTED, None)


LETTERS_SENT = 40
LETTER_BYTES = 800_000


def parcels_with_letters() -> Iterator[Parcel]:
    """Entries behind and before letters that are more than a task should hold."""
    yield Parcel(0, CREDITS, msgspec.msgpack.encode([credit("ann", TIME, "1", "task", 5)]))
    for number in range(LETTERS_SENT):
        row = {"topic": DEAD_LETTERS, "key": b"%d" % number, "value": bytes(LETTER_BYTES)}
        yield Parcel(0, LETTERS, to_bytes(pa.RecordBatch.from_pylist([row], schema=RECORD_SCHEMA)))
    yield Parcel(0, CREDITS, msgspec.msgpack.encode([credit("ann", TIME, "2", "task", 6)]))


def test_states_of_all_entries_come_first_then_letters_in_their_order_which_memory_does_not_hold(
    tmp_path: Path,
) -> None:
    def working(directory: Path) -> tuple[BatchWork, LettersSeen]:
        settings = PipelineSettings(UNREACHABLE, directory, state_partitions=1)
        sink = LettersSeen(settings)
        return BatchWork(settings, ledger_parts(settings), sink, "test"), sink

    # What the first batch of a process imports is not what is measured.
    first, _ = working(tmp_path / "first")
    list(first(0, islice(parcels_with_letters(), 2)))
    work, sink = working(tmp_path / "second")
    tracemalloc.start()
    try:
        list(work(0, parcels_with_letters()))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (topic, user, _), *letters = sink.seen
    assert (topic, user) == (USER_EARNINGS, b"ann")
    assert letters == [(DEAD_LETTERS, b"%d" % number, LETTER_BYTES) for number in range(LETTERS_SENT)]
    assert peak_bytes < LETTERS_SENT * LETTER_BYTES / 2
