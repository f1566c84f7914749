"""The coordinator runtime: commands, replay, commits, loading and unloading, with a counter as the shard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.memory_log import MemoryLog

from tidelog.coordinator.runtime import Producer, Result, Runtime, ShardContext
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord, encode_key
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.feed import ImageDelta
from tidelog.records.record import Record, encode_batch
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.timers import Timers
from tidelog.wire.internal_topics.transaction_state import TransactionLogKey, TransactionLogValue

SCHEMAS = RecordSchemas([(TransactionLogKey, TransactionLogValue)])


def put(name: str, number: int) -> StoredRecord:
    value = TransactionLogValue(producer_id=number, transaction_partitions=None)
    return StoredRecord(TransactionLogKey(transactional_id=name), value)


class Numbers:
    """A shard that keeps the last number of every name; those of open transactions aside."""

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.numbers: dict[str, int] = {}
        self.pending: dict[Producer, dict[str, int]] = {}
        self.offsets: list[int] = []
        self.events: list[str] = []
        self.steps = 1
        self.step_ms = 0

    def replay(self, offset: int, producer: Producer, record: StoredRecord) -> None:
        self.offsets.append(offset)
        assert isinstance(record.key, TransactionLogKey)
        name = record.key.transactional_id
        if record.value is None:
            self.numbers.pop(name, None)
            return
        assert isinstance(record.value, TransactionLogValue)
        target = self.numbers if producer.producer_id < 0 else self.pending.setdefault(producer, {})
        target[name] = record.value.producer_id

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        found = self.pending.pop(producer, {})
        if committed:
            self.numbers.update(found)

    def loaded(self) -> Iterator[None]:
        for _ in range(self.steps):
            self.events.append("loaded")
            cast(ManualClock, self.context.clock).advance(self.step_ms)
            yield

    def unloaded(self) -> Iterator[None]:
        for _ in range(self.steps):
            self.events.append("unloaded")
            cast(ManualClock, self.context.clock).advance(self.step_ms)
            yield

    def metadata_changed(self, delta: ImageDelta) -> None:
        self.events.append("metadata")

    def add(self, name: str, number: int) -> Result[int]:
        total = self.numbers.get(name, 0) + number
        return Result([put(name, total)], total)


class Scene:
    def __init__(self, log: MemoryLog | None = None) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.shards: list[Numbers] = []
        self.runtime: Runtime[Numbers] = Runtime(
            "__numbers", SCHEMAS, self._make, clock=self.clock, timers=self.timers, write_timeout_ms=500
        )
        self.log = log or MemoryLog()
        self.is_active = self.runtime.load_nowait(0, 3, self.log)

    def _make(self, context: ShardContext) -> Numbers:
        self.shards.append(Numbers(context))
        return self.shards[-1]

    @property
    def shard(self) -> Numbers:
        return self.shards[-1]

    def add(self, name: str, number: int) -> Promise[int]:
        return self.runtime.write(0, lambda shard: shard.add(name, number))

    def get(self, name: str) -> Promise[int | None]:
        return self.runtime.read(0, lambda shard: shard.numbers.get(name))

    def pass_ms(self, delta_ms: int) -> None:
        self.clock.advance(delta_ms)
        self.timers.run_due()


def code_of(reply: Promise[int] | Promise[None] | Promise[int | None]) -> ErrorCode:
    assert isinstance(reply.error, KafkaError)
    return reply.error.code


def test_a_command_is_written_replayed_and_answered() -> None:
    scene = Scene()
    assert scene.add("a", 2).result() == 2
    assert scene.add("a", 3).result() == 5
    assert scene.get("a").result() == 5
    assert scene.shard.offsets == [0, 1]


def test_a_reloaded_shard_knows_what_was_written() -> None:
    scene = Scene()
    scene.add("a", 2)
    scene.add("b", 4)
    scene.runtime.write(0, lambda _: Result([StoredRecord(TransactionLogKey(transactional_id="b"), None)], 0))
    again = Scene(scene.log)
    assert again.shard.numbers == {"a": 2}
    assert again.shard.offsets == [0, 1, 2]
    assert again.shard.events == ["loaded"]
    assert again.shard.context.epoch == 3


def test_a_command_that_is_refused_writes_nothing() -> None:
    scene = Scene()

    def refuse(shard: Numbers) -> Result[int]:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    assert code_of(scene.runtime.write(0, refuse)) is ErrorCode.INVALID_TXN_STATE
    assert scene.log.batches == []


def test_an_append_that_fails_changes_nothing_and_says_so() -> None:
    scene = Scene()
    scene.log.fail_next = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    told: list[KafkaError | None] = []
    reply = scene.runtime.write(0, lambda _: Result([put("a", 1)], 1, told.append))
    assert code_of(reply) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [error.code for error in told if error] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert scene.shard.numbers == {}


def test_answers_wait_for_the_commit_in_order() -> None:
    scene = Scene(MemoryLog(autocommit=False))
    order: list[str] = []
    first = scene.runtime.write(0, lambda _: Result([put("a", 1)], 1, lambda error: order.append("first")))
    second = scene.add("a", 1)
    second.when_done(lambda _: order.append("second"))
    assert not first.done
    scene.log.commit(1)
    assert first.done
    assert not second.done
    scene.log.commit()
    assert (first.result(), second.result()) == (1, 2)
    assert order == ["first", "second"]


def test_a_query_waits_until_what_it_has_seen_is_committed() -> None:
    scene = Scene(MemoryLog(autocommit=False))
    scene.add("a", 1)
    found = scene.get("a")
    assert not found.done
    scene.log.commit()
    assert found.result() == 1


def test_a_commit_that_does_not_come_in_time_is_an_error_but_stays_written() -> None:
    scene = Scene(MemoryLog(autocommit=False))
    reply = scene.add("a", 1)
    scene.pass_ms(499)
    assert not reply.done
    scene.pass_ms(1)
    assert code_of(reply) is ErrorCode.REQUEST_TIMED_OUT
    scene.log.commit()
    assert scene.get("a").result() == 1


def test_an_answer_that_a_later_command_gives_is_passed_on() -> None:
    scene = Scene(MemoryLog(autocommit=False))
    promise: Promise[int] = Promise()
    reply: Promise[int] = scene.runtime.write(0, lambda _: Result([put("a", 1)], promise))
    promise.resolve(9)
    assert not reply.done
    scene.log.commit()
    assert reply.result() == 9


def test_a_partition_that_is_not_held_is_refused() -> None:
    scene = Scene()
    assert code_of(scene.runtime.write(7, lambda shard: shard.add("a", 1))) is ErrorCode.NOT_COORDINATOR
    assert code_of(scene.runtime.read(7, lambda shard: 1)) is ErrorCode.NOT_COORDINATOR


def test_unloading_answers_those_who_wait_and_stops_the_timers() -> None:
    scene = Scene(MemoryLog(autocommit=False))
    reply = scene.add("a", 1)
    rung: list[int] = []
    scene.shard.context.timers.schedule("x", 10, lambda: rung.append(1))
    scene.runtime.unload(0)
    assert code_of(reply) is ErrorCode.NOT_COORDINATOR
    assert scene.shard.events == ["loaded", "unloaded"]
    scene.pass_ms(1000)
    assert rung == []
    scene.log.commit()
    assert scene.runtime.active == []


def test_another_leader_finds_only_what_was_committed() -> None:
    scene = Scene(MemoryLog(autocommit=False))
    scene.add("a", 1)
    scene.log.commit()
    scene.add("a", 1)
    again = Scene(scene.log.crash())
    assert again.shard.numbers == {"a": 1}


def test_timers_run_commands_whose_records_are_written() -> None:
    scene = Scene()
    timers = scene.shard.context.timers
    timers.schedule("x", 10, lambda: Result([put("a", 5)], None))
    assert "x" in timers
    scene.pass_ms(10)
    assert "x" not in timers
    assert scene.get("a").result() == 5


class Alarm:
    """A timer's command, which counts how often it is run."""

    def __init__(self, scene: Scene, *, retry: bool = True) -> None:
        self.runs = 0
        self.raise_next: Exception | None = None
        self._scene = scene
        scene.shard.context.timers.schedule("x", 10, self._ring, retry=retry)

    def _ring(self) -> Result[None]:
        self.runs += 1
        if self.raise_next is not None:
            error, self.raise_next = self.raise_next, None
            raise error
        return Result([put("a", 5)], None)

    def is_refused_after(self, delta_ms: int, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        """Its records are refused then, and not before."""
        runs = self.runs
        self._scene.log.fail_next = KafkaError(error)
        self._scene.pass_ms(delta_ms - 1)
        assert self.runs == runs
        self._scene.pass_ms(1)
        assert self.runs == runs + 1


def test_a_timer_that_may_be_retried_is_run_until_the_log_takes_its_records() -> None:
    scene = Scene()
    alarm = Alarm(scene)
    for delay_ms in (10, 500, 1000, 2000, 4000, 8000, 8000):
        alarm.is_refused_after(delay_ms)
        assert "x" in scene.shard.context.timers
    scene.pass_ms(8000)
    assert scene.get("a").result() == 5
    scene.pass_ms(60_000)
    assert alarm.runs == 8


def test_a_timer_that_may_be_retried_is_run_again_after_an_unexpected_error() -> None:
    scene = Scene()
    alarm = Alarm(scene)
    alarm.raise_next = ValueError("a bug")
    scene.pass_ms(10)
    assert alarm.runs == 1
    scene.pass_ms(500)
    assert alarm.runs == 2
    assert scene.get("a").result() == 5


def test_others_are_not_run_again() -> None:
    scene = Scene()
    alarm = Alarm(scene, retry=False)
    alarm.is_refused_after(10)
    scene.pass_ms(60_000)
    assert alarm.runs == 1


@pytest.mark.parametrize(
    "end",
    [
        lambda scene: scene.shard.context.timers.cancel("x"),
        lambda scene: scene.shard.context.timers.schedule("x", 100_000, lambda: None),
        lambda scene: scene.runtime.unload(0),
    ],
    ids=["cancelled", "set anew", "unloaded"],
)
def test_a_timer_that_somebody_has_decided_about_is_not_run_again(end: Callable[[Scene], None]) -> None:
    scene = Scene()
    alarm = Alarm(scene)
    alarm.is_refused_after(10, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    end(scene)
    scene.pass_ms(60_000)
    assert alarm.runs == 1


def test_what_a_timer_has_written_is_not_written_again_if_its_commit_takes_too_long() -> None:
    scene = Scene(MemoryLog(autocommit=False))
    alarm = Alarm(scene)
    scene.pass_ms(10)
    scene.pass_ms(60_000)
    assert alarm.runs == 1
    assert scene.shard.numbers == {"a": 5}


def test_a_transaction_is_seen_when_its_marker_commits_it() -> None:
    scene = Scene()
    mine, other = Producer(10, 0), Producer(11, 0)
    scene.runtime.write(0, lambda _: Result([put("a", 1)], None), mine)
    scene.runtime.write(0, lambda _: Result([put("b", 1)], None), other)
    assert scene.get("a").result() is None
    assert scene.runtime.end_transaction(0, mine, 1, committed=True).error is None
    assert scene.runtime.end_transaction(0, other, 1, committed=False).error is None
    assert scene.shard.numbers == {"a": 1}
    assert Scene(scene.log).shard.numbers == {"a": 1}


def test_an_open_transaction_is_still_open_after_loading() -> None:
    scene = Scene()
    scene.runtime.write(0, lambda _: Result([put("a", 1)], None), Producer(10, 2))
    again = Scene(scene.log)
    assert again.shard.pending == {Producer(10, 2): {"a": 1}}
    again.runtime.end_transaction(0, Producer(10, 2), 1, committed=True)
    assert again.shard.numbers == {"a": 1}


def test_what_is_too_large_for_a_batch_is_refused_or_split() -> None:
    scene = Scene(MemoryLog(max_batch_bytes=400))
    records = [put(f"name-{number}", number) for number in range(30)]
    assert code_of(scene.runtime.write(0, lambda _: Result(records, None))) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert scene.log.batches == []
    scene.runtime.write(0, lambda _: Result(records, None, atomic=False))
    assert len(scene.log.batches) > 1
    assert scene.shard.offsets == list(range(30))
    assert Scene(scene.log).shard.numbers == scene.shard.numbers


def test_records_of_unknown_types_and_without_keys_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MemoryLog()
    known = encode_key(TransactionLogKey(transactional_id="a"))
    log.append(encode_batch([Record(timestamp=1, key=b"\x00\x63later"), Record(timestamp=1, key=None)]))
    log.append(encode_batch([Record(timestamp=1, key=known, value=None)]))
    scene = Scene(log)
    assert scene.is_active
    assert scene.shard.offsets == [2]
    assert "1 of unknown types at offset 0; " in caplog.text


@pytest.mark.parametrize("value", [b"", b"\x00\x63", b"\x00\x00\x01"], ids=["none", "version", "torn"])
def test_a_record_that_cannot_be_read_is_stepped_over(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryLog()
    known = encode_key(TransactionLogKey(transactional_id="a"))
    log.append(encode_batch([Record(timestamp=1, key=known, value=value)]))
    log.append(encode_batch([Record(timestamp=1, key=known, value=None)]))
    scene = Scene(log)
    assert scene.is_active
    assert scene.shard.offsets == [1]
    assert "1 record cannot be read, offset 0 (" in caplog.text


def test_a_shard_whose_log_goes_round_in_circles_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog()
    known = encode_key(TransactionLogKey(transactional_id="a"))
    log.append(encode_batch([Record(timestamp=1, key=known, value=None)]))
    monkeypatch.setattr(log, "read", lambda offset, max_bytes: log.batches[0])
    scene = Scene(log)
    assert not scene.is_active
    assert code_of(scene.add("a", 1)) is ErrorCode.NOT_COORDINATOR


def test_requests_during_loading_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.coordinator.runtime.LOAD_CHUNK_BYTES", 1)
    scene = Scene()
    for number in range(5):
        scene.add("a", number)

    async def body() -> None:
        scene.runtime.hold(0, 4, scene.log)
        assert code_of(scene.add("a", 1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        loading = asyncio.ensure_future(scene.runtime.load(0))
        await asyncio.sleep(0)
        assert code_of(scene.add("a", 1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert scene.runtime.active == []
        assert await loading
        assert scene.get("a").result() == 10

    asyncio.run(body())


def test_what_follows_loading_is_done_in_slices_while_requests_are_served() -> None:
    scene = Scene()
    scene.runtime.hold(0, 4, scene.log)
    scene.shard.steps, scene.shard.step_ms = 10, 3
    events = scene.shard.events
    seen: list[tuple[int, bool]] = []

    async def load() -> bool:
        loading = asyncio.ensure_future(scene.runtime.load(0))
        while not loading.done():
            await asyncio.sleep(0)
            seen.append((len(events), scene.add("a", 1).error is None))
        return await loading

    assert asyncio.run(load())
    assert events == ["loaded"] * 10
    between = [(count, served) for count, served in seen if 0 < count < 10]
    assert {count for count, _ in between} == {2, 4, 6, 8}, "two steps of 3 ms fit into a slice"
    assert all(served for _, served in between)


def test_a_shard_that_goes_right_after_loading_is_not_gone_on_with() -> None:
    scene = Scene()
    scene.runtime.hold(0, 4, scene.log)
    shard = scene.shard
    shard.steps, shard.step_ms = 10, 3

    async def load() -> bool:
        loading = asyncio.ensure_future(scene.runtime.load(0))
        while not loading.done():
            await asyncio.sleep(0)
            if shard.events:
                scene.runtime.unload(0)
        return await loading

    assert not asyncio.run(load())
    assert shard.events.count("loaded") == 2


def test_a_shard_is_let_go_of_in_slices() -> None:
    scene = Scene()
    scene.shard.steps, scene.shard.step_ms = 10, 3
    scene.runtime.unload(0)
    counts = []
    while len(scene.timers):
        counts.append(scene.shard.events.count("unloaded"))
        scene.timers.run_due(0)
    assert counts == [2, 4, 6, 8, 10]


def test_when_the_broker_stops_shards_are_let_go_of_at_once() -> None:
    scene = Scene()
    scene.shard.steps, scene.shard.step_ms = 10, 3
    scene.runtime.unload_all()
    assert scene.shard.events.count("unloaded") == 10


def test_no_timer_of_a_shard_that_is_gone_rings_in_the_next_one() -> None:
    scene = Scene()
    rang: list[str] = []
    old = scene.shard
    old.steps, old.step_ms = 100, 3
    old.context.timers.schedule("alarm", 1, lambda: rang.append("old"))
    assert scene.runtime.load_nowait(0, 4, scene.log)
    scene.pass_ms(10)
    assert scene.shard is not old
    assert not rang
    while "unloaded" in old.events and old.events.count("unloaded") < 100:
        scene.pass_ms(1)
    scene.pass_ms(1)
    assert "alarm" not in old.context.timers


def test_unloading_ends_a_loading_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.coordinator.runtime.LOAD_CHUNK_BYTES", 1)
    scene = Scene()
    for number in range(5):
        scene.add("a", number)

    async def body() -> None:
        scene.runtime.hold(0, 4, scene.log)
        assert code_of(scene.add("a", 1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        loading = asyncio.ensure_future(scene.runtime.load(0))
        await asyncio.sleep(0)
        scene.runtime.unload(0)
        assert not await loading
        assert scene.shard.events == []

    asyncio.run(body())


def test_only_shards_that_serve_hear_of_metadata() -> None:
    scene = Scene()
    scene.runtime.metadata_changed(ImageDelta(topics={"x"}))
    assert scene.shard.events == ["loaded", "metadata"]


def test_a_bug_in_a_command_reaches_the_caller_and_writes_nothing() -> None:
    scene = Scene()

    def bug(shard: Numbers) -> Result[int]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scene.runtime.write(0, bug)
    assert scene.log.batches == []


def test_then_without_records_is_told_at_once() -> None:
    told: list[KafkaError | None] = []
    then: Callable[[KafkaError | None], object] = told.append
    assert Scene().runtime.write(0, lambda _: Result([], 1, then)).result() == 1
    assert told == [None]
