"""The console's memory: lag, rates and events of days, in one SQLite file. No other service is needed.

A figure is written when it has changed, or when it was last written ``_HEARTBEAT_S`` ago; so a gap that is
longer means that nobody looked. After a day the last figure of each five minutes is kept, after
``history_days`` nothing; single partitions have a table of their own (``partition_lag``). A crash loses what
was written in the last seconds at most (WAL, synchronous off: the file itself stays whole). All calls run in
one thread of its own, never on the loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from tidelog.console.watching.changes import Event
from tidelog.console.watching.partition_lag import LagPoint, PartitionLag, PlaceLag
from tidelog.errors import ConfigError

T = TypeVar("T")
Written = dict[tuple[str, ...], tuple[float, tuple[float | None, ...]]]
"""The last figures that are in the file, by name, with their time."""

_HEARTBEAT_S = 300
_COARSE_S = 300
_FINE_DAYS = 1
_REMEMBERED = 200_000
_DAY_S = 86_400
_CLEAN_EVERY_S = 3600.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS lag (
    cluster TEXT, grp TEXT, topic TEXT, at_s INTEGER, records INTEGER, seconds REAL,
    PRIMARY KEY (cluster, grp, topic, at_s)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rate (
    cluster TEXT, topic TEXT, at_s INTEGER, records REAL, size_bytes REAL,
    PRIMARY KEY (cluster, topic, at_s)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
    cluster TEXT, at_ms INTEGER, kind TEXT, level TEXT, args TEXT
);
CREATE INDEX IF NOT EXISTS event_place ON event (cluster, at_ms);
"""
_CLEAN = (
    "DELETE FROM {table} WHERE at_s < :fine AND EXISTS (SELECT 1 FROM {table} AS later WHERE "
    "{same} AND later.at_s > {table}.at_s AND later.at_s / :coarse = {table}.at_s / :coarse)"
)
ALL_TOPICS = ""
"""Stands for a cluster's whole traffic in the table of rates."""


class LagFigure(NamedTuple):
    """One group on one topic at one moment."""

    group: str
    topic: str
    records: int
    seconds: float | None


class RateFigure(NamedTuple):
    """What is written to one topic, or to all."""

    topic: str
    records: float
    size_bytes: float


class Point(NamedTuple):
    """A place on a chart."""

    at_s: int
    values: tuple[float | None, ...]


class History:
    """One file; several clusters share it."""

    def __init__(self, path: Path, days: float) -> None:
        self._days = days
        self._thread = ThreadPoolExecutor(1, "console-history")
        self._written: Written = {}
        self._cleaned_s = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.executescript(_SCHEMA)
            self._partitions = PartitionLag(self._db)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"--data-dir: the history {path} cannot be used ({error}): name another directory, "
                "or remove the file"
            ) from None

    async def write(
        self,
        cluster: str,
        at_s: int,
        lags: Iterable[LagFigure],
        rates: Iterable[RateFigure],
        events: Iterable[Event],
        partitions: Iterable[PlaceLag] | None = None,
    ) -> None:
        """Keep what one look at a cluster has shown; ``partitions`` None leaves them for another look."""
        fresh: Written = {}
        new_lags = [
            (cluster, each.group, each.topic, at_s, each.records, each.seconds)
            for each in lags
            if self._is_news(
                fresh, ("lag", cluster, each.group, each.topic), at_s, (each.records, each.seconds)
            )
        ]
        new_rates = [
            (cluster, each.topic, at_s, each.records, each.size_bytes)
            for each in rates
            if self._is_news(fresh, ("rate", cluster, each.topic), at_s, (each.records, each.size_bytes))
        ]
        new_events: list[tuple[str, int, str, str, str]] = [
            (cluster, each.at_ms, each.kind, each.level, msgspec.json.encode(each.args).decode())
            for each in events
        ]
        news = [] if partitions is None else self._partitions.news(cluster, at_s, partitions)

        def write() -> None:
            self._write(new_lags, new_rates, new_events, lambda: self._partitions.write(cluster, at_s, news))

        try:
            await self._run(write)
        except Exception:
            if partitions is not None:
                self._partitions.forget_news(cluster)
            raise
        if len(self._written) > _REMEMBERED:
            self._written.clear()  # names come and go; at worst some figures are written once more
        self._written |= fresh
        if time.monotonic() - self._cleaned_s > _CLEAN_EVERY_S:
            self._cleaned_s = time.monotonic()
            await self._run(lambda: self.clean(int(time.time())))

    async def lag(self, cluster: str, group: str, since_s: int) -> dict[str, list[Point]]:
        """Lag by topic, in records and seconds."""
        rows = await self._run(
            lambda: self._db.execute(
                "SELECT topic, at_s, records, seconds FROM lag "
                "WHERE cluster = ? AND grp = ? AND at_s >= ? ORDER BY topic, at_s",
                (cluster, group, since_s - _HEARTBEAT_S),
            ).fetchall()
        )
        found: dict[str, list[Point]] = {}
        for topic, at_s, records, seconds in rows:
            found.setdefault(topic, []).append(Point(at_s, (records, seconds)))
        return found

    async def partition_lag(
        self, cluster: str, group: str, topic: str, since_s: int
    ) -> dict[int, list[LagPoint]]:
        """Lag of a topic's partitions, of those that have been behind."""
        return await self._run(lambda: self._partitions.read(cluster, group, topic, since_s - _HEARTBEAT_S))

    async def rates(self, cluster: str, topic: str, since_s: int) -> list[Point]:
        """Records and bytes a second of a topic, or of all."""
        rows = await self._run(
            lambda: self._db.execute(
                "SELECT at_s, records, size_bytes FROM rate "
                "WHERE cluster = ? AND topic = ? AND at_s >= ? ORDER BY at_s",
                (cluster, topic, since_s - _HEARTBEAT_S),
            ).fetchall()
        )
        return [Point(at_s, (records, size_bytes)) for at_s, records, size_bytes in rows]

    async def events(
        self, cluster: str, limit: int, kinds: Sequence[str] = (), group: str | None = None
    ) -> list[Event]:
        """The newest events first: all, or those of some kinds, or about one group."""
        where, values = "cluster = ?", [cluster]
        if kinds:
            where += f" AND kind IN ({', '.join('?' * len(kinds))})"
            values += kinds
        if group is not None:
            where += " AND json_extract(args, '$.group') = ?"
            values.append(group)
        rows = await self._run(
            lambda: self._db.execute(
                f"SELECT at_ms, kind, level, args FROM event WHERE {where} "
                "ORDER BY at_ms DESC, rowid DESC LIMIT ?",
                (*values, limit),
            ).fetchall()
        )
        return [Event(at_ms, kind, level, msgspec.json.decode(args)) for at_ms, kind, level, args in rows]

    async def close(self) -> None:
        """Write what is under way, and let go of the file."""
        await self._run(self._db.close)
        self._thread.shutdown()

    def _is_news(
        self, fresh: Written, name: tuple[str, ...], at_s: int, values: tuple[float | None, ...]
    ) -> bool:
        """Whether a figure is worth a row; it is put among the ``fresh`` ones then."""
        written_s, known = self._written.get(name, (0.0, None))
        if known == values and at_s - written_s < _HEARTBEAT_S:
            return False
        if known is None and not any(values) and name[0] == "rate" and name[-1] != ALL_TOPICS:
            return False  # a topic to which nobody has ever written
        fresh[name] = at_s, values
        return True

    def _write(
        self,
        lags: list[tuple[str, str, str, int, int, float | None]],
        rates: list[tuple[str, str, int, float, float]],
        events: list[tuple[str, int, str, str, str]],
        more: Callable[[], None],
    ) -> None:
        self._db.execute("BEGIN")
        try:
            self._db.executemany("INSERT OR REPLACE INTO lag VALUES (?, ?, ?, ?, ?, ?)", lags)
            self._db.executemany("INSERT OR REPLACE INTO rate VALUES (?, ?, ?, ?, ?)", rates)
            self._db.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?)", events)
            more()
            self._db.execute("COMMIT")
        except Exception:
            # First: ids of series that are rolled back are given to others.
            self._partitions.forget_names()
            if self._db.in_transaction:  # what a full disk does not let it commit, SQLite itself rolls back
                self._db.execute("ROLLBACK")
            raise

    def clean(self, now_s: int) -> None:
        """Drop what is too old, and thin out what is older than a day; for the history's own thread."""
        oldest_s = int(now_s - self._days * _DAY_S)
        bounds = {"fine": now_s - _FINE_DAYS * _DAY_S, "coarse": _COARSE_S}
        for table, same in (
            ("lag", "later.cluster = lag.cluster AND later.grp = lag.grp AND later.topic = lag.topic"),
            ("rate", "later.cluster = rate.cluster AND later.topic = rate.topic"),
        ):
            self._db.execute(f"DELETE FROM {table} WHERE at_s < ?", (oldest_s,))
            self._db.execute(_CLEAN.format(table=table, same=same), bounds)
        self._db.execute("DELETE FROM event WHERE at_ms < ?", (oldest_s * 1000,))
        self._partitions.clean(now_s, oldest_s)

    async def _run(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, action)
