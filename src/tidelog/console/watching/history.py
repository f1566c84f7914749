"""The console's memory: lag, rates and events of days, in one SQLite file. No other service is needed.

A figure is written when it has changed, or when it was last written ``_HEARTBEAT_S`` ago; so a gap that is
longer means that nobody looked. After a day the last figure of each five minutes is kept, after
``history_days`` nothing; single partitions have a table of their own (``partition_lag``). All calls run in
one thread of its own, never on the loop.

A crash of the console loses what was written in the last seconds at most. A crash of the machine may damage
the file (WAL, synchronous off: nothing waits for the disk). A damaged file is put aside, as
``history.sqlite.damaged``, and a fresh one is begun: at the start, where it is small enough to be
checked, or when damage is come upon. The history is never a reason to show nothing: while its file is
locked or its disk full, what is read of it is empty, and ``problems`` says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from tidelog.console.watching.changes import Event
from tidelog.console.watching.partition_lag import LagPoint, PartitionLag, PlaceLag
from tidelog.console.watching.rate_sums import RateSum, RateSums
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import ConfigError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Written = dict[tuple[str, ...], tuple[float, tuple[float | None, ...]]]
"""The last figures that are in the file, by name, with their time."""

_HEARTBEAT_S = 300
_COARSE_S = 300
_FINE_DAYS = 1
_REMEMBERED = 200_000
_DAY_S = 86_400
_CLEAN_EVERY_S = 3600.0
_CHECKED_BYTES = 64 * 1024 * 1024
"""A larger file is not checked at the start, which would take too long."""
_REMEDIES = {
    sqlite3.SQLITE_FULL: "free space on its disk",
    sqlite3.SQLITE_BUSY: "stop other programs that use it",
    sqlite3.SQLITE_LOCKED: "stop other programs that use it",
    sqlite3.SQLITE_IOERR: "check its disk, which may be full",
    sqlite3.SQLITE_READONLY: "give the console write access to it and its directory",
    sqlite3.SQLITE_CANTOPEN: "give the console write access to it and its directory",
}
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
        self._path = path
        self._days = days
        self._problems: dict[Literal["read", "written"], str] = {}
        self._thread = ThreadPoolExecutor(1, "console-history")
        self._written: Written = {}
        self._cleaned_s = time.monotonic()
        self._is_open = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._mended(self._check)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"--data-dir: cannot use the history {path} ({error}): choose another directory, or "
                "remove the file"
            ) from None

    @property
    def problems(self) -> list[str]:
        """Why the file could not be read or written the last time, and what to do."""
        return list(self._problems.values())

    @property
    def is_readable(self) -> bool:
        """Whether what was read last is all that there is."""
        return "read" not in self._problems

    async def write(
        self,
        cluster: str,
        at_s: int,
        lags: Iterable[LagFigure],
        rates: Iterable[RateFigure],
        events: Iterable[Event],
        partitions: Iterable[PlaceLag] | None = None,
    ) -> bool:
        """Keep what one look at a cluster has shown; False if nothing of it could be kept.

        ``partitions`` None leaves them for another look.
        """
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

        def write() -> bool:
            self._write(new_lags, new_rates, new_events, lambda: self._partitions.write(cluster, at_s, news))
            return True

        if not await self._try("written", write, False):
            if partitions is not None:
                self._partitions.forget_news(cluster)
            return False
        if len(self._written) > _REMEMBERED:
            self._written.clear()  # names come and go; at worst some figures are written once more
        self._written |= fresh
        if time.monotonic() - self._cleaned_s > _CLEAN_EVERY_S:
            self._cleaned_s = time.monotonic()
            await self._try("written", lambda: self.clean(int(time.time())), None)
        return True

    async def lag(self, cluster: str, group: str, since_s: int) -> dict[str, list[Point]]:
        """Lag by topic, in records and seconds."""
        rows = await self._rows(
            "SELECT topic, at_s, records, seconds FROM lag "
            "WHERE cluster = ? AND grp = ? AND at_s >= ? ORDER BY topic, at_s",
            (cluster, group, since_s - _HEARTBEAT_S),
        )
        found: dict[str, list[Point]] = {}
        for topic, at_s, records, seconds in rows:
            found.setdefault(topic, []).append(Point(at_s, (records, seconds)))
        return found

    async def partition_lag(
        self, cluster: str, group: str, topic: str, since_s: int
    ) -> dict[int, list[LagPoint]]:
        """Lag of a topic's partitions, of those that have been behind."""
        since_s -= _HEARTBEAT_S
        return await self._try("read", lambda: self._partitions.read(cluster, group, topic, since_s), {})

    async def rates(self, cluster: str, topic: str, since_s: int) -> list[Point]:
        """Records and bytes a second of a topic, or of all."""
        rows = await self._rows(
            "SELECT at_s, records, size_bytes FROM rate "
            "WHERE cluster = ? AND topic = ? AND at_s >= ? ORDER BY at_s",
            (cluster, topic, since_s - _HEARTBEAT_S),
        )
        return [Point(at_s, (records, size_bytes)) for at_s, records, size_bytes in rows]

    async def rates_together(self, cluster: str, topics: Collection[str], since_s: int) -> list[Point]:
        """Records and bytes a second of some topics in sum, at each moment when one of them has a figure."""
        nothing: list[RateSum] = []
        since_s -= _HEARTBEAT_S
        found = await self._try("read", lambda: self._sums.read(cluster, topics, since_s), nothing)
        return [Point(each.at_s, (each.records, each.size_bytes)) for each in found]

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
        rows = await self._rows(
            f"SELECT at_ms, kind, level, args FROM event WHERE {where} "
            "ORDER BY at_ms DESC, rowid DESC LIMIT ?",
            (*values, limit),
        )
        found: list[Event] = []
        for at_ms, kind, level, args in rows:
            with contextlib.suppress(*DECODE_ERRORS):  # damaged, and not so that SQLite knows it
                found.append(Event(at_ms, kind, level, msgspec.json.decode(args)))
        return found

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

    # The file

    async def _rows(self, query: str, values: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        return await self._try("read", lambda: self._db.execute(query, values).fetchall(), [])

    async def _try(self, use: Literal["read", "written"], action: Callable[[], T], otherwise: T) -> T:
        """Do something in the history's thread; what keeps it from being done is told, not raised."""
        try:
            done = await self._run(lambda: self._mended(action))
        except (sqlite3.Error, OSError) as error:
            self._note_problem(use, error)
            return otherwise
        if self._problems.pop(use, None) is not None:
            logger.info("the history %s can be %s again", self._path, use)
        return done

    async def _run(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, action)

    def _note_problem(self, use: Literal["read", "written"], error: Exception) -> None:
        remedy = _REMEDIES.get(_code(error), "stop the console, and move the file away")
        text = (
            f"the history {self._path} cannot be {use}, so charts and events are incomplete "
            f"({error}): {remedy}"
        )
        if self._problems.get(use) != text:
            logger.error("%s", text)
        self._problems[use] = text

    def _mended(self, action: Callable[[], T]) -> T:
        """Do something with the open file; with a fresh one, if it is damaged."""
        try:
            self._open()
            return action()
        except sqlite3.DatabaseError as error:
            if _code(error) != sqlite3.SQLITE_CORRUPT and not isinstance(error, _DamagedError):
                raise
            self._put_aside(error)
        self._open()
        return action()

    def _open(self) -> None:
        if self._is_open:
            return
        self._db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.executescript(_SCHEMA)
            self._partitions = PartitionLag(self._db)
            self._sums = RateSums(self._db)
        except sqlite3.Error:
            self._db.close()
            raise
        self._written = {}
        self._is_open = True

    def _check(self) -> None:
        """Raise if the file is damaged, as far as that is found quickly."""
        if self._path.stat().st_size > _CHECKED_BYTES:
            return
        (told,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if told != "ok":
            raise _DamagedError(told.splitlines()[-1])

    def _put_aside(self, error: sqlite3.Error) -> None:
        # Closed first: SQLite removes its log by name when it closes, be it that of another file by then.
        self._is_open = False
        self._db.close()
        aside = self._path.with_name(f"{self._path.name}.damaged")
        for end in ("", "-wal", "-shm"):
            target = aside.with_name(f"{aside.name}{end}")
            target.unlink(missing_ok=True)  # of the last time: one is kept
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(f"{self._path.name}{end}").replace(target)
        logger.error(
            "the history %s is damaged (%s): it was renamed to %s, and a new one was created",
            self._path,
            error,
            aside,
        )


class _DamagedError(sqlite3.DatabaseError):
    """What SQLite has found in a file."""


def _code(error: Exception) -> int:
    """SQLite's result code; 0 where the error is none of SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
