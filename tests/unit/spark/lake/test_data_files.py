"""Files of days as a task writes them: each day once, and few of them open at a time."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.spark.lake import data_files
from tidelog.spark.lake.data_files import FIELD_ID, TableFiles, TaskDataFiles, WrittenFile

DAYS = [f"2026-{month:02d}-{day:02d}" for month in (1, 2) for day in range(1, 29)]
SCHEMA = pa.schema(
    [
        pa.field("event_time", pa.timestamp("us", "UTC"), metadata={FIELD_ID: b"1"}),
        pa.field("number", pa.int64(), metadata={FIELD_ID: b"2"}),
    ]
)


class OpenFiles:
    """How many Parquet files are open."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    counted = OpenFiles()

    class CountedWriter(pq.ParquetWriter):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            counted.now += 1
            counted.most = max(counted.most, counted.now)

        def close(self) -> None:
            if self.is_open:
                counted.now -= 1
            super().close()

    monkeypatch.setattr(pq, "ParquetWriter", CountedWriter)
    return counted


def task_files(directory: Path) -> TaskDataFiles:
    return TaskDataFiles(TableFiles(name, str(directory / name), SCHEMA) for name in ("login", "credit"))


def row(day: str, number: int) -> pa.Table:
    return pa.table({"event_time": [datetime.fromisoformat(f"{day}T12:00Z")], "number": [number]})


def day_of(file: WrittenFile) -> tuple[str, str]:
    """The table, and the day that its directory names."""
    return file.table, Path(file.path).parent.name.removeprefix("event_time_day=")


def numbers(file: WrittenFile) -> list[int]:
    found: list[int] = pq.ParquetFile(file.path).read()["number"].to_pylist()
    return found


def test_days_that_fill_no_row_group_are_written_one_after_the_other(
    tmp_path: Path, opened: OpenFiles
) -> None:
    files = task_files(tmp_path)
    for number in range(2):
        for day in DAYS:
            files.add_to("login", row(day, number))
    written = files.finish()
    assert [(*day_of(file), file.rows) for file in written] == [("login", day, 2) for day in DAYS]
    assert (opened.most, opened.now) == (1, 0)
    assert [numbers(file) for file in written] == [[0, 1]] * len(DAYS)


def test_only_days_with_a_full_row_group_stay_open_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: OpenFiles
) -> None:
    monkeypatch.setattr(data_files, "ROW_GROUP_ROWS", 3)
    files = task_files(tmp_path)
    exact, longer = ("login", DAYS[1]), ("credit", DAYS[1])
    for number in range(4):
        for day in DAYS[2:] if number < 2 else ():
            files.add_to("login", row(day, number))
        for table, day in (exact, longer) if number < 3 else (longer,):
            files.add_to(table, row(day, number))
    assert opened.now == 2
    written = {day_of(file): file for file in files.finish()}
    counts = {key: file.rows for key, file in written.items()}
    assert counts == {exact: 3, longer: 4, **{("login", day): 2 for day in DAYS[2:]}}
    # The two, and one more at a time.
    assert (opened.most <= 3, opened.now) == (True, 0)
    for key, rows in counts.items():
        assert numbers(written[key]) == list(range(rows))
