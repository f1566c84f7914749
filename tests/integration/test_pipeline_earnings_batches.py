"""Micro-batches of earnings on a real broker and a real file, cut off between their steps and replayed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from tidelog import Consumer
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.pipelines import events
from tidelog.pipelines.earnings.job import MicroBatches
from tidelog.pipelines.earnings.publisher import StatePublisher
from tidelog.pipelines.earnings.schema import Credit, TaskStep, UserEarnings
from tidelog.pipelines.earnings.sqlite_ledger import SqliteLedger
from tidelog.pipelines.earnings.transform import Entry
from tidelog.pipelines.pipeline import PipelineSettings
from tidelog.pipelines.topics import ensure_topics
from tidelog.testing.broker_process import BrokerProcess

WRITTEN = datetime(2026, 3, 5, tzinfo=UTC)
DERIVED = ("user_earnings", "user_earnings_daily", "user_tasks")


class Frame:
    """A batch as the driver collects it."""

    def __init__(self, rows: Sequence[Entry]) -> None:
        self._columns = {name: [getattr(row, name) for row in rows] for name in Entry._fields}

    def toArrow(self) -> pyarrow.Table:
        return pyarrow.table(self._columns)


class Crash(Exception):
    """The process ends here."""


def credit(user: str, number: int, cents: int, day: int = 1) -> Entry:
    time = f"2026-03-{day:02d}T12:00:00.000Z"
    record = ("ml_obtain_credit_log", 0, number, WRITTEN, None, None)
    return Entry("credit", None, time, user, f"credit-{number}", "task", cents, None, None, None, *record)  # type: ignore[arg-type]


def step(user: str, number: int, step: int) -> Entry:
    time = f"2026-03-01T12:{number:02d}:00.000Z"
    record = ("ml_task_log", 0, number, WRITTEN, None, None)
    return Entry("task", None, time, user, f"step-{number}", None, None, "survey", step, 3, *record)  # type: ignore[arg-type]


BATCHES = (
    [credit("ann", 1, 5), credit("bob", 2, 7), credit("ann", 1, 5), step("ann", 1, 1)],
    [credit("ann", 3, 11, day=2), credit("bob", 2, 7), step("ann", 2, 3)],
    [credit("ann", 4, 13), step("ann", 3, 2), credit("eve", 5, 0)],
)
TOTALS = {"ann": 29, "bob": 7, "eve": 0}


@pytest.fixture(scope="module")
def own_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of our own: the names of the pipelines' topics are fixed."""
    with BrokerProcess(tmp_path_factory.mktemp("earnings") / "data") as broker:
        yield broker.bootstrap


@pytest.fixture
def settings(own_bootstrap: str, tmp_path: Path) -> PipelineSettings:
    made = PipelineSettings(own_bootstrap, tmp_path / "pipelines")
    ensure_topics(made, [events.USER_EARNINGS, events.DEAD_LETTERS], partitions=2)
    return made


@pytest.fixture
def start(settings: PipelineSettings, topic_name: Callable[[], str]) -> Iterator[Callable[[], MicroBatches]]:
    """Starts the job anew, as after a crash: nothing of the last run is there but its file and topics."""
    transactional_id = topic_name()
    opened: list[Any] = []

    def started() -> MicroBatches:
        opened.append(SqliteLedger(settings.tables))
        opened.append(StatePublisher(settings, transactional_id))
        return MicroBatches(settings, *opened[-2:])

    yield started
    for each in opened:
        each.close()


def take(batches: MicroBatches, batch_id: int) -> None:
    batches.take(Frame(BATCHES[batch_id]), batch_id)  # type: ignore[arg-type]


def tables(path: Path) -> dict[str, list[Any]]:
    with sqlite3.connect(path) as connection:
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in DERIVED}


def states(bootstrap: str, users: Sequence[str]) -> dict[str, Any]:
    """The latest state of each user in the topic, as a reader of committed records finds it."""
    partitions = [TopicPartition(events.USER_EARNINGS, index) for index in range(2)]
    found: dict[str, Any] = {}
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
    ) as reader:
        reader.assign(partitions)
        reader.seek_to_beginning(partitions)
        ends = reader.end_offsets(partitions)
        while any(reader.position(each) < ends[each] for each in partitions):
            for record in reader.poll(1.0):
                assert record.key is not None
                assert record.value is not None
                found[record.key.decode()] = json.loads(record.value)
    return {user: found[user] for user in users}


def expected_tables(tmp_path: Path) -> dict[str, list[Any]]:
    """The tables after one undisturbed run over distinct events."""
    path = tmp_path / "expected.sqlite"
    ledger = SqliteLedger(path)
    rows = [row for batch in BATCHES for row in batch]
    ledger.merge(
        [
            Credit(r.user_id, r.event_time, r.event_id, r.source, r.amount_cents)
            for r in rows
            if r.kind == "credit"
        ],
        [TaskStep(r.user_id, r.event_time, r.task_id, r.step, r.steps) for r in rows if r.kind == "task"],
    )
    ledger.close()
    return tables(path)


@pytest.mark.parametrize("crashing", range(len(BATCHES)))
@pytest.mark.parametrize(
    "where", ["before the ledger", "after the ledger", "in the transaction", "after the topic"]
)
def test_a_crash_at_any_step_of_any_batch_changes_no_cent(
    settings: PipelineSettings,
    start: Callable[[], MicroBatches],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    crashing: int,
    where: str,
) -> None:
    job = start()
    for batch_id in range(crashing):
        take(job, batch_id)
    with monkeypatch.context() as patch:
        _arm(patch, where)
        with pytest.raises(Crash):
            take(job, crashing)
    job = start()
    for batch_id in range(crashing, len(BATCHES)):
        take(job, batch_id)
    assert tables(settings.tables) == expected_tables(tmp_path)
    found = states(settings.bootstrap_servers, list(TOTALS))
    assert {user: state["total_cents"] for user, state in found.items()} == TOTALS
    assert found["ann"]["tasks"] == {
        "survey": {"steps_done": 3, "steps": 3, "completed_at": "2026-03-01T12:03:00.000Z"}
    }


def _arm(patch: pytest.MonkeyPatch, where: str) -> None:
    """Make the process end at a step."""

    def crash(*_: object, **__: object) -> None:
        raise Crash

    publish = StatePublisher._publish

    def cut_short(self: StatePublisher, found: Sequence[UserEarnings]) -> None:
        producer = self._connected()
        producer.begin_transaction()
        producer.send(events.USER_EARNINGS, b'{"total_cents": -1}', key=found[0].user_id.encode())
        producer.flush()
        raise Crash

    def publish_then_crash(self: StatePublisher, found: Sequence[UserEarnings]) -> None:
        publish(self, found)
        raise Crash

    match where:
        case "before the ledger":
            patch.setattr(SqliteLedger, "merge", crash)
        case "after the ledger":
            patch.setattr(StatePublisher, "publish", crash)
        case "in the transaction":
            patch.setattr(StatePublisher, "_publish", cut_short)
        case "after the topic":
            patch.setattr(StatePublisher, "_publish", publish_then_crash)


def test_of_two_copies_of_the_job_the_older_one_stops_with_a_sentence(
    start: Callable[[], MicroBatches],
) -> None:
    older = start()
    take(older, 0)
    newer = start()
    take(newer, 1)
    with pytest.raises(TidelogError, match="another copy of this pipeline writes to the same cluster"):
        take(older, 2)
    take(newer, 2)
