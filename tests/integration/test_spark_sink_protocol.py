"""The exactly-once protocol of the Spark sink, task by task, without Spark: what must hold whoever dies when.

A task here is a call of the function that Spark's tasks call; a *run* is a name. Dead tasks and drivers are
those whose next call is never made.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.sink_output import committed_values

from tidelog.client.admin.admin import Admin
from tidelog.client.producer._transaction_calls import PreparedTransaction
from tidelog.client.resources import NewTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.report.epoch_record import GROUP_PREFIX, EpochRecord, task_name
from tidelog.spark.write._batch_writer import finish_write
from tidelog.spark.write._epoch_commit import abort_epoch, commit_epoch
from tidelog.spark.write._epoch_requests import end_transactions
from tidelog.spark.write.epoch_producer import EpochProducer
from tidelog.spark.write.epoch_task import ReplayRefusedError, write_exactly_once
from tidelog.spark.write.write_message import WriteName, WriteOutcome, WrittenTask
from tidelog.spark.write.write_options import write_options
from tidelog.testing.broker_process import BrokerProcess


class Sink:
    """One application writing to one topic."""

    def __init__(self, bootstrap: str, *, streaming: bool = True, **options: str) -> None:
        self.bootstrap = bootstrap
        self.app_id = f"app-{uuid.uuid4()}"
        self.topic = f"output-{self.app_id}"
        self.streaming = streaming
        raw = {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, **options}
        if not streaming:
            raw |= {"txnAppId": self.app_id, "txnVersion": "0"}
        self.options = write_options(raw, streaming=streaming)
        with Admin(bootstrap_servers=bootstrap) as admin:
            for result in admin.create_topics([NewTopic(self.topic, 2)]):
                result.raise_for_error()

    def name(self, version: int, run: str, task: int) -> WriteName:
        return WriteName(self.app_id, version, run, task, self.streaming)

    def task(self, version: int, run: str, task: int, values: Sequence[str]) -> WrittenTask:
        """A task with ``values``, up to what it tells the driver."""
        return write_exactly_once(_batches(values), self.options, self.name(version, run, task))

    def epoch(self, version: int, run: str, *tasks: Sequence[str]) -> list[WriteOutcome]:
        """All tasks of an epoch, and the driver's commit."""
        done: list[WrittenTask] = []
        for number, values in enumerate(tasks):
            try:
                done.append(self.task(version, run, number, values))
            except ReplayRefusedError:
                abort_epoch(done, self.options)
                raise
        finish_write([*done], self.options, commit=True)
        return [task.outcome for task in done]

    @property
    def output(self) -> list[str]:
        return committed_values(self.bootstrap, self.topic)

    def zombie(self, version: int, run: str, task: int, values: Sequence[str]) -> Callable[[], WrittenTask]:
        """A task that stalls in the middle of its rows until it is called."""
        name = self.name(version, run, task)
        return _Stalled(values).start(lambda batches: write_exactly_once(batches, self.options, name))


class _Stalled:
    """Hands out the first value, then waits to be told to go on."""

    def __init__(self, values: Sequence[str]) -> None:
        self._values = values
        self._reached, self._go_on = threading.Event(), threading.Event()

    def _rows(self) -> Iterator[pa.RecordBatch]:
        yield from _batches(self._values[:1])
        self._reached.set()
        assert self._go_on.wait(60)
        yield from _batches(self._values[1:])

    def start(self, work: Callable[[Iterator[pa.RecordBatch]], WrittenTask]) -> Callable[[], WrittenTask]:
        pool = ThreadPoolExecutor(1)
        future = pool.submit(work, self._rows())
        assert self._reached.wait(60)

        def finish() -> WrittenTask:
            self._go_on.set()
            try:
                return future.result(60)
            finally:
                pool.shutdown()

        return finish


def end_one(sink: Sink, prepared: PreparedTransaction) -> None:
    """Commit one transaction, as a driver does that dies before the next one."""
    with EpochProducer(sink.options.producer_options()) as client:
        deadline = client.deadline()
        errors = client.ask_cluster(
            lambda cluster: end_transactions(cluster, [prepared], deadline, commit=True), "its end"
        )
    (error,) = errors.values()
    if error is not None:
        raise error


def _batches(values: Sequence[str]) -> list[pa.RecordBatch]:
    return [pa.record_batch({"value": pa.array(values, pa.string())})] if values else []


@pytest.fixture(scope="module")
def sink_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    foreign = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
    if foreign:
        yield foreign
        return
    options = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with BrokerProcess(tmp_path_factory.mktemp("sink") / "data", options=options) as broker:
        yield broker.bootstrap


@pytest.fixture
def sink(sink_bootstrap: str) -> Sink:
    return Sink(sink_bootstrap)


# -- the usual way


def test_first_epoch_of_a_run_is_committed_by_the_driver_and_the_next_ones_by_their_tasks(sink: Sink) -> None:
    first = [sink.task(0, "run", number, [f"0-{number}"]) for number in range(2)]
    assert [task.outcome for task in first] == [WriteOutcome.PREPARED] * 2
    assert sink.output == []
    commit_epoch(first, sink.options)
    assert sink.output == ["0-0", "0-1"]
    assert sink.epoch(1, "run", ["1-0"], ["1-1"]) == [WriteOutcome.COMMITTED] * 2
    assert sink.output == ["0-0", "0-1", "1-0", "1-1"]


def test_epoch_that_fails_before_the_driver_commits_leaves_nothing(sink: Sink) -> None:
    abort_epoch([sink.task(0, "run", 0, ["lost"])], sink.options)
    assert sink.output == []
    sink.epoch(0, "run-2", ["kept"])
    assert sink.output == ["kept"]


def test_records_stand_in_groups_with_a_name_of_their_own(sink: Sink) -> None:
    sink.epoch(0, "run", ["a"], [])
    with Admin(bootstrap_servers=sink.bootstrap) as admin:
        groups = {group.group_id for group in admin.list_groups().groups if sink.app_id in group.group_id}
    assert groups == {f"{GROUP_PREFIX}{sink.app_id}.{number}" for number in range(2)}


# -- replays


@pytest.mark.parametrize("run", ["run", "run-2"], ids=["task attempt", "restarted driver"])
def test_replayed_epoch_adds_nothing(sink: Sink, run: str) -> None:
    sink.epoch(0, "run", ["a", "b"], ["c"])
    sink.epoch(1, "run", ["d"], ["e"])
    assert sink.epoch(1, run, ["d"], ["e"]) == [WriteOutcome.FOUND] * 2
    sink.epoch(2, run, ["f"], [])
    assert sink.output == ["a", "b", "c", "d", "e", "f"]


def test_replay_is_recognised_in_whatever_order_rows_come(sink: Sink) -> None:
    sink.epoch(0, "run", ["a", "b", "c"])
    assert sink.epoch(0, "run-2", ["c", "a", "b"]) == [WriteOutcome.FOUND]


def test_replay_completes_an_epoch_of_which_only_some_tasks_had_committed(sink: Sink) -> None:
    sink.epoch(0, "run", ["0"], ["1"], ["2"])
    sink.task(1, "run", 1, ["4"])
    sink.task(1, "run", 2, [])
    assert sink.epoch(1, "run-2", ["3"], ["4"], []) == [
        WriteOutcome.PREPARED,
        WriteOutcome.FOUND,
        WriteOutcome.FOUND,
    ]
    assert sink.output == ["0", "1", "2", "3", "4"]


def test_driver_that_dies_between_two_commits_leaves_an_epoch_that_the_next_run_completes(sink: Sink) -> None:
    done = [sink.task(0, "run", number, [str(number)]) for number in range(3)]
    assert done[1].transaction is not None
    end_one(sink, done[1].transaction)
    assert sink.epoch(0, "run-2", ["0"], ["1"], ["2"]) == [
        WriteOutcome.PREPARED,
        WriteOutcome.FOUND,
        WriteOutcome.PREPARED,
    ]
    assert sink.output == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("values", "told"),
    [(["a", "x"], "not in content"), (["a"], "2 rows then, 1 now"), ([], "2 rows then, 0 now")],
)
def test_replay_with_other_rows_is_refused_and_nothing_of_it_is_written(
    sink: Sink, values: list[str], told: str
) -> None:
    sink.epoch(0, "run", ["a", "b"])
    with pytest.raises(ReplayRefusedError, match=told):
        sink.task(0, "run-2", 0, values)
    assert sink.output == ["a", "b"]


def test_task_that_wrote_nothing_and_has_rows_in_the_replay_is_refused(sink: Sink) -> None:
    sink.epoch(0, "run", ["a"], [])
    with pytest.raises(ReplayRefusedError, match="0 rows then, 1 now"):
        sink.task(0, "run-2", 1, ["a"])


def test_replay_of_a_query_that_is_never_the_same_is_compared_by_counts_if_told_so(
    sink_bootstrap: str,
) -> None:
    sink = Sink(sink_bootstrap, replayCheck="count")
    sink.epoch(0, "run", ["random-1", "random-2"])
    assert sink.epoch(0, "run-2", ["random-3", "random-4"]) == [WriteOutcome.FOUND]
    with pytest.raises(ReplayRefusedError, match="2 rows then, 3 now"):
        sink.epoch(0, "run-3", ["random-5", "random-6", "random-7"])
    assert sink.output == ["random-1", "random-2"]


def test_epoch_before_the_last_one_is_refused(sink: Sink) -> None:
    for version in range(3):
        sink.epoch(version, "run", [str(version)])
    with pytest.raises(ReplayRefusedError, match="older than the output"):
        sink.task(1, "run-2", 0, ["1"])


# -- another number of tasks


def test_number_of_tasks_may_change_from_epoch_to_epoch(sink: Sink) -> None:
    expected: list[str] = []
    for version, count in enumerate([2, 5, 1, 3]):
        tasks = [[f"{version}-{number}"] for number in range(count)]
        sink.epoch(version, f"run-{version // 2}", *tasks)
        expected += [value for task in tasks for value in task]
    assert sink.output == sorted(expected)


@pytest.mark.parametrize("count", [1, 4], ids=["fewer", "more"])
def test_replay_of_a_half_written_epoch_in_another_number_of_tasks_is_refused_without_harm(
    sink: Sink, count: int
) -> None:
    sink.epoch(0, "run", ["0"], ["1"])
    sink.task(1, "run", 1, ["c", "d"])
    before = sink.output
    rows = ["a", "b", "c", "d"]
    with pytest.raises(ReplayRefusedError, match="parallelism"):
        sink.epoch(1, "run-2", *(rows[number::count] for number in range(count)))
    assert sink.output == before
    sink.epoch(1, "run-3", ["a", "b"], ["c", "d"])
    assert sink.output == ["0", "1", *rows]


def test_epoch_of_which_nothing_was_committed_may_be_replayed_in_any_number_of_tasks(sink: Sink) -> None:
    sink.epoch(0, "run", ["0"], ["1"])
    zombies = [sink.zombie(1, "run", number, ["a", "b"]) for number in range(2)]
    sink.epoch(1, "run-2", ["a"], ["b"], ["c"])
    sink.epoch(2, "run-3", ["d"])
    for zombie in zombies:
        with pytest.raises(KafkaError):
            zombie()
    assert sink.output == ["0", "1", "a", "b", "c", "d"]


# -- zombies


def test_newer_attempt_fences_an_older_one_that_wakes_up(sink: Sink) -> None:
    sink.epoch(0, "run", ["0"])
    zombie = sink.zombie(1, "run", 0, ["a", "b"])
    sink.epoch(1, "run", ["a", "b"])
    with pytest.raises(KafkaError, match="another attempt") as raised:
        zombie()
    assert raised.value.code is ErrorCode.PRODUCER_FENCED
    assert sink.output == ["0", "a", "b"]


def test_zombie_of_an_earlier_run_cannot_commit_once_a_later_run_has_claimed_its_task(sink: Sink) -> None:
    sink.epoch(0, "run", ["0"], ["1"])
    done = [sink.task(1, "run-2", number, [str(number + 2)]) for number in range(2)]
    late = sink.task(1, "run", 1, ["late"])
    assert late.outcome is WriteOutcome.PREPARED, "a task of the old run must not commit by itself any more"
    with pytest.raises(KafkaError, match="taken over"):
        commit_epoch(done, sink.options)
    assert sink.epoch(1, "run-3", ["2"], ["3"]) == [WriteOutcome.FOUND, WriteOutcome.PREPARED]
    assert sink.output == ["0", "1", "2", "3"]


def test_zombie_of_a_task_that_the_later_run_does_not_have_cannot_commit(sink: Sink) -> None:
    sink.epoch(0, "run", ["0"], ["1"])
    zombie = sink.zombie(1, "run", 1, ["c", "d"])
    sink.epoch(1, "run-2", ["a", "b", "c", "d"])
    with pytest.raises(KafkaError):
        zombie()
    assert sink.task(2, "run", 1, ["late"]).outcome is WriteOutcome.PREPARED
    assert sink.output == ["0", "1", "a", "b", "c", "d"]


def test_run_that_died_in_its_commit_cannot_end_a_task_that_the_next_run_does_not_have(sink: Sink) -> None:
    sink.epoch(0, "run", ["0"], ["1"], ["2"])
    left = [sink.task(1, "run-2", number, [value]) for number, value in enumerate("abc")]
    sink.epoch(1, "run-3", ["a"], ["b", "c"])
    assert left[2].transaction is not None
    with pytest.raises(KafkaError) as raised:
        end_one(sink, left[2].transaction)
    assert raised.value.code in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert sink.output == ["0", "1", "2", "a", "b", "c"]


def test_replay_in_fewer_tasks_finds_what_a_run_that_died_in_its_commit_had_committed(sink: Sink) -> None:
    sink.epoch(0, "run", ["0"], ["1"], ["2"])
    left = [sink.task(1, "run-2", number, [value]) for number, value in enumerate("abc")]
    assert left[2].transaction is not None
    end_one(sink, left[2].transaction)
    with pytest.raises(ReplayRefusedError, match="by more tasks: task 2 wrote 1 rows"):
        sink.epoch(1, "run-3", ["a"], ["b", "c"])
    sink.epoch(1, "run-4", ["a"], ["b"], ["c"])
    assert sink.output == ["0", "1", "2", "a", "b", "c"]


def test_task_that_comes_after_its_epoch_was_committed_by_another_attempt_adds_nothing(sink: Sink) -> None:
    sink.epoch(0, "run", ["0"])
    sink.epoch(1, "run", ["1"])
    assert sink.task(1, "run", 0, ["1"]).outcome is WriteOutcome.FOUND
    assert sink.output == ["0", "1"]


# -- history


def test_query_that_is_not_in_its_first_epoch_is_refused_where_nothing_is_known_of_it(sink: Sink) -> None:
    with pytest.raises(ReplayRefusedError, match="failOnMissingEpoch"):
        sink.epoch(7, "run", ["a"])
    assert sink.output == []


def test_query_without_a_history_goes_on_if_told_so(sink_bootstrap: str) -> None:
    sink = Sink(sink_bootstrap, failOnMissingEpoch="false")
    sink.epoch(7, "run", ["a"])
    sink.epoch(8, "run", ["b"])
    assert sink.output == ["a", "b"]


def test_batch_write_may_begin_with_any_version(sink_bootstrap: str) -> None:
    sink = Sink(sink_bootstrap, streaming=False)
    sink.epoch(20261115, "write-1", ["a"], ["b"])
    assert sink.epoch(20261115, "write-2", ["a"], ["b"]) == [WriteOutcome.FOUND] * 2
    sink.epoch(20261116, "write-3", ["c"])
    assert sink.output == ["a", "b", "c"]


def test_batch_write_is_always_committed_by_its_driver(sink_bootstrap: str) -> None:
    sink = Sink(sink_bootstrap, streaming=False)
    for version in range(3):
        assert sink.epoch(version, f"write-{version}", [str(version)]) == [WriteOutcome.PREPARED]


def test_batch_write_leaves_the_records_of_tasks_that_it_does_not_have_to_expire(sink_bootstrap: str) -> None:
    sink = Sink(sink_bootstrap, streaming=False)
    done = [sink.task(1, "write-1", number, [value]) for number, value in enumerate("abc")]
    commit_epoch(done, sink.options)
    sink.epoch(2, "write-2", ["d"])
    with EpochProducer(sink.options.producer_options()) as client:
        records = [client.read_record(task.name.task_name) for task in done[1:]]
    assert records == [EpochRecord(1, "write-1", task.content) for task in done[1:]], "nobody wrote them anew"
    with pytest.raises(ReplayRefusedError, match="older than the output"):
        sink.epoch(1, "write-3", ["a"], ["b"], ["c"])
    assert sink.output == ["a", "b", "c", "d"]


def test_batch_write_that_died_cannot_end_a_task_that_the_next_write_does_not_have(
    sink_bootstrap: str,
) -> None:
    sink = Sink(sink_bootstrap, streaming=False)
    sink.epoch(1, "write-1", ["0"], ["1"])
    left = [sink.task(2, "write-2", number, [value]) for number, value in enumerate("ab")]
    zombie = sink.zombie(2, "write-2", 1, ["a", "b"])
    sink.epoch(2, "write-3", ["a", "b"])
    assert left[1].transaction is not None
    with pytest.raises(KafkaError):
        end_one(sink, left[1].transaction)
    with pytest.raises(KafkaError):
        zombie()
    assert sink.output == ["0", "1", "a", "b"]


# -- what is not known must be asked for


def test_commit_that_was_carried_out_and_not_answered_is_found_out_by_asking(sink: Sink) -> None:
    done = [sink.task(0, "run", 0, ["a"])]
    commit_epoch(done, sink.options)
    commit_epoch(done, sink.options)
    producer = EpochProducer(sink.options.producer_options(task_name(sink.app_id, 0)))
    assert producer.take_over() == EpochRecord(0, "run", done[0].content)
    producer.give_up()
    commit_epoch(done, sink.options)
    assert sink.output == ["a"]


def test_commit_of_a_transaction_that_was_aborted_is_an_error(sink: Sink) -> None:
    done = [sink.task(0, "run", 0, ["a"])]
    abort_epoch(done, sink.options)
    with pytest.raises(KafkaError, match=r"not committed.*transaction\.timeout\.ms"):
        commit_epoch(done, sink.options)
    assert sink.output == []


def test_transaction_timeout_that_brokers_refuse_is_named(sink_bootstrap: str) -> None:
    sink = Sink(sink_bootstrap, streaming=True, **{"kafka.transaction.timeout.ms": "900001"})
    with pytest.raises(KafkaError, match=r"kafka\.transaction\.timeout\.ms=900001"):
        sink.task(0, "run", 0, ["a"])


def test_epoch_goes_through_a_broker_that_is_killed_at_every_step(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        sink = Sink(broker.bootstrap)
        sink.epoch(0, "run", ["0"], ["1"])
        done = [sink.task(1, "run-2", 0, ["2"])]
        broker.kill()
        broker.start()
        zombie = sink.zombie(1, "run-2", 1, ["3", "4"])
        broker.kill()
        broker.start()
        done.append(zombie())
        broker.kill()
        broker.start()
        commit_epoch(done, sink.options)
        broker.kill()
        broker.start()
        assert sink.epoch(1, "run-3", ["2"], ["3", "4"]) == [WriteOutcome.FOUND] * 2
        assert sink.output == ["0", "1", "2", "3", "4"]
    finally:
        broker.kill()


def test_content_of_an_epoch_is_what_its_record_says(sink: Sink) -> None:
    done = sink.task(0, "run", 0, ["a", "b"])
    record = EpochRecord(0, "run", done.content)
    assert EpochRecord.read(0, record.metadata) == record
    assert done.content == ContentDigest.of(2, done.content.text)
