"""Data files of Iceberg tables as tasks write them: Parquet with field ids, and what is told of each.

    <table>/data/event_time_day=YYYY-MM-DD/<unique>.parquet

A task writes files where they are to stay, under names that nobody else has; nobody reads them before the
driver has committed them, with the counts and bounds that the task tells (:class:`WrittenFile`). A task
that is repeated, or a batch that fails, leaves files that belong to no table, until ``lake.expiry`` removes
them. Runs in Spark's tasks, and without PyIceberg where files are on a file system.

Rows wait until they fill a row group, so memory holds at most a row group for each table and day. Whoever
writes events says how many days there are: only files of days that have filled a row group stay open, others
are written at the end, one after the other.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

EVENT_TIME = "event_time"
DAY = f"{EVENT_TIME}_day"
"""The partition of a row: the day of its time, in UTC."""
FIELD_ID = b"PARQUET:field_id"
ROW_GROUP_ROWS = 65_536
BOUND_CHARACTERS = 16
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class WrittenFile(msgspec.Struct, frozen=True):
    """A file, and what Iceberg's manifests say of it; maps are by field id, bounds as Iceberg has them."""

    table: str
    path: str
    day: int | None
    """Since 1970; None: the rows have no time."""
    rows: int
    size_bytes: int
    column_sizes: dict[int, int]
    value_counts: dict[int, int]
    null_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]
    split_offsets: list[int]


@dataclass(frozen=True, slots=True)
class TableFiles:
    """What a task must know of a table to write its files; pickled to tasks."""

    name: str
    location: str
    """Where its data files are: a path, or a URI."""
    schema: pa.Schema
    """The columns to be written, each with its field id."""
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For PyIceberg where it is not a path of a file system; there may be secrets in them."""


def local_path(location: str) -> Path | None:
    """A location on a file system as a path; None where it is an object store's."""
    uri = urlparse(location)
    if not uri.scheme:
        return Path(location)
    return Path(f"{uri.netloc}{uri.path}") if uri.scheme == "file" else None


class _DayOfTable(NamedTuple):
    """Whose rows a file has."""

    table: str
    day: str


class TaskDataFiles:
    """Writes the rows of one task, a file for each table and day."""

    def __init__(self, tables: Iterable[TableFiles]) -> None:
        self._tables = {table.name: table for table in tables}
        self._waiting: dict[_DayOfTable, list[pa.Table]] = {}
        self._open: dict[_DayOfTable, _DataFile] = {}
        self._rows: dict[_DayOfTable, int] = {}

    def add(self, rows: pa.Table, by: str) -> None:
        """Take rows whose column ``by`` names their table; those of no table are left out."""
        for table in pc.unique(rows[by]).to_pylist():
            if table in self._tables:
                self.add_to(table, rows.filter(pc.equal(rows[by], table)))

    def add_to(self, table: str, rows: pa.Table) -> None:
        """Take rows of one table."""
        schema = self._tables[table].schema
        wanted = rows.select(schema.names).cast(schema)
        days = wanted[EVENT_TIME].cast(pa.timestamp("us")).cast(pa.date32(), safe=False).cast(pa.string())
        found = pc.unique(days).to_pylist()
        for day in found:
            chosen = wanted
            if len(found) > 1:
                chosen = wanted.filter(pc.is_null(days) if day is None else pc.equal(days, day))
            self._add(_DayOfTable(table, day or "null"), chosen)

    def finish(self) -> list[WrittenFile]:
        """End all files."""
        written = []
        for key, rows in self._rows.items():
            if key in self._waiting:
                self._flush(key)
            file = self._open.pop(key)
            file.close()
            written.append(file.told(rows))
        return written

    def _add(self, key: _DayOfTable, rows: pa.Table) -> None:
        waiting = self._waiting.setdefault(key, [])
        waiting.append(rows)
        self._rows[key] = self._rows.get(key, 0) + rows.num_rows
        if sum(part.num_rows for part in waiting) >= ROW_GROUP_ROWS:
            self._flush(key)

    def _flush(self, key: _DayOfTable) -> None:
        rows = pa.concat_tables(self._waiting.pop(key))
        if key not in self._open:
            self._open[key] = _DataFile(self._tables[key.table], key.day, rows.schema)
        self._open[key].write_table(rows)


class _DataFile:
    """A file under way."""

    def __init__(self, table: TableFiles, day: str, schema: pa.Schema) -> None:
        self._table = table
        self._day = day
        self._location = f"{table.location}/{DAY}={day}/{uuid.uuid4().hex}.parquet"
        self._metadata: list[pq.FileMetaData] = []
        path = local_path(self._location)
        self._stream: Any = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            where: Any = path
        else:
            from pyiceberg.io import load_file_io

            io = load_file_io(dict(table.io_properties), self._location)
            where = self._stream = io.new_output(self._location).create()
        self._writer = pq.ParquetWriter(
            where, schema, compression="zstd", metadata_collector=self._metadata, store_schema=False
        )

    def write_table(self, table: pa.Table) -> None:
        """Add a row group."""
        self._writer.write_table(table)

    def close(self) -> None:
        """No more rows come."""
        self._writer.close()
        if self._stream is not None:
            self._stream.close()

    def told(self, rows: int) -> WrittenFile:
        (metadata,) = self._metadata
        path = local_path(self._location)
        day = None if self._day == "null" else pa.scalar(self._day).cast(pa.date32()).value
        ids = [int(column.metadata[FIELD_ID]) for column in self._table.schema]
        return WrittenFile(
            table=self._table.name,
            path=self._location,
            day=day,
            rows=rows,
            size_bytes=_object_size(self._table, self._location) if path is None else path.stat().st_size,
            **_statistics(metadata, ids),
        )


def _object_size(table: TableFiles, location: str) -> int:
    from pyiceberg.io import load_file_io

    return len(load_file_io(dict(table.io_properties), location).new_input(location))


def _statistics(metadata: pq.FileMetaData, ids: Sequence[int]) -> dict[str, Any]:
    """Counts and bounds of each column, over all row groups."""
    sizes, values, nulls = (dict.fromkeys(ids, 0) for _ in range(3))
    lows: dict[int, Any] = {}
    highs: dict[int, Any] = {}
    unknown: set[int] = set()
    offsets = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        first = group.column(0)
        offsets.append(
            first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset,
        )
        for at, field_id in enumerate(ids):
            column = group.column(at)
            sizes[field_id] += column.total_compressed_size
            values[field_id] += column.num_values
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count:
                unknown.add(field_id)
                continue
            nulls[field_id] += statistics.null_count
            if statistics.has_min_max:
                low, high = statistics.min_raw, statistics.max_raw
                lows[field_id] = min(lows.get(field_id, low), low)
                highs[field_id] = max(highs.get(field_id, high), high)
            elif statistics.null_count < column.num_values:
                unknown.add(field_id)  # too long to be kept
    kept = [field_id for field_id in lows if field_id not in unknown]
    lower = {field_id: lower_bound(lows[field_id]) for field_id in kept}
    upper = {field_id: upper_bound(highs[field_id]) for field_id in kept}
    return {
        "column_sizes": sizes,
        "value_counts": values,
        "null_counts": {field_id: count for field_id, count in nulls.items() if field_id not in unknown},
        "lower_bounds": lower,
        "upper_bounds": {field_id: bound for field_id, bound in upper.items() if bound is not None},
        "split_offsets": offsets,
    }


def lower_bound(value: bool | int | float | bytes) -> bytes:
    """A value of Parquet as Iceberg has it in bounds: not above what it stands for."""
    if isinstance(value, bytes):
        return value.decode()[:BOUND_CHARACTERS].encode()
    return _fixed(value)


def upper_bound(value: bool | int | float | bytes) -> bytes | None:
    """The same from above; None where nothing so short is above it."""
    if not isinstance(value, bytes):
        return _fixed(value)
    text = value.decode()
    if len(text) <= BOUND_CHARACTERS:
        return value
    for length in range(BOUND_CHARACTERS, 0, -1):
        following = ord(text[length - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CHARACTER:
            return (text[: length - 1] + chr(following)).encode()
    return None


def _fixed(value: bool | int | float) -> bytes:
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    return struct.pack("<q" if isinstance(value, int) else "<d", value)
