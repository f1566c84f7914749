"""The connection to Cassandra of one process, and how rows are sent over it; for driver and workers alike.

Spark keeps its Python workers from batch to batch, so a connection and its prepared statements are made once
per worker. Every failure becomes a :class:`CassandraError` of one sentence.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.errors import TidelogError
from tidelog.pipelines.framework.sinks.table import TableSpec

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from cassandra.query import PreparedStatement

DEFAULT_PORT = 9042
MAX_IN_FLIGHT = 128
CHUNK_ROWS = 5_000
CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 10.0
ATTEMPTS = 8
FIRST_PAUSE_S = 0.2
"""Doubled with each attempt: half a minute in all, in which a node may be started again."""


class CassandraError(TidelogError):
    """Cassandra cannot be reached, or refuses; the text names the contact points and the mend."""


@dataclass(frozen=True, slots=True)
class ContactPoints:
    """Where to find the cluster."""

    addresses: tuple[tuple[str, int], ...]

    @staticmethod
    def parse(text: str) -> ContactPoints:
        """Read ``host[:port],…``; IPv6 addresses stand in brackets."""
        addresses = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            host, bracket, rest = part[1:].partition("]") if part.startswith("[") else (part, "", "")
            if not bracket:
                host, _, rest = part.partition(":")
                rest = f":{rest}" if rest else ""
            port = rest.removeprefix(":")
            if not host or (rest and not (rest.startswith(":") and port.isdecimal())):
                raise CassandraError(f"{part!r} is no contact point of Cassandra: write host or host:port")
            addresses.append((host, int(port) if port else DEFAULT_PORT))
        if not addresses:
            raise CassandraError("no contact point of Cassandra is given: write host[:port],…")
        return ContactPoints(tuple(addresses))

    def __str__(self) -> str:
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses
        )


class Connection:
    """A session and the statements prepared in it; usable from every thread."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._statements: dict[str, PreparedStatement] = {}

    def prepared(self, text: str) -> PreparedStatement:
        """A statement that may be sent any number of times, prepared once."""
        if text not in self._statements:
            self._statements[text] = self.session.prepare(text)
            self._statements[text].is_idempotent = True
        return self._statements[text]


def _upsert_of(keyspace: str, table: TableSpec, *, timestamped: bool) -> str:
    names = ", ".join(table.names)
    marks = ", ".join("?" for _ in table.names)
    text = f'INSERT INTO "{keyspace}".{table.name} ({names}) VALUES ({marks})'
    return f"{text} USING TIMESTAMP ?" if timestamped else text


_connections: dict[ContactPoints, Connection] = {}
_connecting = threading.Lock()


def connect(points: ContactPoints) -> Connection:
    """This process's connection to a cluster, made once."""
    with _connecting:
        if points not in _connections:
            _connections[points] = Connection(_open(points))
        return _connections[points]


def disconnect(points: ContactPoints) -> None:
    """Close this process's connection, if it has one."""
    with _connecting:
        connection = _connections.pop(points, None)
    if connection is not None:
        connection.session.cluster.shutdown()


def _open(points: ContactPoints) -> Session:
    try:
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
        from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
        from cassandra.query import tuple_factory
    except ImportError as failure:
        raise CassandraError(
            'the driver of Cassandra is not installed: `pip install "tidelog[cassandra]"` brings it'
        ) from failure
    from cassandra import ConsistencyLevel

    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy()),
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        request_timeout=REQUEST_TIMEOUT_S,
        row_factory=tuple_factory,
    )
    cluster = Cluster(
        contact_points=list(points.addresses),
        port=points.addresses[0][1],
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=CONNECT_TIMEOUT_S,
        control_connection_timeout=CONNECT_TIMEOUT_S,
    )
    try:
        return cluster.connect()
    except (NoHostAvailable, OSError) as failure:
        cluster.shutdown()
        raise CassandraError(
            f"Cassandra does not answer at {points}: start it, or correct the contact points, or leave them "
            f"out to keep tables in SQLite and Parquet ({_first_error(failure)})"
        ) from failure


def write_rows(
    points: ContactPoints,
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
    connection = connect(points)
    by_timestamp = timestamped or bool(table.newest_by)
    statement = connection.prepared(_upsert_of(keyspace, table, timestamped=by_timestamp))
    remaining = iter(rows)
    while chunk := list(islice(remaining, CHUNK_ROWS)):
        bound = [_bound(table, row) for row in chunk]
        for _ in _answers(connection.session, statement, bound, f"a row of table {table.name}"):
            pass


def read_rows(
    points: ContactPoints, query: str, keys: Iterable[tuple[Any, ...]], table: str
) -> Iterator[tuple[Any, ...]]:
    """The rows that a query finds for each of the keys, asked for side by side; in no order.

    :raises CassandraError: the query was refused, or failed :data:`ATTEMPTS` times.
    """
    connection = connect(points)
    statement = connection.prepared(query)
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
            elif _worth_repeating(answer):
                failures.append((values, answer))
            else:
                raise CassandraError(f"Cassandra refuses {what}: {_first_error(answer)}") from answer
        if not failures:
            return
        arguments = [values for values, _ in failures]
    raise CassandraError(
        f"Cassandra failed {ATTEMPTS} times at {what}, and at {len(arguments)} requests in all: "
        f"{_first_error(failures[0][1])}"
    )


def _bound(table: TableSpec, row: tuple[Any, ...]) -> tuple[Any, ...]:
    from cassandra.query import UNSET_VALUE

    if table.newest_by:
        time_ms = row[table.names.index(table.newest_by)]
        return (*row, time_ms * 1000)
    if not table.append_only:
        return row
    return tuple(UNSET_VALUE if value is None else value for value in row)


def _worth_repeating(failure: Exception) -> bool:
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionException
    from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage

    from cassandra import OperationTimedOut, ReadFailure, Timeout, Unavailable, WriteFailure

    return isinstance(
        failure,
        (
            *(OperationTimedOut, ReadFailure, Timeout, Unavailable, WriteFailure),
            *(NoHostAvailable, ConnectionException, OverloadedErrorMessage, IsBootstrappingErrorMessage),
        ),
    )


def _first_error(failure: Exception) -> str:
    errors = getattr(failure, "errors", None)
    if isinstance(errors, dict) and errors:
        return str(next(iter(errors.values())))
    return str(failure)
