"""The ledger of earnings: whatever comes twice, late or in another order, the tables say the same."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.ledgers import DERIVED, Fresh, Ledgers, Opened, Tables, credit, task_step

from tidelog_rewards.event_parser import MAX_STRING_CHARS
from tidelog_rewards.jobs.earnings import sqlite_ledger
from tidelog_rewards.jobs.earnings.schema import (
    PUBLISHED_BYTES,
    PUBLISHED_TASKS,
    TaskProgress,
    UserEarnings,
    last_day_before,
    state_json,
)
from tidelog_rewards.jobs.earnings.sqlite_ledger import SqliteLedger


def derived_rows(path: Path) -> Tables:
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


class TestSqlite(Ledgers):
    @pytest.fixture
    def fresh(self, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
        def opened() -> Opened:
            path = tmp_path_factory.mktemp("ledger") / "tables.sqlite"
            return Opened(SqliteLedger(path), lambda: derived_rows(path))

        return opened


def test_recomputing_days_mends_rows_that_somebody_has_changed(ledger: SqliteLedger, path: Path) -> None:
    ledger.merge([credit("ann", "2026-03-01T12:00:00.000Z", "1", "task", 5)], [])
    before = derived_rows(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE user_earnings_daily SET amount_cents = 999")
        connection.execute("INSERT INTO user_earnings_daily VALUES ('ann', '2026-03-01', 'invite', 1, 1, '')")
        connection.execute("UPDATE user_earnings SET total_cents = 1")
    [[state]] = ledger.recompute("2026-03-01T00:00:00.000Z", "2026-03-02T00:00:00.000Z")
    assert state.total_cents == 5
    assert derived_rows(path) == before


def test_a_merge_that_fails_leaves_the_tables_as_they_were(ledger: SqliteLedger, path: Path) -> None:
    ledger.merge([credit("ann", "2026-03-01T12:00:00.000Z", "1", "task", 5)], [])
    before = derived_rows(path)
    with pytest.raises(sqlite3.IntegrityError):
        ledger.merge(
            [credit("ann", "2026-03-01T12:00:00.000Z", "2", "task", 7)],
            [task_step("ann", "2026-03-01T12:00:00.000Z", None, 1, 3)],  # type: ignore[arg-type]
        )
    assert derived_rows(path) == before


def test_two_ledgers_on_one_file_take_turns(ledger: SqliteLedger, path: Path) -> None:
    other = SqliteLedger(path)
    ledger.merge([credit("ann", "2026-03-01T12:00:00.000Z", "1", "task", 5)], [])
    [state] = other.merge([credit("ann", "2026-03-01T12:00:00.000Z", "2", "task", 6)], [])
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


@pytest.mark.parametrize("char", ["t", "税", "\x01", "🎈"])
def test_a_state_of_long_ids_is_no_larger_than_a_broker_takes(char: str) -> None:
    tasks = {
        f"{number:03d}".ljust(MAX_STRING_CHARS, char): TaskProgress(1, 2, None, f"2026-{number:03d}")
        for number in range(PUBLISHED_TASKS)
    }
    state = UserEarnings(char * MAX_STRING_CHARS, 5, 1, {"task": 5}, tasks, "2026")
    value = state_json(state)
    assert len(value) <= PUBLISHED_BYTES
    shown = json.loads(value)
    assert (shown["total_cents"], shown["tasks_open"], shown["user_id"]) == (
        5,
        PUBLISHED_TASKS,
        state.user_id,
    )
    latest = sorted(tasks, reverse=True)[: len(shown["tasks"])]
    assert sorted(shown["tasks"], reverse=True) == latest
    assert len(latest) >= 20


def test_recomputing_takes_its_users_a_few_at_a_time(
    ledger: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_ledger, "USERS_PER_TRANSACTION", 2)
    users = [f"user-{number}" for number in range(5)]
    ledger.merge([credit(user, "2026-03-01T12:00:00.000Z", user, "task", 5) for user in users[:3]], [])
    ledger.merge([], [task_step(user, "2026-03-01T12:00:00.000Z", "t", 1, 2) for user in users[2:]])
    ledger.merge([credit("other", "2026-03-09T12:00:00.000Z", "9", "task", 5)], [])
    before = derived_rows(path)
    chunks = list(ledger.recompute("2026-03-01T00:00:00.000Z", "2026-03-02T00:00:00.000Z"))
    assert [[state.user_id for state in chunk] for chunk in chunks] == [users[:2], users[2:4], users[4:]]
    assert derived_rows(path) == before
