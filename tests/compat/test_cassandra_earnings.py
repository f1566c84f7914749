"""earnings in a real Cassandra: the contract of ledgers, crashes and kills, writers side by side: exact."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from foreign.cassandra import Cassandra
from tests.compat.conftest import available
from tests.compat.earnings_in_cassandra import WAIT_S, derived, running, totals, wait_for
from tests.contract.ledgers import DERIVED, Fresh, Ledgers, Opened, credit, task_step, truth
from tests.integration.pipeline_traffic import EarningsTraffic, latest_states, read_all, send

from tidelog.spark.pipelines.status import last_commit
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.cassandra_connection import CassandraCluster, connect
from tidelog.spark.sinks.cassandra_writer import write_rows
from tidelog.spark.sinks.record_sink import NamedBatch, RecordSink
from tidelog.testing import broker
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.jobs.earnings import cassandra_ledger, part_work
from tidelog_rewards.jobs.earnings.cassandra_ledger import CassandraLedger
from tidelog_rewards.jobs.earnings.part_work import BatchWork, state_batches
from tidelog_rewards.jobs.earnings.parts import LedgerParts
from tidelog_rewards.jobs.earnings.publisher import StatePublisher
from tidelog_rewards.jobs.earnings.schema import Credit, TaskStep, UserEarnings
from tidelog_rewards.topics import ensure_topics

TABLES = (*DERIVED, "user_credits", "user_task_steps")
KILLS = 2


@pytest.fixture(scope="module")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    node = Cassandra(tmp_path_factory.mktemp("cassandra"))
    with available():
        node.start()
    yield node
    node.stop()


@pytest.fixture(scope="module")
def keyspace(cassandra: Cassandra) -> str:
    """One for all: making tables costs a second."""
    return f"k{uuid.uuid4().hex[:12]}"


@pytest.fixture
def settings(cassandra: Cassandra, keyspace: str, tmp_path: Path) -> Iterator[PipelineSettings]:
    """Settings whose tables are empty, once a ledger has made them."""
    yield PipelineSettings("", tmp_path, cassandra=cassandra.contact_points, keyspace=keyspace)
    empty(cassandra, keyspace)


def opened(settings: PipelineSettings) -> CassandraLedger:
    """A ledger whose tables are there."""
    ledger = CassandraLedger(settings)
    ledger.ensure()
    return ledger


def empty(cassandra: Cassandra, keyspace: str) -> None:
    session = connect(CassandraCluster.at(cassandra.contact_points)).session
    for table in TABLES:
        session.execute(f"TRUNCATE {keyspace}.{table}", timeout=60)


class TestCassandra(Ledgers):
    @pytest.fixture
    def fresh(self, cassandra: Cassandra, keyspace: str, settings: PipelineSettings) -> Fresh:
        def made() -> Opened:
            ledger = opened(settings)
            empty(cassandra, keyspace)
            return Opened(ledger, lambda: derived(settings))

        return made


def drawn(seed: int, count: int, users: int = 4) -> tuple[list[Credit], list[TaskStep]]:
    draw = random.Random(seed)
    times = [f"2026-03-0{draw.randrange(1, 4)}T{draw.randrange(10, 24)}:00:00.000Z" for _ in range(count)]
    credits = [
        credit(f"user-{draw.randrange(users)}", time, f"event-{number}", "task", draw.randrange(500))
        for number, time in enumerate(times)
    ]
    steps = [
        task_step(f"user-{draw.randrange(users)}", time, f"t{draw.randrange(2)}", draw.randrange(1, 4), 3)
        for time in times[: count // 4]
    ]
    return credits, steps


def test_writers_side_by_side_leave_what_one_would_have_left(settings: PipelineSettings) -> None:
    """As a stream and a backfill do, on users of both: no derived row may stay behind the ledger."""
    credits, steps = drawn(seed=5, count=240)
    expected = truth(credits, list(set(steps)))
    failures: list[BaseException] = []

    def work(share: int) -> None:
        try:
            ledger = opened(settings)
            for first in range(share, len(credits), 12):
                ledger.merge(credits[first : first + 4], steps[first // 4 : first // 4 + 1])
        except BaseException as error:
            failures.append(error)

    opened(settings)
    threads = [threading.Thread(target=work, args=(share,)) for share in (0, 4, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert totals(settings) == {user: state.total_cents for user, state in expected.items()}
    ledger = opened(settings)
    rows = derived(settings)
    found = [state for chunk in ledger.recompute("2026-03-01", "2026-03-05") for state in chunk]
    assert {state.user_id: state for state in found} == expected
    assert derived(settings) == rows


def test_a_row_derived_from_fewer_entries_never_replaces_one_from_more(
    settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has read, and then slept while another went on, writes what is no longer true."""
    slow, quick = opened(settings), opened(settings)
    write = write_rows
    overtaken: list[list[UserEarnings]] = []

    def write_late(points: object, keyspace: str, table: object, rows: Sequence[object], **how: bool) -> None:
        listed = list(rows)
        if table is cassandra_ledger.DAILY and not overtaken:
            overtaken.append([])
            overtaken[0] += quick.merge([credit("ann", "2026-03-01T13:00:00.000Z", "2", "task", 7)], [])
        write(points, keyspace, table, listed, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(cassandra_ledger, "write_rows", write_late)
    told = slow.merge([credit("ann", "2026-03-01T12:00:00.000Z", "1", "task", 5)], [])
    assert [state.total_cents for state in overtaken[0]] == [12]
    assert totals(settings) == {"ann": 12}
    # What the slow one publishes is put right by what it reads afterwards.
    newest = slow.newer_than([UserEarnings("ann", 5, 1, {"task": 5}, {}, "2026-03-01T12:00:00.000Z")])
    assert [state.total_cents for state in (*told, *newest)] == [12, 12]


def test_a_state_that_was_overtaken_is_published_again(
    settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker() as running:
        own = PipelineSettings(
            running.bootstrap_servers, settings.directory, cassandra=settings.cassandra,
            keyspace=settings.keyspace,
        )  # fmt: skip
        ensure_topics(own, [events.USER_EARNINGS, events.DEAD_LETTERS], partitions=1)
        other = opened(own)

        def publish_late(states: Sequence[UserEarnings]) -> Iterator[pa.RecordBatch]:
            fresh = other.merge([credit("ann", "2026-03-01T13:00:00.000Z", "2", "task", 7)], [])
            with StatePublisher(own, "other") as quick:
                quick.publish(fresh)
            yield from state_batches(states)

        monkeypatch.setattr(part_work, "state_batches", publish_late)
        sink = RecordSink(own, NamedBatch("slow", 0, "run", streaming=True), same_content=False)
        work = BatchWork(own, LedgerParts(1, own.directory), sink, "slow")
        written = work.take(0, [credit("ann", "2026-03-01T12:00:00.000Z", "1", "task", 5)], [])
        sink.finish([sink.told(written)])
        records = read_all(running.bootstrap_servers, events.USER_EARNINGS)
        assert [json.loads(record.value)["total_cents"] for record in records] == [12, 5, 12]


class Crash(Exception):
    """The process ends here."""


@pytest.mark.parametrize("table", ["user_credits", "user_earnings_daily", "user_tasks", "user_earnings"])
def test_a_crash_within_a_batch_is_made_good_by_its_replay(
    settings: PipelineSettings, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """The process ends when half of the rows of a table are written, and nothing after them."""
    credits, steps = drawn(seed=11, count=60)
    ledger = opened(settings)
    ledger.merge(credits[:30], steps[:7])
    write = write_rows

    def cut(points: object, keyspace: str, spec: object, rows: Sequence[object], **how: bool) -> None:
        listed = list(rows)
        if spec.name == table:  # type: ignore[attr-defined]
            write(points, keyspace, spec, listed[: len(listed) // 2], **how)  # type: ignore[arg-type]
            raise Crash
        write(points, keyspace, spec, listed, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(cassandra_ledger, "write_rows", cut)
        with pytest.raises(Crash):
            ledger.merge(credits[30:], steps[7:])
    states = opened(settings).merge(credits[30:], steps[7:])
    expected = truth(credits, list(set(steps)))
    assert totals(settings) == {user: state.total_cents for user, state in expected.items()}
    assert {state.user_id: state for state in states} == {
        state.user_id: expected[state.user_id] for state in states
    }


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_totals_are_exact_after_kill_nine_in_the_middle_of_a_batch(
    settings: PipelineSettings, tmp_path: Path
) -> None:
    traffic = EarningsTraffic(seed=9, users=200)
    session = connect(CassandraCluster.at(settings.cassandra or "")).session
    opened(settings)
    with BrokerProcess(tmp_path / "broker") as server:
        own = PipelineSettings(
            server.bootstrap, tmp_path / "pipelines", cassandra=settings.cassandra, keyspace=settings.keyspace
        )
        ensure_topics(own, partitions=2)
        checkpoint = own.checkpoint("earnings")
        count = f"SELECT count(*) FROM {own.keyspace}.user_credits"
        for _ in range(KILLS):
            send(
                server.bootstrap,
                traffic.shuffled([*traffic.fresh(6000), *traffic.again(800), *traffic.damaged(20)]),
            )
            done, before = last_commit(checkpoint), session.execute(count).one()[0]
            with running(own, "--trigger", "0 seconds") as process:
                # Entries of a batch are there, and the batch is not done.
                wait_for(process, lambda before=before: session.execute(count).one()[0] > before)  # type: ignore[misc]
                os.killpg(process.pid, signal.SIGKILL)
            assert last_commit(checkpoint) == done
        with running(own, "--once") as process:
            assert process.wait(WAIT_S) == 0
        assert totals(own) == dict(traffic.cents)
        states = latest_states(server.bootstrap)
        assert {user: state["total_cents"] for user, state in states.items()} == dict(traffic.cents)
        letters = [dict(letter.headers) for letter in read_all(server.bootstrap, events.DEAD_LETTERS)]
        places = {(each["topic"], each["partition"], each["offset"]) for each in letters}
        assert len(letters) == len(places) == traffic.broken
        backfill = subprocess.run(
            [sys.executable, "-m", "tidelog", "pipeline", "backfill", "earnings", "--master", "local[2]",
             "--from", f"{traffic.start:%Y-%m-%d}", "--to", "2100-01-01", "--json",
             "--bootstrap-server", server.bootstrap, "--directory", str(tmp_path / "elsewhere"),
             "--cassandra", own.cassandra or "", "--keyspace", own.keyspace],
            capture_output=True, text=True, timeout=WAIT_S,
        )  # fmt: skip
        assert backfill.returncode == 0, backfill.stderr
        [report] = json.loads(backfill.stdout)
        assert report["written"]["table user_earnings"] == len(traffic.cents)
        assert report["dead_letters"] == 0
        assert totals(own) == dict(traffic.cents)
