"""What the task of a part does before anything else: it looks whether the files are on its machine."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tidelog.pipelines.framework.record_sink import RecordSink, single_batch
from tidelog.pipelines.framework.sinks.table import TableError
from tidelog.pipelines.jobs.earnings.part_work import BatchWork, merge_entries, publish_parts
from tidelog.pipelines.jobs.earnings.parts import LedgerParts, ledger_parts
from tidelog.pipelines.pipeline import PipelineSettings

Run = Callable[[PipelineSettings, LedgerParts], object]
UNREACHABLE = "127.0.0.1:1"
"""Whoever writes to a topic is found out."""


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
