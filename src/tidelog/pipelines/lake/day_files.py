"""Rows of a task into Parquet files, one for each table and day; rows wait until they fill a row group.

Both forms of the lake write through this; what a day is, where its file is and what becomes of it is theirs.
Runs in Spark's tasks. Memory holds at most a row group for each table and day. Whoever writes events says how
many days there are: only files of days that have filled a row group stay open, others are written at the end,
one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

ROW_GROUP_ROWS = 65_536


class DayOfTable(NamedTuple):
    """Whose rows a file has."""

    table: str
    day: str


class RowWriter(Protocol):
    """A file under way, such as ``pyarrow.parquet.ParquetWriter``."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


Writer = TypeVar("Writer", bound=RowWriter)


class DayFiles(Generic[Writer]):
    """The files of one task."""

    def __init__(self, open_file: Callable[[DayOfTable, pa.Schema], Writer]) -> None:
        self._open_file = open_file
        self._waiting: dict[DayOfTable, list[pa.Table]] = {}
        self._writers: dict[DayOfTable, Writer] = {}
        self._rows: dict[DayOfTable, int] = {}

    def add(self, key: DayOfTable, rows: pa.Table) -> None:
        """Take rows of one table and day."""
        waiting = self._waiting.setdefault(key, [])
        waiting.append(rows)
        self._rows[key] = self._rows.get(key, 0) + rows.num_rows
        if sum(part.num_rows for part in waiting) >= ROW_GROUP_ROWS:
            self._flush(key)

    def close(self) -> Iterator[tuple[DayOfTable, Writer, int]]:
        """End each file, and tell how many rows it has."""
        for key in self._rows:
            if key in self._waiting:
                self._flush(key)
            writer = self._writers.pop(key)
            writer.close()
            yield key, writer, self._rows[key]

    def _flush(self, key: DayOfTable) -> None:
        rows = pa.concat_tables(self._waiting.pop(key))
        if key not in self._writers:
            self._writers[key] = self._open_file(key, rows.schema)
        self._writers[key].write_table(rows)
