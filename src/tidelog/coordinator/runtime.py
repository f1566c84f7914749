"""The runtime of both coordinators: shards that replay a log, commands that return records and a response.

A shard is a state machine over one partition of an internal topic. The runtime

* *loads* it when this broker comes to lead the partition, by replaying the log from its start: off the loop
  as far as no state is touched, else in slices between which the loop serves others; meanwhile requests get
  COORDINATOR_LOAD_IN_PROGRESS;
* *writes*: a command looks at the shard and returns a :class:`Result`, records and a response, without
  changing what records say; the runtime appends the records, replays them into the shard, and gives the
  response once they are committed. If the append fails nothing has changed;
* *reads*: a query's answer waits until everything it may have seen is committed, so nobody is told what a
  change of leader could take back. A long query is a generator (``read_in_slices``, ``read_each``), and its
  answer waits for what was written until it ended;
* *unloads* it when the partition is led elsewhere: what waits is answered with NOT_COORDINATOR.

State that is in no record (who waits for a rebalance, timers) may be changed by a command at once, or in
``Result.then``, which is told when the records are committed or have failed.

Everything runs on one loop, or on none: tests drive a runtime with ``MemoryLog`` and ``ManualClock``.
Used by ``coordinator/group`` and ``coordinator/transaction``; wired by ``broker/coordination/coordinators``.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from tidelog.clock import Clock
from tidelog.coordinator.loading.log_replay import NO_PRODUCER, LogReplay, Replayed
from tidelog.coordinator.loading.log_replay import Producer as Producer
from tidelog.coordinator.log import CoordinatorLog
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord, encode_key, encode_value
from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError, TidelogError
from tidelog.metadata.feed import ImageDelta
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.scheduling.promise import Promise, gather
from tidelog.scheduling.slices import Slices, run_to_end
from tidelog.scheduling.timers import Timers
from tidelog.storage.segment.index_rebuild import IndexesNotReady

logger = logging.getLogger(__name__)

R = TypeVar("R")

LOAD_CHUNK_BYTES = 512 * 1024
"""What is read from a log at once; walking over it is done off the loop."""
LOAD_SLICE_MS = 4.0
"""After so long others have their turn before loading goes on."""
REBUILDS_AWAITED = 3
"""So often loading waits for one index: where the disk is full, say, every rebuilding fails."""
FIRST_RETRY_MS = 500.0
"""After so long a timer's command that failed or was refused is run again, then after twice the time."""
MAX_RETRY_MS = 8000.0


class Result(NamedTuple, Generic[R]):
    """What a command comes to."""

    records: Sequence[StoredRecord]
    response: R | Promise[R]
    """The answer, or the promise of one that some later command or timer settles."""
    then: Callable[[KafkaError | None], object] | None = None
    """Told that the records are committed (None) or what kept them from it; before the response goes out."""
    replay: bool = True
    """False where the command has already brought the shard to the state that the records describe."""
    atomic: bool = True
    """False where the records may go into several batches if they are too many for one."""


TimerCommand = Callable[[], Result[None] | None]


class Shard(Replayed, Protocol):
    """A state machine over one partition."""

    def loaded(self) -> Iterator[None]:
        """The whole log has been replayed; timers may be set now. In steps: requests come in between."""

    def unloaded(self) -> Iterator[None]:
        """The partition is led elsewhere: fail the promises that wait and let go of everything, in steps.

        No timer rings any more.
        """

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Topics have come, gone or changed."""


S = TypeVar("S", bound=Shard)


class ShardTimers:
    """The timers of one shard: actions are commands, whose records are written like any other's."""

    def __init__(self, timers: Timers, run: Callable[[TimerCommand], bool]) -> None:
        """``run`` tells whether the log has taken what a command came to."""
        self._timers = timers
        self._run = run
        self._keys: set[Hashable] = set()
        self._closed = False

    def schedule(self, key: Hashable, delay_ms: float, command: TimerCommand, *, retry: bool = False) -> None:
        """Run ``command`` in ``delay_ms``; a timer of the same key is replaced.

        With ``retry`` it is run until the log takes its records, unless the timer is set anew or cancelled;
        for commands that leave everything as it was when it does not, and when they fail themselves.
        """
        self._arm(key, delay_ms, command, FIRST_RETRY_MS if retry else None)

    def cancel(self, key: Hashable) -> None:
        """Forget the timer of ``key``, if there is one."""
        self._keys.discard(key)
        self._timers.cancel((self, key))

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def close(self) -> None:
        """The shard is gone: no timer of it rings any more, none can be set."""
        self._closed = True

    def forget(self) -> Iterator[None]:
        """Take the timers of a shard that is gone away, in steps."""
        while self._keys:
            self._timers.cancel((self, self._keys.pop()))
            yield

    def _arm(self, key: Hashable, delay_ms: float, command: TimerCommand, retry_ms: float | None) -> None:
        if not self._closed:
            self._keys.add(key)
            self._timers.schedule((self, key), delay_ms, lambda: self._due(key, command, retry_ms))

    def _due(self, key: Hashable, command: TimerCommand, retry_ms: float | None) -> None:
        self._keys.discard(key)
        if self._closed:
            return
        taken = False
        try:
            taken = self._run(command)
        finally:
            # Also after an unexpected error: what the timer is for, a dead member say, would stay for ever.
            if not taken and retry_ms is not None and key not in self._keys:
                self._arm(key, retry_ms, command, min(2 * retry_ms, MAX_RETRY_MS))


@dataclass(slots=True)
class ShardContext:
    """What a shard is given when it is made."""

    partition: int
    epoch: int
    """The leader epoch of its partition: the coordinator epoch of transaction markers."""
    clock: Clock
    timers: ShardTimers


class _State(enum.Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class _Waiting(NamedTuple):
    """An answer that is due when the log is committed up to ``end_offset``."""

    end_offset: int
    number: int
    settle: Callable[[KafkaError | None], object]


class _Loaded(Generic[S]):
    """One shard with its log."""

    def __init__(self, context: ShardContext, log: CoordinatorLog, shard: S) -> None:
        self.context = context
        self.log = log
        self.timers = context.timers
        self.shard = shard
        self.state = _State.LOADING
        self.waiting: deque[_Waiting] = deque()


class Runtime(Generic[S]):
    """The shards of one coordinator on this broker."""

    def __init__(
        self,
        name: str,
        schemas: RecordSchemas,
        make_shard: Callable[[ShardContext], S],
        *,
        clock: Clock,
        timers: Timers,
        write_timeout_ms: float = 5000,
        codec: Codec = Codec.NONE,
    ) -> None:
        self.name = name
        self.schemas = schemas
        self.clock = clock
        self.write_timeout_ms = write_timeout_ms
        self.codec = codec
        self._make_shard = make_shard
        self._timers = timers
        self._shards: dict[int, _Loaded[S]] = {}
        self._numbers = iter(range(1, 1 << 62))
        self.loads = 0
        """How many shards were loaded, whether well or not."""
        self.load_ms_total = 0.0
        self.load_ms_max = 0.0

    # Loading

    @property
    def active(self) -> list[int]:
        """The partitions whose shards serve."""
        return [index for index, held in self._shards.items() if held.state is _State.ACTIVE]

    @property
    def shards(self) -> list[tuple[str, S]]:
        """All shards, each with what has become of it: loading, active or failed."""
        return [(held.state.value, held.shard) for held in self._shards.values()]

    def epoch_of(self, partition: int) -> int | None:
        """The leader epoch that a partition is held under, if it is held."""
        held = self._shards.get(partition)
        return held.context.epoch if held is not None else None

    def has_failed(self, partition: int) -> bool:
        """Whether a partition is held that could not be loaded."""
        held = self._shards.get(partition)
        return held is not None and held.state is _State.FAILED

    def raise_epoch(self, partition: int, epoch: int) -> None:
        """This broker leads a held partition on, under a later epoch: what is loaded stays as it is."""
        context = self._shards[partition].context
        context.epoch = max(context.epoch, epoch)

    def hold(self, partition: int, epoch: int, log: CoordinatorLog) -> None:
        """This broker leads the partition now: requests are told to come again until it is loaded."""
        self.unload(partition)
        timers = ShardTimers(self._timers, lambda command: self._run_timer(partition, command))
        context = ShardContext(partition, epoch, self.clock, timers)
        self._shards[partition] = _Loaded(context, log, self._make_shard(context))

    async def load(self, partition: int) -> bool:
        """Replay the log of a held partition; False if it was unloaded meanwhile or cannot be read."""
        loop = asyncio.get_running_loop()
        held = self._shards[partition]

        def off_loop(work: Callable[[], bool]) -> Awaitable[bool]:
            return loop.run_in_executor(None, work)

        began_ms = self.clock.monotonic_ms()
        await self._replay_log(partition, held, off_loop, _others_turn)
        took_ms = self.clock.monotonic_ms() - began_ms
        self.loads += 1
        self.load_ms_total += took_ms
        self.load_ms_max = max(self.load_ms_max, took_ms)
        return held.state is _State.ACTIVE

    def load_nowait(self, partition: int, epoch: int, log: CoordinatorLog) -> bool:
        """Hold and load a partition in one go, without a loop."""
        self.hold(partition, epoch, log)
        held = self._shards[partition]
        with contextlib.suppress(StopIteration):
            self._replay_log(partition, held, _at_once, _no_turn).send(None)
        return held.state is _State.ACTIVE

    def unload(self, partition: int, *, at_once: bool = False) -> None:
        """This broker does not lead the partition any longer; what was loaded goes in slices."""
        held = self._shards.pop(partition, None)
        if held is None:
            return
        was_active = held.state is _State.ACTIVE
        held.state = _State.CLOSED
        held.log.on_committed = lambda: None
        held.timers.close()
        waiting, held.waiting = held.waiting, deque()
        for each in waiting:
            self._timers.cancel((self.name, "write", each.number))
            each.settle(_not_coordinator())
        end = held.shard.unloaded() if was_active else iter(())
        self._let_go(chain(end, held.timers.forget()), at_once=at_once)

    def unload_all(self) -> None:
        """The broker stops; nobody is left to be served in between."""
        for partition in list(self._shards):
            self.unload(partition, at_once=True)

    def _let_go(self, steps: Iterator[None], *, at_once: bool = False) -> None:
        """Take apart what was loaded: at once and freed as a whole it would hold everybody up."""
        until_ms = self.clock.monotonic_ms() + LOAD_SLICE_MS
        for _ in steps:
            if not at_once and self.clock.monotonic_ms() >= until_ms:
                number = next(self._numbers)
                self._timers.schedule((self.name, "let go", number), 0, lambda: self._let_go(steps))
                return

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Tell every shard of changed topics."""
        for partition in self.active:
            self._shards[partition].shard.metadata_changed(delta)

    async def _replay_log(
        self,
        partition: int,
        held: _Loaded[S],
        off_loop: Callable[[Callable[[], bool]], Awaitable[bool]],
        others_turn: Callable[[], Awaitable[None]],
    ) -> None:
        """Replay everything: batches are walked over by ``off_loop``, and applied here in short slices."""
        try:
            if await self._replay_chunks(partition, held, off_loop, others_turn):
                held.state = _State.ACTIVE
                held.log.on_committed = lambda: self._committed(held)
                await self._in_slices(held, held.shard.loaded(), others_turn)
        except Exception as error:
            # A shard that knows half of its log must not serve; the others can.
            held.state = _State.FAILED
            held.timers.close()
            self._let_go(held.timers.forget())
            if isinstance(error, TidelogError):
                logger.error("%s-%d cannot be loaded: %s", self.name, partition, error)
            else:
                logger.exception("Unexpected error in loading %s-%d", self.name, partition)

    async def _replay_chunks(
        self,
        partition: int,
        held: _Loaded[S],
        off_loop: Callable[[Callable[[], bool]], Awaitable[bool]],
        others_turn: Callable[[], Awaitable[None]],
    ) -> bool:
        """Whether everything has been replayed; otherwise the partition was unloaded meanwhile."""
        offset = held.log.start_offset
        replay = LogReplay(f"{self.name}-{partition}", self.schemas, held.shard)
        while held.state is _State.LOADING and (chunk := await self._read_chunk(held, offset)):
            replay.open(chunk)
            done = False
            while not done and held.state is _State.LOADING:
                done = await off_loop(replay.walk)
                await self._in_slices(held, replay.apply(), others_turn)
            if replay.next_offset <= offset and done:
                raise CorruptRecordError(f"after offset {offset} the log goes on at {replay.next_offset}")
            offset = replay.next_offset
        await self._in_slices(held, replay.finish(), others_turn)
        return held.state is _State.LOADING

    async def _read_chunk(self, held: _Loaded[S], offset: int) -> bytes:
        """What is to be replayed next; nothing if the partition was unloaded meanwhile.

        Loading is often the first to use an index, and so finds out that it has to be rebuilt.
        """
        for _ in range(REBUILDS_AWAITED):
            try:
                return held.log.read(offset, LOAD_CHUNK_BYTES)
            except IndexesNotReady as rebuilding:
                await rebuilding.wait()
                if held.state is not _State.LOADING:
                    return b""
        return held.log.read(offset, LOAD_CHUNK_BYTES)

    async def _in_slices(
        self, held: _Loaded[S], steps: Iterator[None], others_turn: Callable[[], Awaitable[None]]
    ) -> None:
        """Take all steps, unless the shard has come to another state between two slices."""
        state = held.state
        monotonic_ms = self.clock.monotonic_ms
        until_ms = monotonic_ms() + LOAD_SLICE_MS
        for _ in steps:
            if monotonic_ms() >= until_ms:
                await others_turn()
                if held.state is not state:
                    return
                until_ms = monotonic_ms() + LOAD_SLICE_MS

    # Writing and reading

    def write(
        self, partition: int, command: Callable[[S], Result[R]], producer: Producer = NO_PRODUCER
    ) -> Promise[R]:
        """Run a command: append what it returns, replay it, and answer once that is committed.

        With a ``producer`` the records are part of its transaction, and ``command`` must not be one whose
        effects are seen before that ends.
        """
        try:
            held = self._active(partition)
            result = command(held.shard)
        except KafkaError as error:
            return Promise.failed(error)
        return self._carry_out(held, result, producer)

    def read(self, partition: int, query: Callable[[S], R]) -> Promise[R]:
        """Ask a shard; the answer waits until all that it may tell of is committed."""
        try:
            held = self._active(partition)
            answer = query(held.shard)
        except KafkaError as error:
            return Promise.failed(error)
        return self._when_committed(held, held.log.end_offset, answer, None)

    def read_in_slices(self, partition: int, query: Callable[[S], Slices[R]]) -> Slices[Promise[R]]:
        """Ask a shard what takes long; it may change between the slices, and be led elsewhere."""
        try:
            held = self._active(partition)
            work = query(held.shard)
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    answer = cast(R, end.value)
                    break
                yield
                if held.state is not _State.ACTIVE:
                    raise _not_coordinator()
        except KafkaError as error:
            return Promise.failed(error)
        return self._when_committed(held, held.log.end_offset, answer, None)

    def read_each(
        self,
        keys: Sequence[str],
        partition_for: Callable[[str], int],
        find: Callable[[S, str], R],
        refuse: Callable[[str, KafkaError], R],
    ) -> Slices[Promise[list[R]]]:
        """What ``find`` says of every key, in their order; ``refuse`` of an error, its own or its shard's.

        A key that is named again has the same answer again: answers are large, and a name is not.
        """
        by_partition: dict[int, list[int]] = {}
        for number, key in enumerate(keys):
            by_partition.setdefault(partition_for(key), []).append(number)
            yield
        answers = cast("list[R]", [None] * len(keys))

        def look(shard: S, numbers: list[int]) -> Slices[None]:
            found: dict[str, R] = {}
            for number in numbers:
                key = keys[number]
                if key not in found:
                    try:
                        found[key] = find(shard, key)
                    except KafkaError as error:
                        found[key] = refuse(key, error)
                answers[number] = found[key]
                yield

        def refuse_all(numbers: list[int], error: Exception) -> Slices[None]:
            if not isinstance(error, KafkaError):
                raise error
            for number in numbers:
                answers[number] = refuse(keys[number], error)
                yield

        waiting: list[Promise[None]] = []
        for partition, numbers in by_partition.items():
            reply = yield from self.read_in_slices(partition, partial(look, numbers=numbers))
            if not reply.done:
                waiting.append(reply.recover(_at_once_with(partial(refuse_all, numbers))))
            elif reply.error is not None:
                yield from refuse_all(numbers, reply.error)
        return gather(waiting).then(lambda _: answers)

    def end_transaction(
        self, partition: int, producer: Producer, coordinator_epoch: int, *, committed: bool
    ) -> Promise[None]:
        """Write the marker that ends a transaction in this partition, and let the shard know."""
        try:
            held = self._active(partition)
            marker = EndTxnMarker(ControlType.COMMIT if committed else ControlType.ABORT, coordinator_epoch)
            held.log.append(
                encode_end_txn_marker(
                    marker,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    timestamp=self.clock.time_ms(),
                )
            )
        except KafkaError as error:
            return Promise.failed(error)
        held.shard.replay_marker(producer, committed)
        return self._when_committed(held, held.log.end_offset, None, None)

    def _active(self, partition: int) -> _Loaded[S]:
        held = self._shards.get(partition)
        if held is None or held.state is _State.FAILED:
            raise _not_coordinator()
        if held.state is _State.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The coordinator is loading its log.")
        return held

    def _carry_out(self, held: _Loaded[S], result: Result[R], producer: Producer) -> Promise[R]:
        records = result.records
        if records:
            try:
                offset = self._append(held, records, producer, result.atomic)
            except KafkaError as error:
                if result.then is not None:
                    result.then(error)
                return Promise.failed(error)
            if result.replay:
                replay = held.shard.replay
                for number, record in enumerate(records):
                    replay(offset + number, producer, record)
        return self._when_committed(held, held.log.end_offset, result.response, result.then)

    def _append(
        self, held: _Loaded[S], records: Sequence[StoredRecord], producer: Producer, atomic: bool
    ) -> int:
        now_ms = self.clock.time_ms()
        encoded = [
            Record(
                timestamp=now_ms,
                key=encode_key(key),
                value=None if value is None else encode_value(value, version),
            )
            for key, value, version in records
        ]
        return self._append_encoded(held.log, encoded, producer, atomic)

    def _append_encoded(
        self, log: CoordinatorLog, records: list[Record], producer: Producer, atomic: bool
    ) -> int:
        transactional = producer.producer_id >= 0
        batch = encode_batch(
            records,
            codec=self.codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=transactional,
        )
        limit = log.max_batch_bytes
        if len(batch) <= limit:
            return log.append(batch)
        if atomic or len(records) == 1:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The records of one operation take {len(batch)} bytes in {self.name}, which takes {limit}",
            )
        # Offsets of both halves follow each other: nobody else writes between two appends of one command.
        half = len(records) // 2
        first = self._append_encoded(log, records[:half], producer, atomic)
        self._append_encoded(log, records[half:], producer, atomic)
        return first

    # Answering

    def _when_committed(
        self,
        held: _Loaded[S],
        end_offset: int,
        response: R | Promise[R],
        then: Callable[[KafkaError | None], object] | None,
    ) -> Promise[R]:
        if held.log.committed_offset >= end_offset:
            if then is not None:
                then(None)
            return response if isinstance(response, Promise) else Promise.of(response)
        reply: Promise[R] = Promise()

        def settle(error: KafkaError | None) -> None:
            if then is not None:
                then(error)
            if error is not None:
                reply.fail(error)
            else:
                reply.follow(response)

        waiting = _Waiting(end_offset, next(self._numbers), settle)
        held.waiting.append(waiting)
        self._timers.schedule(
            (self.name, "write", waiting.number), self.write_timeout_ms, lambda: self._too_late(held, waiting)
        )
        return reply

    def _committed(self, held: _Loaded[S]) -> None:
        committed = held.log.committed_offset
        while held.waiting and held.waiting[0].end_offset <= committed:
            waiting = held.waiting.popleft()
            self._timers.cancel((self.name, "write", waiting.number))
            waiting.settle(None)

    def _too_late(self, held: _Loaded[S], waiting: _Waiting) -> None:
        if waiting in held.waiting:
            held.waiting.remove(waiting)
            waiting.settle(
                KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{self.name} was not replicated within {self.write_timeout_ms:.0f} ms",
                )
            )

    def _run_timer(self, partition: int, command: TimerCommand) -> bool:
        """Whether the log has taken what it came to; whether that is committed in time is another matter."""
        held = self._shards.get(partition)
        if held is None or held.state is not _State.ACTIVE:
            return False
        try:
            result = command()
        except KafkaError as error:
            logger.warning("A timer of %s-%d came to nothing: %s", self.name, partition, error)
            return False
        if result is None:
            return True
        reply = self._carry_out(held, result, NO_PRODUCER)
        if reply.done and reply.error is not None:
            logger.warning("A timer of %s-%d came to nothing: %s", self.name, partition, reply.error)
            return False
        return True


def _at_once_with(work: Callable[[Exception], Slices[None]]) -> Callable[[Exception], None]:
    return lambda error: run_to_end(work(error))


async def _others_turn() -> None:
    await asyncio.sleep(0)


async def _at_once(work: Callable[[], bool]) -> bool:
    return work()


async def _no_turn() -> None:
    """Nobody else is there."""


def _not_coordinator() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")
