"""The ledger in SQLite, a part to a file: one transaction for each merge, so entries and what follows from
them never part.

Write-ahead logging lets people read while a merge runs; a merge takes the write lock at once and waits for
other writers, so that two merges (the stream's and a backfill's) run one after the other. It also means that
all processes that have a file open are on one machine. ``synchronous=FULL``: what was merged survives a crash
of the machine. A worker keeps the files that it has opened (:func:`opened`).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidelog_rewards.jobs.earnings.schema import (
    Credit,
    TaskProgress,
    TaskStep,
    UserEarnings,
    last_day_before,
    user_earnings,
    user_row,
)

BUSY_TIMEOUT_S = 60.0
USERS_PER_TRANSACTION = 5_000
_DAY_OF_CREDIT, _TASK_OF_STEP = 2, 2
"""So many of the first fields of an entry name what is derived from it."""

# SQLite's own cache of 2 MB and checkpoints at 4 MB make a batch of 100,000 events take three times as long.
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "temp_store=MEMORY",
    "cache_size=-65536",
    "wal_autocheckpoint=8000",
)

_TABLES = """
CREATE TABLE IF NOT EXISTS user_credits (
    user_id TEXT NOT NULL, day TEXT NOT NULL, source TEXT NOT NULL, event_id TEXT NOT NULL,
    amount_cents INTEGER NOT NULL, event_time TEXT NOT NULL,
    PRIMARY KEY (user_id, day, source, event_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS user_task_steps (
    user_id TEXT NOT NULL, task_id TEXT NOT NULL, step INTEGER NOT NULL, event_time TEXT NOT NULL,
    steps INTEGER NOT NULL,
    PRIMARY KEY (user_id, task_id, step, event_time, steps)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS user_earnings_daily (
    user_id TEXT NOT NULL, day TEXT NOT NULL, source TEXT NOT NULL,
    amount_cents INTEGER NOT NULL, credits INTEGER NOT NULL, last_event_time TEXT NOT NULL,
    PRIMARY KEY (user_id, day, source)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS user_tasks (
    user_id TEXT NOT NULL, task_id TEXT NOT NULL,
    steps_done INTEGER NOT NULL, steps INTEGER NOT NULL, completed_at TEXT, last_event_time TEXT NOT NULL,
    PRIMARY KEY (user_id, task_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS user_earnings (
    user_id TEXT NOT NULL PRIMARY KEY,
    total_cents INTEGER NOT NULL, credits INTEGER NOT NULL, by_source TEXT NOT NULL,
    tasks_open INTEGER NOT NULL, tasks_completed INTEGER NOT NULL, as_of TEXT NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS touched_days (
    user_id TEXT, day TEXT, PRIMARY KEY (user_id, day)) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS touched_tasks (
    user_id TEXT, task_id TEXT, PRIMARY KEY (user_id, task_id)) WITHOUT ROWID;
CREATE TEMP TABLE IF NOT EXISTS touched_users (user_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""

# The joins are CROSS so that SQLite starts from the few touched keys, whatever its statistics say.
_FORGET_DAYS = """
DELETE FROM user_earnings_daily WHERE (user_id, day) IN (SELECT user_id, day FROM touched_days)
"""
_DAILY = """
INSERT INTO user_earnings_daily (user_id, day, source, amount_cents, credits, last_event_time)
SELECT c.user_id, c.day, c.source, sum(c.amount_cents), count(*), max(c.event_time)
FROM touched_days t CROSS JOIN user_credits c ON c.user_id = t.user_id AND c.day = t.day
GROUP BY c.user_id, c.day, c.source
ON CONFLICT DO UPDATE SET amount_cents = excluded.amount_cents, credits = excluded.credits,
    last_event_time = excluded.last_event_time
"""
_TASKS = """
INSERT OR REPLACE INTO user_tasks (user_id, task_id, steps_done, steps, completed_at, last_event_time)
SELECT user_id, task_id, count(*) FILTER (WHERE step <= steps), steps,
       iif(count(*) FILTER (WHERE step <= steps) = steps, max(first_time) FILTER (WHERE step <= steps), NULL),
       max(last_time)
FROM (
    SELECT s.user_id, s.task_id, s.step, min(s.event_time) AS first_time, max(s.event_time) AS last_time,
           max(max(s.steps)) OVER (PARTITION BY s.user_id, s.task_id) AS steps
    FROM touched_tasks t CROSS JOIN user_task_steps s ON s.user_id = t.user_id AND s.task_id = t.task_id
    GROUP BY s.user_id, s.task_id, s.step
)
GROUP BY user_id, task_id
"""
# The users that entries of a range bear on, in the order of their names; each list ends by itself, so that
# the next users cost what the last ones did.
_USERS_OF_RANGE = """
SELECT user_id FROM (
    SELECT * FROM (SELECT DISTINCT user_id FROM user_credits
        WHERE user_id > :after AND day BETWEEN :first AND :last ORDER BY user_id LIMIT :most)
    UNION SELECT * FROM (SELECT DISTINCT user_id FROM user_earnings_daily
        WHERE user_id > :after AND day BETWEEN :first AND :last ORDER BY user_id LIMIT :most)
    UNION SELECT * FROM (SELECT DISTINCT user_id FROM user_task_steps
        WHERE user_id > :after AND event_time >= :start AND event_time < :end ORDER BY user_id LIMIT :most)
) ORDER BY user_id LIMIT :most
"""
_DAYS_OF_RANGE = """
INSERT INTO touched_days
SELECT c.user_id, c.day FROM touched_users u CROSS JOIN user_credits c ON c.user_id = u.user_id
WHERE c.day BETWEEN :first AND :last
UNION
SELECT d.user_id, d.day FROM touched_users u CROSS JOIN user_earnings_daily d ON d.user_id = u.user_id
WHERE d.day BETWEEN :first AND :last
"""
_TASKS_OF_RANGE = """
INSERT INTO touched_tasks
SELECT DISTINCT s.user_id, s.task_id
FROM touched_users u CROSS JOIN user_task_steps s ON s.user_id = u.user_id
WHERE s.event_time >= :start AND s.event_time < :end
"""
_USERS = """
INSERT INTO user_earnings (user_id, total_cents, credits, by_source, tasks_open, tasks_completed, as_of)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET total_cents = excluded.total_cents, credits = excluded.credits,
    by_source = excluded.by_source, tasks_open = excluded.tasks_open,
    tasks_completed = excluded.tasks_completed, as_of = excluded.as_of
"""
_BY_SOURCE = """
SELECT d.user_id, d.source, sum(d.amount_cents), sum(d.credits), max(d.last_event_time)
FROM touched_users u CROSS JOIN user_earnings_daily d ON d.user_id = u.user_id
GROUP BY d.user_id, d.source
"""
_TASKS_OF = """
SELECT k.user_id, k.task_id, k.steps_done, k.steps, k.completed_at, k.last_event_time
FROM touched_users u CROSS JOIN user_tasks k ON k.user_id = u.user_id
"""


_opened: dict[tuple[int, Path], SqliteLedger] = {}
"""By process, because a forked worker cannot use its parent's."""


def opened(path: Path) -> SqliteLedger:
    """The ledger of a file, opened once in a process, and again if the file is another."""
    key = (os.getpid(), path)
    ledger = _opened.get(key)
    if ledger is None or not ledger.is_current:
        if ledger is not None:
            ledger.close()
        ledger = _opened[key] = SqliteLedger(path)
    return ledger


class SqliteLedger:
    """Ledger and derived tables in one SQLite file."""

    excludes_others = True

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Spark calls from whichever thread runs the micro-batch; it is one at a time.
        self._connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._path = path
        self._turn = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        for pragma in _PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(_TABLES)
        self._inode = path.stat().st_ino

    @property
    def is_current(self) -> bool:
        """Whether the file that is open is the one that is there."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        os.close(self._turn)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold a lock beside the tables: to a second process, merging and publishing are one thing."""
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def merge(self, credits: Sequence[Credit], steps: Sequence[TaskStep]) -> list[UserEarnings]:
        """Put entries in, derive, and read the states of all users named, as one transaction."""
        # In the order of their keys: neighbours go to the same page.
        credits, steps = sorted(credits), sorted(steps)
        with self._transaction():
            self._insert(credits, steps)
            self._touch(
                days=dict.fromkeys(each[:_DAY_OF_CREDIT] for each in credits),
                tasks=dict.fromkeys(each[:_TASK_OF_STEP] for each in steps),
            )
            return self._derive()

    def newer_than(self, states: Sequence[UserEarnings]) -> list[UserEarnings]:
        """Nothing: who has the turn is alone."""
        return []

    def recompute(self, start: str, end: str) -> Iterator[list[UserEarnings]]:
        """Derive anew what the entries of a time range bear on, some thousand users to a transaction."""
        within = {"first": start[:10], "last": last_day_before(end), "start": start, "end": end}
        after = ""
        while True:
            with self._transaction():
                users = self._execute(
                    _USERS_OF_RANGE, {**within, "after": after, "most": USERS_PER_TRANSACTION}
                ).fetchall()
                if not users:
                    return
                self._touch((), ())
                self._connection.executemany("INSERT INTO touched_users VALUES (?)", users)
                self._execute(_DAYS_OF_RANGE, within)
                self._execute(_TASKS_OF_RANGE, within)
                self._execute(_FORGET_DAYS)
                states = self._derive()
            yield states
            after = users[-1][0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._execute("ROLLBACK")
            raise
        self._execute("COMMIT")

    def _execute(
        self, statement: str, values: Sequence[object] | Mapping[str, object] = ()
    ) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    def _insert(self, credits: Sequence[Credit], steps: Sequence[TaskStep]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO user_credits (user_id, day, source, event_id, amount_cents, event_time) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            credits,
        )
        self._connection.executemany(
            "INSERT OR IGNORE INTO user_task_steps (user_id, task_id, step, event_time, steps) "
            "VALUES (?, ?, ?, ?, ?)",
            steps,
        )

    def _touch(self, days: Iterable[tuple[object, ...]], tasks: Iterable[tuple[object, ...]]) -> None:
        for table in ("touched_days", "touched_tasks", "touched_users"):
            self._execute(f"DELETE FROM {table}")
        self._connection.executemany("INSERT INTO touched_days VALUES (?, ?)", days)
        self._connection.executemany("INSERT INTO touched_tasks VALUES (?, ?)", tasks)
        self._execute("INSERT OR IGNORE INTO touched_users SELECT user_id FROM touched_days")
        self._execute("INSERT OR IGNORE INTO touched_users SELECT user_id FROM touched_tasks")

    def _derive(self) -> list[UserEarnings]:
        self._execute(_DAILY)
        self._execute(_TASKS)
        states = self._states()
        self._connection.executemany(
            _USERS,
            map(user_row, states),
        )
        return states

    def _states(self) -> list[UserEarnings]:
        sources: dict[str, list[tuple[str, int, int, str]]] = defaultdict(list)
        for user_id, source, cents, credits, last_time in self._execute(_BY_SOURCE):
            sources[user_id].append((source, cents, credits, last_time))
        tasks: dict[str, dict[str, TaskProgress]] = defaultdict(dict)
        for user_id, task_id, *progress in self._execute(_TASKS_OF):
            tasks[user_id][task_id] = TaskProgress(*progress)
        users = self._execute("SELECT user_id FROM touched_users ORDER BY user_id").fetchall()
        return [
            user_earnings(user_id, sources.get(user_id, ()), tasks.get(user_id, {})) for (user_id,) in users
        ]
