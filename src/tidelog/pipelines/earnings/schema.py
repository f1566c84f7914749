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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from tidelog.pipelines import events

MAXIMUM_CENTS = 10_000_000_000
"""The largest amount of one credit; beyond it the event is a mistake, and sums stay within 64 bits."""

MAXIMUM_STEPS = 10_000
"""The longest task."""

PUBLISHED_TASKS = 100
"""How many tasks a state in the topic names at most, open ones first, then the latest; the table has all."""

TOPIC = events.USER_EARNINGS
TABLES = ("user_earnings", "user_earnings_daily", "user_tasks")


@dataclass(frozen=True, slots=True)
class Credit:
    """One event that gave a user money."""

    user_id: str
    event_time: str
    event_id: str
    source: str
    amount_cents: int

    @property
    def day(self) -> str:
        """The day of the event, in UTC."""
        return self.event_time[:10]


@dataclass(frozen=True, slots=True)
class TaskStep:
    """One event that says that a user did a step of a task."""

    user_id: str
    event_time: str
    task_id: str
    step: int
    steps: int


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far a user is with a task; ``completed_at`` is when the last missing step was first done."""

    steps_done: int
    steps: int
    completed_at: str | None
    last_event_time: str


@dataclass(frozen=True, slots=True)
class UserEarnings:
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
        return sum(1 for task in self.tasks.values() if task.completed_at is not None)


def last_day_before(time: str) -> str:
    """The last day with a moment before ``time``."""
    moment = datetime.fromisoformat(time) - timedelta(milliseconds=1)
    return moment.date().isoformat()


def user_earnings(
    user_id: str, sources: Sequence[tuple[str, int, int, str]], tasks: Mapping[str, TaskProgress]
) -> UserEarnings:
    """A user's state from ``(source, cents, credits, last event)`` and the tasks."""
    return UserEarnings(
        user_id=user_id,
        total_cents=sum(cents for _, cents, _, _ in sources),
        credits=sum(credits for _, _, credits, _ in sources),
        by_source={source: cents for source, cents, _, _ in sources},
        tasks=tasks,
        as_of=max(
            [*(last for _, _, _, last in sources), *(task.last_event_time for task in tasks.values())],
            default="",
        ),
    )


def user_row(state: UserEarnings) -> tuple[object, ...]:
    """The state as a row of ``user_earnings``."""
    return (
        state.user_id,
        state.total_cents,
        state.credits,
        msgspec.json.encode(dict(sorted(state.by_source.items()))).decode(),
        len(state.tasks) - state.tasks_completed,
        state.tasks_completed,
        state.as_of,
    )


def state_json(state: UserEarnings) -> bytes:
    """The value of the state's record in the topic; equal states are equal bytes."""
    latest_first = sorted(
        state.tasks.items(), key=lambda item: (item[1].last_event_time, item[0]), reverse=True
    )
    shown = sorted(latest_first, key=lambda item: item[1].completed_at is not None)[:PUBLISHED_TASKS]
    return msgspec.json.encode(
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
            "tasks_completed": state.tasks_completed,
            "tasks_open": len(state.tasks) - state.tasks_completed,
            "as_of": state.as_of,
        }
    )
