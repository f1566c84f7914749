"""Files of days as a task writes them: each day once, and few of them open at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.pipelines.lake import day_files
from tidelog.pipelines.lake.day_files import DayFiles, DayOfTable

DAYS = [f"2026-{month:02d}-{day:02d}" for month in (1, 2) for day in range(1, 29)]


class OpenFiles:
    """Real Parquet files, and how many of them are open."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.now = 0
        self.most = 0

    def open(self, key: DayOfTable, schema: pa.Schema) -> CountedFile:
        self.now += 1
        self.most = max(self.most, self.now)
        return CountedFile(self.path(key), schema, self._closed)

    def path(self, key: DayOfTable) -> Path:
        return self._directory / f"{key.table}-{key.day}.parquet"

    def _closed(self) -> None:
        self.now -= 1


class CountedFile:
    def __init__(self, path: Path, schema: pa.Schema, on_close: Callable[[], None]) -> None:
        self._writer = pq.ParquetWriter(path, schema)
        self._on_close = on_close

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
        self._on_close()


def test_days_that_fill_no_row_group_are_written_one_after_the_other(tmp_path: Path) -> None:
    opened = OpenFiles(tmp_path)
    files = DayFiles(opened.open)
    for number in range(2):
        for day in DAYS:
            files.add(DayOfTable("login", day), pa.table({"number": [number]}))
    assert [(*key, rows) for key, _, rows in files.close()] == [("login", day, 2) for day in DAYS]
    assert (opened.most, opened.now) == (1, 0)
    for day in DAYS:
        assert pq.read_table(opened.path(DayOfTable("login", day)))["number"].to_pylist() == [0, 1]


def test_only_days_with_a_full_row_group_stay_open_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_files, "ROW_GROUP_ROWS", 3)
    opened = OpenFiles(tmp_path)
    files = DayFiles(opened.open)
    exact, longer = DayOfTable("login", DAYS[1]), DayOfTable("credit", DAYS[1])
    for number in range(4):
        for day in DAYS[2:] if number < 2 else ():
            files.add(DayOfTable("login", day), pa.table({"number": [number]}))
        for key in (exact, longer) if number < 3 else (longer,):
            files.add(key, pa.table({"number": [number]}))
    assert opened.now == 2
    told = {key: rows for key, _, rows in files.close()}
    assert told == {exact: 3, longer: 4, **{DayOfTable("login", day): 2 for day in DAYS[2:]}}
    # The two, and one more at a time.
    assert (opened.most <= 3, opened.now) == (True, 0)
    for key, rows in told.items():
        assert pq.read_table(opened.path(key))["number"].to_pylist() == list(range(rows))
