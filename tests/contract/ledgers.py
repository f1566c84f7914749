"""What every ledger of earnings must do: the suite that SQLite and Cassandra are held to.

A module that runs it derives from :class:`Ledgers` and has a fixture ``fresh``, which opens a new, empty
ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog_rewards.jobs.earnings.ledger import Ledger
from tidelog_rewards.jobs.earnings.schema import Credit, TaskProgress, TaskStep, UserEarnings

DERIVED = ("user_earnings", "user_earnings_daily", "user_tasks")

Entries = tuple[list[Credit], list[TaskStep]]


def credit(user_id: str, event_time: str, event_id: str, source: str, amount_cents: int) -> Credit:
    return Credit(user_id, event_time[:10], source, event_id, amount_cents, event_time)


def task_step(user_id: str, event_time: str, task_id: str, step: int, steps: int) -> TaskStep:
    return TaskStep(user_id, task_id, step, event_time, steps)


Tables = dict[str, list[tuple[Any, ...]]]


class Opened(NamedTuple):
    """A ledger, and how to read its derived tables, each in some order that stays the same."""

    ledger: Ledger
    derived: Callable[[], Tables]


Fresh = Callable[[], Opened]


_PER_TEST = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}

users = st.sampled_from(("ann", "bob", "eve"))
times = st.builds(
    "2026-03-{:02d}T{:02d}:00:00.{:03d}Z".format, st.integers(1, 3), st.integers(0, 23), st.integers(0, 2)
)


@st.composite
def entry_sets(draw: st.DrawFn) -> Entries:
    """Distinct credits, and steps as they may come."""
    credits = [
        credit(draw(users), draw(times), f"event-{number}", draw(st.sampled_from(("task", "invite"))), cents)
        for number, cents in enumerate(draw(st.lists(st.integers(0, 1000), max_size=12)))
    ]
    steps = draw(
        st.lists(
            st.builds(task_step, users, times, st.sampled_from(("t1", "t2")), st.integers(1, 3), st.just(3)),
            max_size=10,
        )
    )
    return credits, steps


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[Entries, list[Entries]]:
    """Entries, and batches in which they come: in any order, some again, some batches replayed."""
    credits, steps = draw(entry_sets())
    told = [*credits, *steps]
    copies = draw(st.lists(st.sampled_from(told), max_size=8)) if told else []
    stream = draw(st.permutations([*told, *copies]))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    batches = [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]
    replayed = draw(st.lists(st.sampled_from(batches), max_size=3))
    return (credits, steps), [
        (
            [each for each in batch if isinstance(each, Credit)],
            [each for each in batch if isinstance(each, TaskStep)],
        )
        for batch in (*batches, *replayed)
    ]


def truth(credits: Sequence[Credit], steps: Sequence[TaskStep]) -> dict[str, UserEarnings]:
    """What the tables must say, worked out the plain way."""
    sources: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    counts: dict[str, int] = defaultdict(int)
    last: dict[str, str] = defaultdict(str)
    for each in credits:
        sources[each.user_id][each.source] += each.amount_cents
        counts[each.user_id] += 1
        last[each.user_id] = max(last[each.user_id], each.event_time)
    firsts: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    ends: dict[tuple[str, str], str] = defaultdict(str)
    for step in steps:
        task = (step.user_id, step.task_id)
        firsts[task][step.step] = min(firsts[task].get(step.step, "9"), step.event_time)
        ends[task] = max(ends[task], step.event_time)
        last[step.user_id] = max(last[step.user_id], step.event_time)
    return {
        user: UserEarnings(
            user,
            sum(sources[user].values()),
            counts[user],
            dict(sources[user]),
            {
                task: TaskProgress(
                    len(done), 3, max(done.values()) if len(done) == 3 else None, ends[user, task]
                )
                for (owner, task), done in firsts.items()
                if owner == user
            },
            last[user],
        )
        for user in last
    }


class Ledgers:
    """The suite."""

    @pytest.fixture
    def opened(self, fresh: Fresh) -> Iterator[Opened]:
        made = fresh()
        yield made
        made.ledger.close()

    @pytest.fixture
    def ledger(self, opened: Opened) -> Ledger:
        return opened.ledger

    @settings(max_examples=30, **_PER_TEST)  # type: ignore[arg-type]
    @given(delivered=deliveries())
    def test_any_order_split_and_repetition_of_events_ends_in_the_same_tables(
        self, fresh: Fresh, delivered: tuple[Entries, list[Entries]]
    ) -> None:
        entries, batches = delivered
        ledger, derived = fresh()
        told_last: dict[str, UserEarnings] = {}
        for credits, steps in batches:
            states = ledger.merge(credits, steps)
            users = {each.user_id for each in credits} | {each.user_id for each in steps}
            assert {state.user_id for state in states} == users
            told_last.update({state.user_id: state for state in states})
        expected = truth(*entries)
        assert told_last == expected
        rows = derived()
        assert {row[0]: row[1] for row in rows["user_earnings"]} == {
            user: state.total_cents for user, state in expected.items()
        }
        again = [
            state
            for chunk in ledger.recompute("2026-03-01T00:00:00.000Z", "2026-03-04T00:00:00.000Z")
            for state in chunk
        ]
        assert {state.user_id: state for state in again} == expected
        assert derived() == rows
        assert ledger.newer_than(again) == []
        ledger.close()

    def test_daily_rows_hold_cents_and_credits_of_each_source(self, opened: Opened) -> None:
        opened.ledger.merge(
            [
                credit("ann", "2026-03-01T23:59:59.999Z", "1", "task", 5),
                credit("ann", "2026-03-02T00:00:00.000Z", "2", "task", 7),
                credit("ann", "2026-03-02T00:00:00.001Z", "3", "task", 8),
                credit("ann", "2026-03-02T00:00:00.000Z", "4", "invite", 100),
            ],
            [],
        )
        assert opened.derived()["user_earnings_daily"] == [
            ("ann", "2026-03-01", "task", 5, 1, "2026-03-01T23:59:59.999Z"),
            ("ann", "2026-03-02", "invite", 100, 1, "2026-03-02T00:00:00.000Z"),
            ("ann", "2026-03-02", "task", 15, 2, "2026-03-02T00:00:00.001Z"),
        ]

    def test_a_task_is_complete_when_its_last_missing_step_was_first_done(self, ledger: Ledger) -> None:
        done = [
            task_step("ann", f"2026-03-01T0{hour}:00:00.000Z", "t", step, 3)
            for hour, step in ((1, 3), (2, 1))
        ]
        [state] = ledger.merge([], done)
        assert state.tasks["t"] == TaskProgress(2, 3, None, "2026-03-01T02:00:00.000Z")
        [state] = ledger.merge(
            [], [task_step("ann", f"2026-03-01T0{hour}:00:00.000Z", "t", 2, 3) for hour in (5, 4)]
        )
        assert state.tasks["t"] == TaskProgress(3, 3, "2026-03-01T04:00:00.000Z", "2026-03-01T05:00:00.000Z")
        assert (state.total_cents, state.by_source, state.as_of) == (0, {}, "2026-03-01T05:00:00.000Z")

    def test_the_largest_amounts_are_summed_without_loss(self, ledger: Ledger) -> None:
        most = 10_000_000_000
        credits = [
            credit("ann", "2026-03-01T12:00:00.000Z", str(number), "task", most - number)
            for number in range(50)
        ]
        [state] = ledger.merge(credits, [])
        assert (state.total_cents, state.credits) == (50 * most - 49 * 25, 50)
