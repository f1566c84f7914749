"""The ledger in SQLite: one transaction for each merge, so entries and what follows from them never part.

The file is shared with other pipelines' tables. Write-ahead logging lets people read while a merge runs; a
merge takes the write lock at once and waits for other writers, so that two merges (the stream's and a
backfill's) run one after the other. ``synchronous=FULL``: what was merged survives a crash of the machine.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidelog.pipelines.earnings.schema import (
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
INSERT OR REPLACE INTO user_earnings_daily (user_id, day, source, amount_cents, credits, last_event_time)
SELECT c.user_id, c.day, c.source, sum(c.amount_cents), count(*), max(c.event_time)
FROM touched_days t CROSS JOIN user_credits c ON c.user_id = t.user_id AND c.day = t.day
GROUP BY c.user_id, c.day, c.source
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
_BY_SOURCE = """
SELECT d.user_id, d.source, sum(d.amount_cents), sum(d.credits), max(d.last_event_time)
FROM touched_users u CROSS JOIN user_earnings_daily d ON d.user_id = u.user_id
GROUP BY d.user_id, d.source
"""
_TASKS_OF = """
SELECT k.user_id, k.task_id, k.steps_done, k.steps, k.completed_at, k.last_event_time
FROM touched_users u CROSS JOIN user_tasks k ON k.user_id = u.user_id
"""


class SqliteLedger:
    """Ledger and derived tables in one SQLite file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Spark calls from whichever thread runs the micro-batch; it is one at a time.
        self._connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._turn = os.open(path.with_name("earnings.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        for pragma in _PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(_TABLES)

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
        with self._transaction():
            self._insert(credits, steps)
            self._touch(
                days={(each.user_id, each.day) for each in credits},
                tasks={(each.user_id, each.task_id) for each in steps},
            )
            return self._derive()

    def newer_than(self, states: Sequence[UserEarnings]) -> list[UserEarnings]:
        """Nothing: who has the turn is alone."""
        return []

    def recompute(self, start: str, end: str) -> Iterator[list[UserEarnings]]:
        """Derive anew what the entries of a time range bear on, some thousand users to a transaction."""
        first_day, last_day = start[:10], last_day_before(end)
        days = self._execute(
            "SELECT user_id, day FROM user_credits WHERE day BETWEEN ?1 AND ?2 "
            "UNION SELECT user_id, day FROM user_earnings_daily WHERE day BETWEEN ?1 AND ?2",
            (first_day, last_day),
        )
        tasks = self._execute(
            "SELECT DISTINCT user_id, task_id FROM user_task_steps WHERE event_time >= ? AND event_time < ?",
            (start, end),
        )
        by_user: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for user_id, day in days:
            by_user[user_id][0].append(day)
        for user_id, task_id in tasks:
            by_user[user_id][1].append(task_id)
        for users in _chunks(sorted(by_user), USERS_PER_TRANSACTION):
            with self._transaction():
                self._touch(
                    days=[(user, day) for user in users for day in by_user[user][0]],
                    tasks=[(user, task) for user in users for task in by_user[user][1]],
                )
                self._execute(_FORGET_DAYS)
                states = self._derive()
            yield states

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._execute("ROLLBACK")
            raise
        self._execute("COMMIT")

    def _execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    def _insert(self, credits: Sequence[Credit], steps: Sequence[TaskStep]) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO user_credits (user_id, day, source, event_id, amount_cents, event_time) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                (each.user_id, each.day, each.source, each.event_id, each.amount_cents, each.event_time)
                for each in credits
            ),
        )
        self._connection.executemany(
            "INSERT OR IGNORE INTO user_task_steps (user_id, task_id, step, event_time, steps) "
            "VALUES (?, ?, ?, ?, ?)",
            ((each.user_id, each.task_id, each.step, each.event_time, each.steps) for each in steps),
        )

    def _touch(self, days: Iterable[tuple[str, str]], tasks: Iterable[tuple[str, str]]) -> None:
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
            "INSERT OR REPLACE INTO user_earnings "
            "(user_id, total_cents, credits, by_source, tasks_open, tasks_completed, as_of) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            map(user_row, states),
        )
        return states

    def _states(self) -> list[UserEarnings]:
        sources: dict[str, list[tuple[str, int, int, str]]] = defaultdict(list)
        for user_id, *source in self._execute(_BY_SOURCE):
            sources[user_id].append((source[0], source[1], source[2], source[3]))
        tasks: dict[str, dict[str, TaskProgress]] = defaultdict(dict)
        for user_id, task_id, *progress in self._execute(_TASKS_OF):
            tasks[user_id][task_id] = TaskProgress(*progress)
        users = self._execute("SELECT user_id FROM touched_users ORDER BY user_id").fetchall()
        return [
            user_earnings(user_id, sources.get(user_id, ()), tasks.get(user_id, {})) for (user_id,) in users
        ]


def _chunks(users: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(users), size):
        yield users[start : start + size]
