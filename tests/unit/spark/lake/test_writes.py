"""The lake as pipelines have it, without Spark: a batch of several tables, cut off anywhere, counts once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.lake.rig import NOON, catalog

from tidelog.spark.lake.batches import append_batch
from tidelog.spark.lake.lake_note import LakeSettings
from tidelog.spark.sinks import lake as lakes
from tidelog.spark.sinks.lake import Lake, answer_of
from tidelog.spark.sinks.table import Batch, ColumnSpec, TableSpec

COLUMNS = (
    ColumnSpec("event_id", "string"),
    ColumnSpec("event_time", "time"),
    ColumnSpec("date", "string"),
    ColumnSpec("partition", "long"),
)
TABLES = tuple(
    TableSpec(name, COLUMNS, ("event_id", "partition"), append_only=True)
    for name in ("credit", "login", "install")
)


def lake_of(root: Path) -> Lake:
    lake = Lake(LakeSettings(root))
    for table in TABLES:
        lake.ensure(table)
    return lake


def batch(lake: Lake, version: int, tasks: int = 2) -> dict[str, int]:
    """A micro-batch of so many tasks, each with a row for the first two tables."""
    write = lake.begin(TABLES)
    answers = []
    for number in range(tasks):
        task = write.open()
        for table in ("credit", "login"):
            columns = {
                "event_id": [f"e-{version}"],
                "event_time": pa.array([NOON], pa.timestamp("ms", "UTC")),
                "date": ["2026-11-01"],
                "partition": [number],
            }
            task.add_to(table, pa.table(columns))
        answers.append(answer_of(task))
    return lake.commit(write, answers, Batch("query", version))


def rows(lake: Lake, table: TableSpec) -> Counter[Any]:
    return Counter((row["event_id"], row["partition"]) for row in lake.rows(table))


def test_tables_without_rows_stay_as_they_are(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    assert batch(lake, 0) == {"credit": 2, "login": 2, "install": 0}
    assert rows(lake, TABLES[2]) == Counter()
    assert rows(lake, TABLES[0]) == Counter([("e-0", 0), ("e-0", 1)])


def test_a_kill_between_the_commits_of_two_tables_is_mended_by_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch(lake_of(tmp_path), 0)

    def cut_off(table: Any, *arguments: Any) -> bool:
        if table.name()[-1] == "login":
            raise KeyboardInterrupt
        return append_batch(table, *arguments)

    monkeypatch.setattr(lakes, "append_batch", cut_off)
    with pytest.raises(KeyboardInterrupt):
        batch(lake_of(tmp_path), 1)
    monkeypatch.undo()
    lake = lake_of(tmp_path)
    assert len(rows(lake, TABLES[0])) == 4
    assert len(rows(lake, TABLES[1])) == 2
    batch(lake, 1)
    batch(lake, 2)
    expected = Counter((f"e-{version}", number) for version in range(3) for number in range(2))
    assert rows(lake, TABLES[0]) == rows(lake, TABLES[1]) == expected
    for table in TABLES[:2]:
        # What a reader sees that knows nothing of keys.
        scanned = catalog(tmp_path).table(table.name).scan().to_arrow()
        assert scanned.num_rows == 6


def test_a_batch_that_comes_again_in_other_tasks_adds_nothing(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    batch(lake, 0, tasks=3)
    files = set(tmp_path.rglob("*.parquet"))
    batch(lake, 0, tasks=1)
    assert rows(lake, TABLES[0]) == Counter(("e-0", number) for number in range(3))
    assert set(tmp_path.rglob("*.parquet")) == files
