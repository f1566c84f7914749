"""The ledger in Cassandra: entries upserted under their own keys, what follows computed by Cassandra itself.

There are no transactions over rows, and none are needed: entries first, derived rows after them, each step
with a quorum. A crash in between leaves derived rows that are behind the ledger until the replay of the batch
writes them. The sums of a day are one partition, grouped where it is stored; nothing but sums comes to the
task. All parts of the ledger are in the same tables; the task of a part names its own users only.

Several processes may write side by side, a stream and a backfill say, on machines whose clocks differ. So the
timestamp of a derived row is not a time: it is the number of entries that the row was derived from. Entries
are only ever added, and of two that add entries at least one reads after both have; its row counts more of
them than any other and stays, whoever comes last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tidelog.spark.sinks.cassandra import CassandraTables
from tidelog.spark.sinks.cassandra_connection import cluster_of, connect
from tidelog.spark.sinks.cassandra_writer import read_rows, write_rows
from tidelog.spark.sinks.table import ColumnSpec, ColumnType, TableSpec
from tidelog_rewards.jobs.earnings.key_spill import KeySpill, Touched
from tidelog_rewards.jobs.earnings.schema import (
    Credit,
    TaskProgress,
    TaskStep,
    UserEarnings,
    last_day_before,
    user_earnings,
    user_row,
)

if TYPE_CHECKING:
    from tidelog.spark.settings import PipelineSettings

USERS_PER_CHUNK = 5_000


def _table(name: str, partition: int, key: int, **columns: ColumnType) -> TableSpec:
    names = tuple(columns)
    specs = tuple(ColumnSpec(name, type_) for name, type_ in columns.items())
    return TableSpec(name, specs, primary_key=names[:key], partition_key=names[:partition])


CREDITS = _table(
    "user_credits", 2, 4,
    user_id="string", day="string", source="string", event_id="string", amount_cents="long",
    event_time="string",
)  # fmt: skip
STEPS = _table(
    "user_task_steps", 1, 5,
    user_id="string", task_id="string", step="long", event_time="string", steps="long",
)  # fmt: skip
DAILY = _table(
    "user_earnings_daily", 1, 3,
    user_id="string", day="string", source="string", amount_cents="long", credits="long",
    last_event_time="string",
)  # fmt: skip
TASKS = _table(
    "user_tasks", 1, 2,
    user_id="string", task_id="string", steps_done="long", steps="long", completed_at="string",
    last_event_time="string",
)  # fmt: skip
USERS = _table(
    "user_earnings", 1, 1,
    user_id="string", total_cents="long", credits="long", by_source="string", tasks_open="long",
    tasks_completed="long", as_of="string",
)  # fmt: skip

_SUM_OF_DAY = (
    "SELECT user_id, day, source, sum(amount_cents), count(*), max(event_time) "
    'FROM "{keyspace}".user_credits WHERE user_id = ? AND day = ? GROUP BY user_id, day, source'
)
_CREDITS_OF_SUM = 4
"""Where in a row of that query the number of its entries stands."""
_STEPS_OF_TASK = (
    "SELECT user_id, task_id, step, min(event_time), max(event_time), max(steps), count(*) "
    'FROM "{keyspace}".user_task_steps WHERE user_id = ? AND task_id = ? GROUP BY user_id, task_id, step'
)
_DAYS_OF_USER = (
    "SELECT user_id, source, amount_cents, credits, last_event_time "
    'FROM "{keyspace}".user_earnings_daily WHERE user_id = ?'
)
_TASKS_OF_USER = (
    "SELECT user_id, task_id, writetime(steps_done), steps_done, steps, completed_at, last_event_time "
    'FROM "{keyspace}".user_tasks WHERE user_id = ?'
)


class CassandraLedger:
    """Ledger and derived tables in one keyspace."""

    excludes_others = False

    def __init__(self, settings: PipelineSettings) -> None:
        assert settings.cassandra is not None
        self._cluster = cluster_of(settings)
        self._keyspace = settings.keyspace
        self._tables = CassandraTables(settings.cassandra, settings.keyspace, settings.cassandra_options)

    def ensure(self) -> None:
        """Make the tables that are missing."""
        for table in (CREDITS, STEPS, DAILY, TASKS, USERS):
            self._tables.ensure(table)

    def close(self) -> None:
        """Nothing is to be done: the process's connection is shared."""

    def turn(self) -> AbstractContextManager[None]:
        """Processes on many machines do not wait for one another; :meth:`newer_than` makes up for it."""
        return nullcontext()

    def newer_than(self, states: Sequence[UserEarnings]) -> list[UserEarnings]:
        """Read once more, and return the states that are others now."""
        known = {state.user_id: state for state in states}
        return [state for state, _ in self._states(set(known)) if state != known[state.user_id]]

    def merge(self, credits: Sequence[Credit], steps: Sequence[TaskStep]) -> list[UserEarnings]:
        """Put entries in, then derive."""
        self._write(CREDITS, set(credits))
        self._write(STEPS, set(steps))
        return self._derive(
            days={(each.user_id, each.day) for each in credits},
            tasks={(each.user_id, each.task_id) for each in steps},
        )

    def recompute(self, start: str, end: str) -> Iterator[list[UserEarnings]]:
        """Derive anew what the entries of a range bear on; without an index by time, all keys are read."""
        with KeySpill() as spill:
            spill.add(self.touched(start, end))
            for days, tasks in spill.chunks(USERS_PER_CHUNK):
                yield self.derive(days, tasks)

    def touched(self, start: str, end: str, number: int = 0, of: int = 1) -> Iterator[Touched]:
        """The keys that entries of a range bear on: slice ``number`` of the ring ``of`` so many."""
        bounds = _slice(number, of)
        first_day, last_day = start[:10], last_day_before(end)
        for user_id, day in self._scan(
            "SELECT DISTINCT user_id, day FROM {table} WHERE token(user_id, day) >= ? "
            "AND token(user_id, day) <= ?",
            CREDITS,
            bounds,
        ):
            if first_day <= day <= last_day:
                yield Touched(user_id, day, "")
        for user_id, task_id, event_time in self._scan(
            "SELECT user_id, task_id, event_time FROM {table} WHERE token(user_id) >= ? "
            "AND token(user_id) <= ?",
            STEPS,
            bounds,
        ):
            if start <= event_time < end:
                yield Touched(user_id, "", task_id)

    def _scan(self, query: str, table: TableSpec, bounds: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
        """All rows of a slice, which the driver of Cassandra brings page by page."""
        connection = connect(self._cluster)
        text = query.format(table=f'"{self._keyspace}".{table.name}')
        yield from connection.session.execute(connection.reading(text), bounds, timeout=None)

    def derive(self, days: Iterable[tuple[str, str]], tasks: Iterable[tuple[str, str]]) -> list[UserEarnings]:
        """Derive days and tasks anew from the entries; returns the states of their users."""
        return self._derive(set(days), set(tasks))

    def _derive(self, days: set[tuple[str, str]], tasks: set[tuple[str, str]]) -> list[UserEarnings]:
        sums = self._select(_SUM_OF_DAY, CREDITS, days)
        self._write(DAILY, ((*row, row[_CREDITS_OF_SUM]) for row in sums), timestamped=True)
        self._write(TASKS, _progress(self._select(_STEPS_OF_TASK, STEPS, tasks)), timestamped=True)
        found = self._states({user for user, _ in (*days, *tasks)})
        self._write(USERS, ((*user_row(state), entries) for state, entries in found), timestamped=True)
        return [state for state, _ in found]

    def _states(self, users: set[str]) -> list[tuple[UserEarnings, int]]:
        """The states of users, each with the number of entries behind it."""
        keys = [(user,) for user in users]
        entries: dict[str, int] = defaultdict(int)
        sources: dict[str, dict[str, tuple[int, int, str]]] = defaultdict(dict)
        for user_id, source, cents, credits, last in self._select(_DAYS_OF_USER, DAILY, keys):
            known = sources[user_id].get(source, (0, 0, ""))
            sources[user_id][source] = (known[0] + cents, known[1] + credits, max(known[2], last))
            entries[user_id] += credits
        tasks: dict[str, dict[str, TaskProgress]] = defaultdict(dict)
        for user_id, task_id, steps, *progress in self._select(_TASKS_OF_USER, TASKS, keys):
            tasks[user_id][task_id] = TaskProgress(*progress)
            entries[user_id] += steps
        return [
            (
                user_earnings(user, [(source, *sums) for source, sums in sources[user].items()], tasks[user]),
                entries[user],
            )
            for user in sorted(users)
        ]

    def _write(self, table: TableSpec, rows: Iterable[tuple[Any, ...]], *, timestamped: bool = False) -> None:
        write_rows(self._cluster, self._keyspace, table, rows, timestamped=timestamped)

    def _select(
        self, query: str, table: TableSpec, keys: Iterable[tuple[str, ...]]
    ) -> Iterator[tuple[Any, ...]]:
        return read_rows(self._cluster, query.format(keyspace=self._keyspace), keys, table.name)


def _slice(number: int, of: int) -> tuple[int, int]:
    """The first and the last token of a slice of the ring."""
    edges = [-(2**63) + 2**64 * index // of for index in (number, number + 1)]
    return edges[0], edges[1] - 1


def _progress(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """``(user, task, step, first, last, steps, entries)`` of each step as the task's row and its entries."""
    found: dict[tuple[str, str], list[tuple[int, str, str, int, int]]] = defaultdict(list)
    for user_id, task_id, *step in rows:
        found[user_id, task_id].append((step[0], step[1], step[2], step[3], step[4]))
    for (user_id, task_id), done in found.items():
        steps = max(each[3] for each in done)
        counted = [each for each in done if each[0] <= steps]
        completed_at = max(each[1] for each in counted) if len(counted) == steps else None
        entries = sum(each[4] for each in done)
        yield user_id, task_id, len(counted), steps, completed_at, max(each[2] for each in done), entries
