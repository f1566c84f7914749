"""Micro-batches of earnings on a real broker and real files, cut off between their steps and replayed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.contract.ledgers import credit, task_step
from tests.integration.pipeline_traffic import ledger_rows, read_all

from tidelog.errors import TidelogError
from tidelog.spark.dead_letters.dead_letter import letter_batch
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.partition_work import to_bytes
from tidelog.spark.sinks.record_sink import RECORD_SCHEMA, NamedBatch, RecordSink
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.jobs.earnings import part_work
from tidelog_rewards.jobs.earnings.part_work import BatchWork, publish_anew
from tidelog_rewards.jobs.earnings.parts import ledger_parts
from tidelog_rewards.jobs.earnings.publisher import SoleCopy
from tidelog_rewards.jobs.earnings.schema import Credit, TaskStep, UserEarnings
from tidelog_rewards.jobs.earnings.sqlite_ledger import SqliteLedger, opened
from tidelog_rewards.phones.phone_tokens import CLEAR
from tidelog_rewards.topics import ensure_topics

PARTS = 2
DERIVED = ("user_earnings", "user_earnings_daily", "user_tasks")


class Crash(Exception):
    """The process ends here."""


def paid(user: str, number: int, cents: int, day: int = 1) -> Credit:
    return credit(user, f"2026-03-{day:02d}T12:00:00.000Z", f"credit-{number}", "task", cents)


def did(user: str, number: int, step: int) -> TaskStep:
    return task_step(user, f"2026-03-01T12:{number:02d}:00.000Z", "survey", step, 3)


BATCHES: tuple[list[Credit | TaskStep], ...] = (
    [paid("ann", 1, 5), paid("bob", 2, 7), paid("ann", 1, 5), did("ann", 1, 1)],
    [paid("ann", 3, 11, day=2), paid("bob", 2, 7), did("ann", 2, 3)],
    [paid("ann", 4, 13), did("ann", 3, 2), paid("eve", 5, 0)],
)
TOTALS = {"ann": 29, "bob": 7, "eve": 0}


@pytest.fixture(scope="module")
def own_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of our own: the names of the pipelines' topics are fixed."""
    with BrokerProcess(tmp_path_factory.mktemp("earnings") / "data") as broker:
        yield broker.bootstrap


@pytest.fixture
def settings(own_bootstrap: str, tmp_path: Path) -> PipelineSettings:
    made = PipelineSettings(own_bootstrap, tmp_path / "pipelines", state_partitions=PARTS)
    ensure_topics(made, [events.USER_EARNINGS, events.DEAD_LETTERS], partitions=2)
    return made


class Run:
    """The job from one start to its end: nothing of it is left to the next but files and topics."""

    def __init__(self, settings: PipelineSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._run_id = uuid.uuid4().hex
        self.copy = SoleCopy(settings, name)

    def take(self, batch_id: int, *, finish: bool = True, parts: Sequence[int] = range(PARTS)) -> None:
        """A micro-batch, as the driver has it done."""
        self.copy.check()
        batch = NamedBatch(f"{self._name}-query", batch_id, self._run_id, streaming=True)
        sink = RecordSink(self._settings, batch, same_content=False)
        work = BatchWork(self._settings, ledger_parts(self._settings), sink, self._name)
        written = [work.take(part, *entries_of(self._settings, batch_id, part)) for part in parts]
        if finish:
            sink.finish([sink.told(each) for each in written])


def entries_of(
    settings: PipelineSettings, batch_id: int, part: int
) -> tuple[list[Credit], list[TaskStep], list[bytes]]:
    part_of = ledger_parts(settings).of
    mine = [entry for entry in BATCHES[batch_id] if part_of(entry.user_id) == part]
    record = pa.RecordBatch.from_pylist(
        [
            {
                "topic": str(settings.directory),
                "partition": part,
                "offset": batch_id,
                "timestamp": batch_id * 1000,
                "key": b"k",
                "value": b"{",
            }
        ]
    )
    letter = letter_batch(record, pa.array(["not-json"]), pa.array(["bad"]), "earnings", CLEAR)
    return (
        [each for each in mine if isinstance(each, Credit)],
        [each for each in mine if isinstance(each, TaskStep)],
        [to_bytes(letter)],
    )


@pytest.fixture
def start(settings: PipelineSettings, topic_name: Callable[[], str]) -> Iterator[Callable[[], Run]]:
    """Starts the job anew, as after a crash."""
    name = topic_name()
    runs: list[Run] = []

    def started() -> Run:
        runs.append(Run(settings, name))
        return runs[-1]

    yield started
    for run in runs:
        run.copy.close()


def expected_tables(tmp_path: Path) -> dict[str, list[Any]]:
    """The tables after one undisturbed run over distinct events."""
    apart = PipelineSettings("", tmp_path / "apart", state_partitions=1)
    entries = [entry for batch in BATCHES for entry in batch]
    ledger = SqliteLedger(ledger_parts(apart).file(0))
    ledger.merge(
        [each for each in entries if isinstance(each, Credit)],
        [each for each in entries if isinstance(each, TaskStep)],
    )
    ledger.close()
    return ledger_rows(apart, *DERIVED)


def states(bootstrap: str) -> dict[str, Any]:
    """The latest state of each user in the topic, as a reader of committed records finds it."""
    records = read_all(bootstrap, events.USER_EARNINGS)
    return {record.key.decode(): json.loads(record.value) for record in records}


def letters(settings: PipelineSettings) -> list[tuple[bytes, bytes]]:
    """Where the dead letters of this test's records come from."""
    found = [dict(record.headers) for record in read_all(settings.bootstrap_servers, events.DEAD_LETTERS)]
    own = str(settings.directory).encode()
    return sorted((each["offset"], each["partition"]) for each in found if each["topic"] == own)


ALL_LETTERS = sorted((b"%d" % batch, b"%d" % part) for batch in range(len(BATCHES)) for part in range(PARTS))


@pytest.mark.parametrize("crashing", range(len(BATCHES)))
@pytest.mark.parametrize(
    "where",
    [
        "before the ledger",
        "after the ledger",
        "in the transaction",
        "between the parts",
        "before the driver",
        "after the topic",
    ],
)
def test_a_crash_at_any_step_of_any_batch_changes_no_cent(
    settings: PipelineSettings,
    start: Callable[[], Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    crashing: int,
    where: str,
) -> None:
    job = start()
    for batch_id in range(crashing):
        job.take(batch_id)
    with monkeypatch.context() as patch:
        _crash(patch, job, crashing, where)
    job = start()
    for batch_id in range(crashing, len(BATCHES)):
        job.take(batch_id)
    assert ledger_rows(settings, *DERIVED) == expected_tables(tmp_path)
    found = states(settings.bootstrap_servers)
    assert {user: found[user]["total_cents"] for user in TOTALS} == TOTALS
    assert found["ann"]["tasks"] == {
        "survey": {"steps_done": 3, "steps": 3, "completed_at": "2026-03-01T12:03:00.000Z"}
    }
    assert letters(settings) == ALL_LETTERS


def _crash(patch: pytest.MonkeyPatch, job: Run, batch_id: int, where: str) -> None:
    """Have a batch come to an end at a step."""

    def crash(*_: object, **__: object) -> None:
        raise Crash

    def cut_short(states: Sequence[UserEarnings]) -> Iterator[pa.RecordBatch]:
        wrong = {"topic": events.USER_EARNINGS, "key": b"ann", "value": b'{"total_cents": -1}'}
        yield pa.RecordBatch.from_pylist([wrong], schema=RECORD_SCHEMA)
        raise Crash

    if where in ("between the parts", "before the driver", "after the topic"):
        parts = range(1) if where == "between the parts" else range(PARTS)
        job.take(batch_id, finish=where == "after the topic", parts=parts)
        return
    match where:
        case "before the ledger":
            patch.setattr(SqliteLedger, "merge", crash)
        case "after the ledger":
            patch.setattr(part_work, "state_batches", crash)
        case "in the transaction":
            patch.setattr(part_work, "state_batches", cut_short)
    with pytest.raises(Crash):
        job.take(batch_id)


def test_a_backfill_between_a_batch_and_its_return_is_kept(
    settings: PipelineSettings, start: Callable[[], Run]
) -> None:
    start().take(0)
    parts = ledger_parts(settings)
    late = paid("ann", 9, 100)
    opened(parts.file(parts.of("ann"))).merge([late], [])
    days = ("2026-03-01T00:00:00.000Z", "2026-03-02T00:00:00.000Z")
    assert sum(publish_anew(settings, parts, "backfill", part, days) for part in range(PARTS)) == 2
    assert states(settings.bootstrap_servers)["ann"]["total_cents"] == 105
    start().take(0)
    assert states(settings.bootstrap_servers)["ann"]["total_cents"] == 105


def test_a_file_that_was_moved_away_is_not_written_to(settings: PipelineSettings) -> None:
    path = ledger_parts(settings).file(0)
    before = opened(path)
    assert opened(path) is before
    path.rename(path.with_suffix(".old"))
    assert opened(path) is not before
    assert path.exists()


def test_of_two_copies_of_the_job_the_older_one_stops_with_a_sentence(start: Callable[[], Run]) -> None:
    older = start()
    older.take(0)
    newer = start()
    newer.take(1)
    with pytest.raises(TidelogError, match="another copy of this pipeline writes to the same cluster"):
        older.take(2)
    newer.take(2)
