"""How rows go to Cassandra and come from it, over the connection of this process; for driver and tasks.

A bounded number of requests is under way; those that failed for a time are sent again. Every failure becomes
a :class:`CassandraError` of one sentence.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from zlib import crc32

from tidelog.spark.sinks.cassandra_connection import (
    ATTEMPTS,
    FIRST_PAUSE_S,
    CassandraCluster,
    CassandraError,
    connect,
    first_error,
    worth_repeating,
)
from tidelog.spark.sinks.table import TableSpec

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from cassandra.query import PreparedStatement

MAX_IN_FLIGHT = 128
CHUNK_ROWS = 5_000


def _upsert_of(keyspace: str, table: TableSpec, *, timestamped: bool) -> str:
    names = ", ".join(table.names)
    marks = ", ".join("?" for _ in table.names)
    text = f'INSERT INTO "{keyspace}".{table.name} ({names}) VALUES ({marks})'
    return f"{text} USING TIMESTAMP ?" if timestamped else text


def write_rows(
    cluster: CassandraCluster,
    keyspace: str,
    table: TableSpec,
    rows: Iterable[tuple[Any, ...]],
    *,
    timestamped: bool = False,
) -> None:
    """Upsert rows with a bounded number of requests under way; returns when all are acknowledged.

    ``timestamped`` rows have one value more, the timestamp of the write: of two writes of a key Cassandra
    keeps the one with the greater.

    :raises CassandraError: rows were refused, or failed :data:`ATTEMPTS` times.
    """
    connection = connect(cluster)
    by_timestamp = timestamped or bool(table.newest_by)
    statement = connection.writing(_upsert_of(keyspace, table, timestamped=by_timestamp))
    remaining = iter(rows)
    while chunk := list(islice(remaining, CHUNK_ROWS)):
        bound = [_bound(table, row) for row in chunk]
        for _ in _answers(connection.session, statement, bound, f"a row of table {table.name}"):
            pass


def read_rows(
    cluster: CassandraCluster, query: str, keys: Iterable[tuple[Any, ...]], table: str
) -> Iterator[tuple[Any, ...]]:
    """The rows that a query finds for each of the keys, asked for side by side; in no order.

    :raises CassandraError: the query was refused, or failed :data:`ATTEMPTS` times.
    """
    connection = connect(cluster)
    statement = connection.reading(query)
    remaining = iter(keys)
    while chunk := list(islice(remaining, CHUNK_ROWS)):
        for rows in _answers(connection.session, statement, chunk, f"reading table {table}"):
            yield from rows


def _answers(
    session: Session, statement: PreparedStatement, arguments: list[tuple[Any, ...]], what: str
) -> Iterator[Any]:
    """The answer to the statement for each of the arguments; those that failed for a time are sent again."""
    from cassandra.concurrent import execute_concurrent_with_args

    pause_s = FIRST_PAUSE_S
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause_s)
            pause_s *= 2
        results = execute_concurrent_with_args(
            session, statement, arguments, concurrency=MAX_IN_FLIGHT, raise_on_first_error=False
        )
        failures = []
        for values, (success, answer) in zip(arguments, results, strict=True):
            if success:
                yield answer
            elif worth_repeating(answer):
                failures.append((values, answer))
            else:
                raise CassandraError(f"Cassandra refuses {what}: {first_error(answer)}") from answer
        if not failures:
            return
        arguments = [values for values, _ in failures]
    raise CassandraError(
        f"Cassandra failed {ATTEMPTS} times at {what}, and at {len(arguments)} requests in all: "
        f"{first_error(failures[0][1])}"
    )


def _bound(table: TableSpec, row: tuple[Any, ...]) -> tuple[Any, ...]:
    from cassandra.query import UNSET_VALUE

    if table.newest_by:
        time_ms = row[table.names.index(table.newest_by)]
        # Of two writes with one timestamp Cassandra keeps the greater value of each cell: a row mixed of
        # both. The microseconds are free, so other rows of the same millisecond get others.
        return (*row, time_ms * 1000 + crc32(repr(row).encode()) % 1000)
    if not table.append_only:
        return row
    return tuple(UNSET_VALUE if value is None else value for value in row)
