"""The tables of earnings, and how a user's state looks in the topic.

Two tables are the ledger: what happened, one row per event, under keys made of the event itself. Putting an
entry in again changes nothing, so they can be filled any number of times, in any order, by anybody. The other
three say what follows from the ledger, as absolute values that are computed anew from it.

    user_credits         user_id, day | source, event_id    amount_cents, event_time
    user_task_steps      user_id | task_id, step, event_time, steps
    user_earnings_daily  user_id | day, source              amount_cents, credits, last_event_time
    user_tasks           user_id | task_id                  steps_done, steps, completed_at, last_event_time
    user_earnings        user_id                            total_cents, credits, by_source, …, as_of

Before the bar stands Cassandra's partition key. Times are UTC in ISO 8601 with milliseconds, so that their
order as text is their order in time; ``day`` is their first ten characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from tidelog_rewards import events

MAXIMUM_CENTS = 10_000_000_000
"""The largest amount of one credit; beyond it the event is a mistake, and sums stay within 64 bits."""

MAXIMUM_STEPS = 10_000
"""The longest task."""

PUBLISHED_TASKS = 100
"""How many tasks a state in the topic names at most, open ones first, then the latest; the table has all, and
``tasks_open`` and ``tasks_completed`` count all."""

PUBLISHED_BYTES = 900_000
"""How large a state in the topic is at most: brokers take a megabyte unless they are told otherwise, and ids
may be so long that the state of a hundred tasks would stop the pipeline for good."""

_encode = msgspec.json.Encoder().encode

TOPIC = events.USER_EARNINGS
TABLES = ("user_earnings", "user_earnings_daily", "user_tasks")


class Credit(NamedTuple):
    """One event that gave a user money: a row of ``user_credits``; ``day`` is that of ``event_time``."""

    user_id: str
    day: str
    source: str
    event_id: str
    amount_cents: int
    event_time: str


class TaskStep(NamedTuple):
    """One event that says that a user did a step of a task: a row of ``user_task_steps``."""

    user_id: str
    task_id: str
    step: int
    event_time: str
    steps: int


class TaskProgress(msgspec.Struct, frozen=True, gc=False):
    """How far a user is with a task; ``completed_at`` is when the last missing step was first done."""

    steps_done: int
    steps: int
    completed_at: str | None
    last_event_time: str


class UserEarnings(msgspec.Struct, frozen=True):
    """Everything that follows from a user's part of the ledger; ``as_of`` is its latest event."""

    user_id: str
    total_cents: int
    credits: int
    by_source: Mapping[str, int]
    tasks: Mapping[str, TaskProgress]
    as_of: str

    @property
    def tasks_completed(self) -> int:
        """How many tasks have all their steps done."""
        return sum(task.completed_at is not None for task in self.tasks.values()) if self.tasks else 0


def last_day_before(time: str) -> str:
    """The last day with a moment before ``time``."""
    moment = datetime.fromisoformat(time) - timedelta(milliseconds=1)
    return moment.date().isoformat()


def user_earnings(
    user_id: str, sources: Sequence[tuple[str, int, int, str]], tasks: Mapping[str, TaskProgress]
) -> UserEarnings:
    """A user's state from ``(source, cents, credits, last event)`` and the tasks."""
    total_cents = total_credits = 0
    by_source: dict[str, int] = {}
    as_of = max((task.last_event_time for task in tasks.values()), default="") if tasks else ""
    for source, cents, credits, last in sources:
        total_cents += cents
        total_credits += credits
        by_source[source] = cents
        as_of = max(as_of, last)
    return UserEarnings(user_id, total_cents, total_credits, by_source, tasks, as_of)


def user_row(state: UserEarnings) -> tuple[object, ...]:
    """The state as a row of ``user_earnings``."""
    completed = state.tasks_completed
    by_source = _encode(dict(sorted(state.by_source.items()))).decode()
    return (
        state.user_id,
        state.total_cents,
        state.credits,
        by_source,
        len(state.tasks) - completed,
        completed,
        state.as_of,
    )


def state_json(state: UserEarnings) -> bytes:
    """The value of the state's record in the topic; equal states are equal bytes."""
    shown = list(state.tasks.items())
    if len(shown) > PUBLISHED_TASKS:
        shown = _first_named(shown)[:PUBLISHED_TASKS]
    value = _state_json(state, shown)
    if len(value) > PUBLISHED_BYTES:
        shown = _first_named(shown)
        while len(value) > PUBLISHED_BYTES and shown:
            shown = shown[: len(shown) * 3 // 4]
            value = _state_json(state, shown)
    return value


def _first_named(tasks: Iterable[tuple[str, TaskProgress]]) -> list[tuple[str, TaskProgress]]:
    """Open tasks before others, and the latest first."""
    latest = sorted(tasks, key=lambda item: (item[1].last_event_time, item[0]), reverse=True)
    return sorted(latest, key=lambda item: item[1].completed_at is not None)


def _state_json(state: UserEarnings, shown: Iterable[tuple[str, TaskProgress]]) -> bytes:
    completed = state.tasks_completed
    return _encode(
        {
            "user_id": state.user_id,
            "total_cents": state.total_cents,
            "credits": state.credits,
            "by_source": dict(sorted(state.by_source.items())),
            "tasks": {
                task_id: {
                    "steps_done": task.steps_done,
                    "steps": task.steps,
                    "completed_at": task.completed_at,
                }
                for task_id, task in sorted(shown)
            },
            "tasks_completed": completed,
            "tasks_open": len(state.tasks) - completed,
            "as_of": state.as_of,
        }
    )
