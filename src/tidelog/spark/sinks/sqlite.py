"""Tables in one SQLite file: the embedded default for tables whose rows change.

Rows come in chunks of :data:`CHUNK_ROWS`, wait in a temporary table while the rest is made, and are written
in one short transaction per call, so that a reader sees a batch whole or not at all. ``write`` is for tasks,
on the machine that has the file; ``upsert`` brings a frame, which should be small, to the driver. The file is
in WAL mode: readers never wait for the writer, nor it for them. A crash leaves the last whole batch. Times
are stored as ISO 8601 text in UTC with milliseconds, which sorts and which SQLite's date functions read;
booleans are 0 and 1.
"""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelog.spark.sinks.table import (
    Batch,
    ChangingTableSink,
    ColumnSpec,
    ColumnType,
    Row,
    TableError,
    TableSpec,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHUNK_ROWS = 10_000
BUSY_TIMEOUT_S = 120.0
"""SQLite has one writer at a time: other tasks may be in front, and other pipelines with their own tables."""

_TYPES: dict[ColumnType, str] = {
    "string": "TEXT",
    "long": "INTEGER",
    "double": "REAL",
    "boolean": "INTEGER",
    "time": "TEXT",
}


def refuse_other_host(host: str, what: str) -> None:
    """Raise in a task on another machine than ``host``, the driver's, which has the files of SQLite.

    Called before a file is opened. Write-ahead logging goes through memory that the processes share; and
    where machines do not share a disk the task would make files of its own, and take them for the whole.
    """
    here = socket.gethostname()
    if here != host:
        raise TableError(
            f"SQLite files are for one machine: {what} is on {host}, and a task runs on {here}; "
            "name a Cassandra cluster (--cassandra), or run with --master local[*]"
        )


class SqliteTables(ChangingTableSink):
    """The tables of one file, on the machine where this is made, the driver's.

    Every call opens the file anew, so that any thread may call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._host = socket.gethostname()

    def ensure(self, table: TableSpec) -> None:
        columns = ", ".join(f'"{column.name}" {_TYPES[column.type]}' for column in table.columns)
        key = ", ".join(f'"{name}"' for name in table.primary_key)
        with closing(self._connect()) as connection:
            connection.execute(
                f'CREATE TABLE IF NOT EXISTS "{table.name}" ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID'
            )
            key_there = _key(connection, table)
            if key_there != table.primary_key:
                raise TableError(
                    f"table {table.name} in {self._path} has the primary key ({', '.join(key_there)}), not "
                    f"({', '.join(table.primary_key)}): move the file away, or drop the table, and run again"
                )
            known = _columns(connection, table)
            for column in table.columns:
                if column.name not in known:
                    _add_column(connection, table, column)
            there = _columns(connection, table)
        if sorted(there) != sorted(table.names):
            raise TableError(
                f"table {table.name} in {self._path} has the columns {', '.join(there)}, not "
                f"{', '.join(table.names)}: move the file away, or drop the table, and run again"
            )

    def upsert(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        self.ensure(table)
        ordered = rows.select(*(_brought(column) for column in table.columns))
        return self.write(table, ordered.toLocalIterator(prefetchPartitions=True))

    def write(self, table: TableSpec, rows: Iterable[Sequence[object]]) -> int:
        times = [at for at, column in enumerate(table.columns) if column.type == "time"]
        values = (_stored(row, times) for row in rows)
        with closing(self._connect()) as connection:
            try:
                return _write(connection, table, values)
            except sqlite3.Error as failure:
                raise TableError(
                    f"table {table.name} in {self._path} cannot be written: {failure}"
                ) from failure

    def rows(self, table: TableSpec) -> Iterator[Row]:
        names = ", ".join(f'"{name}"' for name in table.names)
        with closing(self._connect()) as connection:
            for values in connection.execute(f'SELECT {names} FROM "{table.name}"'):
                yield {
                    column.name: _told(column, value)
                    for column, value in zip(table.columns, values, strict=True)
                }

    def check_host(self) -> None:
        refuse_other_host(self._host, str(self._path))

    def _connect(self) -> sqlite3.Connection:
        self.check_host()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
        except (OSError, sqlite3.Error) as failure:
            raise TableError(f"the tables in {self._path} cannot be opened: {failure}") from failure
        return connection


def _columns(connection: sqlite3.Connection, table: TableSpec) -> list[str]:
    return [row[1] for row in connection.execute(f'PRAGMA table_info("{table.name}")')]


def _key(connection: sqlite3.Connection, table: TableSpec) -> tuple[str, ...]:
    found = connection.execute(f'PRAGMA table_info("{table.name}")').fetchall()
    return tuple(row[1] for row in sorted(found, key=lambda row: row[5]) if row[5])


def _add_column(connection: sqlite3.Connection, table: TableSpec, column: ColumnSpec) -> None:
    """Add a column that the table lacks; rows that are there have nothing in it."""
    try:
        connection.execute(f'ALTER TABLE "{table.name}" ADD COLUMN "{column.name}" {_TYPES[column.type]}')
    except sqlite3.OperationalError:
        # Another pipeline's process may have been quicker.
        if column.name not in _columns(connection, table):
            raise


def _write(connection: sqlite3.Connection, table: TableSpec, rows: Iterator[Sequence[Any]]) -> int:
    names = ", ".join(f'"{name}"' for name in table.names)
    marks = ", ".join("?" for _ in table.names)
    # A temporary table is in another file: no other writer waits while Spark makes the rows.
    connection.execute(f"CREATE TEMP TABLE batch ({names})")
    written = 0
    while chunk := list(islice(rows, CHUNK_ROWS)):
        connection.executemany(f"INSERT INTO temp.batch VALUES ({marks})", chunk)
        written += len(chunk)
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        connection.execute(_upsert_statement(table))
    return written


def _upsert_statement(table: TableSpec) -> str:
    names = ", ".join(f'"{name}"' for name in table.names)
    key = ", ".join(f'"{name}"' for name in table.primary_key)
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in table.values)
    action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
    if table.newest_by:
        ranked = [name for name in (table.newest_by, table.then_by) if name]
        new, old = (
            ", ".join(f'"{source}"."{name}"' for name in ranked) for source in ("excluded", table.name)
        )
        action += f" WHERE ({new}) >= ({old})"
    # WHERE keeps SQLite from reading ON CONFLICT as part of a join.
    return (
        f'INSERT INTO main."{table.name}" ({names}) SELECT {names} FROM temp.batch WHERE true '
        f"ON CONFLICT ({key}) {action}"
    )


def _brought(column: ColumnSpec) -> Column:
    """Times come as numbers: Spark would give naive ones in the driver's zone, ambiguous once a year."""
    return F.unix_millis(column.name).alias(column.name) if column.type == "time" else F.col(column.name)


def _stored(row: Sequence[Any], times: Sequence[int]) -> Sequence[Any]:
    """A row as it is stored; ``times``: which of its values are such."""
    stored = list(row)
    for at in times:
        if stored[at] is not None:
            stored[at] = _iso(stored[at])
    return stored


def _iso(time_ms: int) -> str:
    minute, rest = divmod(time_ms, 60_000)
    return f"{_minute(minute)}:{rest // 1000:02}.{rest % 1000:03}Z"


@lru_cache(1 << 12)
def _minute(minute: int) -> str:
    """Rows that are written together are of few minutes: as text each of these is made once."""
    return (EPOCH + timedelta(minutes=minute)).isoformat()[:16]


def _told(column: ColumnSpec, value: Any) -> object:
    if value is None:
        return None
    if column.type == "boolean":
        return bool(value)
    if column.type == "time":
        return datetime.fromisoformat(value)
    return value
