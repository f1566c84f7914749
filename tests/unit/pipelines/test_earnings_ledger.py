"""The ledger of earnings: whatever comes twice, late or in another order, the tables say the same."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.pipelines.earnings.schema import (
    PUBLISHED_TASKS,
    Credit,
    TaskProgress,
    TaskStep,
    UserEarnings,
    last_day_before,
    state_json,
)
from tidelog.pipelines.earnings.sqlite_ledger import SqliteLedger

DERIVED = ("user_earnings", "user_earnings_daily", "user_tasks")

users = st.sampled_from(("ann", "bob", "eve"))
times = st.builds(
    "2026-03-{:02d}T{:02d}:00:00.{:03d}Z".format, st.integers(1, 3), st.integers(0, 23), st.integers(0, 2)
)


@st.composite
def entry_sets(draw: st.DrawFn) -> tuple[list[Credit], list[TaskStep]]:
    """Distinct credits, and steps as they may come."""
    credits = [
        Credit(draw(users), draw(times), f"event-{number}", draw(st.sampled_from(("task", "invite"))), cents)
        for number, cents in enumerate(draw(st.lists(st.integers(0, 1000), max_size=12)))
    ]
    steps = draw(
        st.lists(
            st.builds(TaskStep, users, times, st.sampled_from(("t1", "t2")), st.integers(1, 3), st.just(3)),
            max_size=10,
        )
    )
    return credits, steps


def truth(credits: Sequence[Credit], steps: Sequence[TaskStep]) -> dict[str, UserEarnings]:
    """What the tables must say, worked out the plain way."""
    sources: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    counts: dict[str, int] = defaultdict(int)
    last: dict[str, str] = defaultdict(str)
    for credit in credits:
        sources[credit.user_id][credit.source] += credit.amount_cents
        counts[credit.user_id] += 1
        last[credit.user_id] = max(last[credit.user_id], credit.event_time)
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


def derived_rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with sqlite3.connect(path) as connection:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in DERIVED}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tables.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(path)
    yield opened
    opened.close()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=entry_sets(), data=st.data())
def test_any_order_split_and_repetition_of_events_ends_in_the_same_tables(
    tmp_path_factory: pytest.TempPathFactory,
    entries: tuple[list[Credit], list[TaskStep]],
    data: st.DataObject,
) -> None:
    credits, steps = entries
    told = [*credits, *steps]
    copies = data.draw(st.lists(st.sampled_from(told), max_size=8)) if told else []
    stream = data.draw(st.permutations([*told, *copies]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    batches = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    replayed = data.draw(st.lists(st.sampled_from(range(len(batches))), max_size=3))
    path = tmp_path_factory.mktemp("ledger") / "tables.sqlite"
    told_last: dict[str, UserEarnings] = {}
    ledger = SqliteLedger(path)
    for batch in [*batches, *(batches[at] for at in replayed)]:
        states = ledger.merge(
            [each for each in batch if isinstance(each, Credit)],
            [each for each in batch if isinstance(each, TaskStep)],
        )
        assert {state.user_id for state in states} == {each.user_id for each in batch}
        told_last.update({state.user_id: state for state in states})
    expected = truth(credits, steps)
    assert told_last == expected
    rows = derived_rows(path)
    assert {row[0]: row[1] for row in rows["user_earnings"]} == {
        user: state.total_cents for user, state in expected.items()
    }
    list(ledger.recompute("2026-03-01T00:00:00.000Z", "2026-03-04T00:00:00.000Z"))
    assert derived_rows(path) == rows
    ledger.close()


def test_daily_rows_hold_cents_and_credits_of_each_source(ledger: SqliteLedger, path: Path) -> None:
    ledger.merge(
        [
            Credit("ann", "2026-03-01T23:59:59.999Z", "1", "task", 5),
            Credit("ann", "2026-03-02T00:00:00.000Z", "2", "task", 7),
            Credit("ann", "2026-03-02T00:00:00.001Z", "3", "task", 8),
            Credit("ann", "2026-03-02T00:00:00.000Z", "4", "invite", 100),
        ],
        [],
    )
    assert derived_rows(path)["user_earnings_daily"] == [
        ("ann", "2026-03-01", "task", 5, 1, "2026-03-01T23:59:59.999Z"),
        ("ann", "2026-03-02", "invite", 100, 1, "2026-03-02T00:00:00.000Z"),
        ("ann", "2026-03-02", "task", 15, 2, "2026-03-02T00:00:00.001Z"),
    ]


def test_a_task_is_complete_when_its_last_missing_step_was_first_done(ledger: SqliteLedger) -> None:
    done = [
        TaskStep("ann", f"2026-03-01T0{hour}:00:00.000Z", "t", step, 3) for hour, step in ((1, 3), (2, 1))
    ]
    [state] = ledger.merge([], done)
    assert state.tasks["t"] == TaskProgress(2, 3, None, "2026-03-01T02:00:00.000Z")
    [state] = ledger.merge(
        [], [TaskStep("ann", f"2026-03-01T0{hour}:00:00.000Z", "t", 2, 3) for hour in (5, 4)]
    )
    assert state.tasks["t"] == TaskProgress(3, 3, "2026-03-01T04:00:00.000Z", "2026-03-01T05:00:00.000Z")
    assert (state.total_cents, state.by_source, state.as_of) == (0, {}, "2026-03-01T05:00:00.000Z")


def test_recomputing_days_mends_rows_that_somebody_has_changed(ledger: SqliteLedger, path: Path) -> None:
    ledger.merge([Credit("ann", "2026-03-01T12:00:00.000Z", "1", "task", 5)], [])
    before = derived_rows(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE user_earnings_daily SET amount_cents = 999")
        connection.execute("INSERT INTO user_earnings_daily VALUES ('ann', '2026-03-01', 'invite', 1, 1, '')")
        connection.execute("UPDATE user_earnings SET total_cents = 1")
    [[state]] = ledger.recompute("2026-03-01T00:00:00.000Z", "2026-03-02T00:00:00.000Z")
    assert state.total_cents == 5
    assert derived_rows(path) == before


def test_a_merge_that_fails_leaves_the_tables_as_they_were(ledger: SqliteLedger, path: Path) -> None:
    ledger.merge([Credit("ann", "2026-03-01T12:00:00.000Z", "1", "task", 5)], [])
    before = derived_rows(path)
    with pytest.raises(sqlite3.IntegrityError):
        ledger.merge(
            [Credit("ann", "2026-03-01T12:00:00.000Z", "2", "task", 7)],
            [TaskStep("ann", "2026-03-01T12:00:00.000Z", None, 1, 3)],  # type: ignore[arg-type]
        )
    assert derived_rows(path) == before


def test_two_ledgers_on_one_file_take_turns(ledger: SqliteLedger, path: Path) -> None:
    other = SqliteLedger(path)
    ledger.merge([Credit("ann", "2026-03-01T12:00:00.000Z", "1", "task", 5)], [])
    [state] = other.merge([Credit("ann", "2026-03-01T12:00:00.000Z", "2", "task", 6)], [])
    assert state.total_cents == 11
    other.close()


@pytest.mark.parametrize(
    ("end", "day"),
    [("2026-03-02T00:00:00.000Z", "2026-03-01"), ("2026-03-02T00:00:00.001Z", "2026-03-02")],
)
def test_the_last_day_of_a_range_has_a_moment_in_it(end: str, day: str) -> None:
    assert last_day_before(end) == day


def test_a_state_in_the_topic_names_open_tasks_first_and_not_more_than_fit() -> None:
    tasks = {
        f"t{number:03d}": TaskProgress(2, 2, None if number == 0 else "2026", f"2026-{number:03d}")
        for number in range(PUBLISHED_TASKS + 50)
    }
    shown = json.loads(state_json(UserEarnings("ann", 0, 0, {}, tasks, "2026")))
    assert len(shown["tasks"]) == PUBLISHED_TASKS
    assert "t000" in shown["tasks"]
    assert "t149" in shown["tasks"]
    assert "t010" not in shown["tasks"]
    assert (shown["tasks_open"], shown["tasks_completed"]) == (1, 149)
