"""Following: one loop for each leader, which fetches all partitions that this broker follows there.

A fetched batch is appended as it is, so replicas are equal byte for byte. With each fetch the follower
tells the epoch of its last batch; where the leader's log has something else, the leader says so, and the
follower cuts its log back to where both agree, step by step if need be (KIP-101, KIP-279, KIP-595). The
high watermark and the start of the log follow the leader's.

As long as there is nothing but records to append, the next fetch goes out in the turn of the loop in which
the answer to the last one came: producers wait for just that. The loop's task steps in where something has to
be waited for: a connection, a sync, the end of a pause, or its next turn where an answer holds more batches
than are to be appended in one.

A partition that cannot be fetched (its leader is not ready, or the records are bad) waits a while, and so
does one whose replication is throttled (``throttle``); the others go on. One whose epoch is over is dropped:
the controller will say what becomes of it. A disk that fails takes its directory offline and its partitions
out of the loop; where the directory stays, as when there are no files to be opened, they wait a while.

Owned by ``broker/cluster/membership``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Final

from tidelog.clock import Clock
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError, TidelogError
from tidelog.ids import NO_LEADER_EPOCH, TopicPartition, listed
from tidelog.records.batch import leading_batches
from tidelog.replication.leader_endpoint import (
    Answers,
    FetchedPartition,
    FollowerPosition,
    LeaderEndpoint,
    Positions,
)
from tidelog.replication.partition import Partition
from tidelog.replication.throttle import ReplicationThrottle
from tidelog.storage.disk import leaves_directory

logger = logging.getLogger(__name__)

# What is taken of an answer in one turn of the loop: so many batches or bytes, or so many partitions, which
# are cheap where nothing has come for them.
_BATCHES_PER_TURN: Final = 200
_BYTES_PER_TURN: Final = 1024 * 1024
_PARTITIONS_PER_TURN: Final = 2000

_NOT_READY = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


def _is_fenced(answer: FetchedPartition) -> bool:
    """Whether the leader knows a newer epoch; the controller will say what becomes of the partition."""
    return answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


class Followed:
    """A partition in a loop: the epoch it is followed in, until when it waits, what was last asked for it,
    and whether it had all that was committed at its last fetch."""

    __slots__ = ("caught_up", "epoch", "is_cut", "lag", "partition", "position", "until_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.until_ms = float("-inf")
        self.position: FollowerPosition | None = None
        self.caught_up = False
        self.is_cut = partition.log.epochs.latest_epoch != NO_LEADER_EPOCH
        """Whether nothing has to be cut off before it may be followed. Without epochs nobody can tell where
        histories part; what is committed is common to all."""
        self.lag = 0
        """How many records it lacked at its last fetch."""


class Appending:
    """What a fetch has brought, on its way into the logs."""

    __slots__ = ("_work", "is_done", "unusual")

    def __init__(self, work: Generator[None, None, Answers]) -> None:
        self.is_done = False
        self.unusual: Answers = {}
        """The answers that are not just records, once all is done."""
        self._work = work

    def go_on(self) -> None:
        """Do as much as one turn of the loop is for."""
        try:
            next(self._work)
        except StopIteration as end:
            self.is_done = True
            self.unusual = end.value


class FetchLoop:
    """Fetches from one leader; ``start`` it once, ``close`` it once."""

    def __init__(
        self,
        leader_id: int,
        endpoint: LeaderEndpoint,
        clock: Clock,
        backoff_ms: Callable[[], int],
        on_offline: Callable[[LogDirOfflineError], None],
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self.leader_id = leader_id
        self._throttle = throttle
        self._endpoint = endpoint
        self._clock = clock
        self._backoff_ms = backoff_ms
        self._on_offline = on_offline
        self._followed: dict[TopicPartition, Followed] = {}
        self._more = asyncio.Event()
        self._unusual: asyncio.Future[tuple[Positions, Appending]]
        """What the task waits for while fetches go on without it."""
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False
        """Whether the last attempt to fetch has failed, which is logged once."""

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def followed(self) -> Mapping[TopicPartition, Followed]:
        """The partitions that are fetched here."""
        return self._followed

    def start(self) -> None:
        """Begin to fetch."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop; nothing is appended afterwards."""
        self._followed.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._endpoint.close()

    def add(self, partition: Partition) -> None:
        """Follow a partition in the epoch that it is in now."""
        followed = self._followed[partition.topic_partition] = Followed(partition)
        if not followed.is_cut:
            self._cut_uncommitted(followed)
        self._more.set()

    def remove(self, partition: TopicPartition) -> None:
        """Follow a partition no more."""
        self._followed.pop(partition, None)

    # The loop

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except asyncio.CancelledError:
                raise
            except (OSError, TidelogError, TimeoutError) as error:
                # Each attempt until the broker is back, or another one leads, is the same event.
                level = logging.DEBUG if self._is_failing else logging.INFO
                self._is_failing = True
                logger.log(level, "Fetching from broker %d failed: %s", self.leader_id, error)
                await self._pause()
            except Exception:
                logger.exception("Unexpected error in fetching from broker %d", self.leader_id)
                await self._pause()

    async def _round(self) -> None:
        """One fetch and what comes of it; or, where nothing has to be waited for in between, many."""
        now_ms = self._clock.monotonic_ms()
        ready = self._ready(now_ms)
        if not ready:
            await self._wait_for_work(now_ms)
            return
        positions = self._positions(ready)
        if positions is None:
            await self._prepare(ready)
            return
        self._unusual = asyncio.get_running_loop().create_future()
        if self._begin_fetch(positions):
            positions, appending = await self._unusual
        else:
            answers = await self._endpoint.fetch(positions)
            appending = Appending(self._append_in_slices(positions, answers))
            appending.go_on()
        while not appending.is_done:
            await asyncio.sleep(0)
            appending.go_on()
        fenced = [name for name, each in appending.unusual.items() if _is_fenced(each)]
        if fenced:
            logger.info("The epochs of %s are over", listed(fenced))
        for topic_partition, answer in appending.unusual.items():
            followed = self._followed.get(topic_partition)
            position = positions.get(topic_partition)
            if followed is not None and position is not None and self._is_current(followed, position):
                await self._take(followed, position, answer)

    def _ready(self, now_ms: float) -> list[Followed]:
        """The partitions that may be fetched now."""
        ready = [each for each in self._followed.values() if each.until_ms <= now_ms]
        throttle = self._throttle
        if throttle is not None and throttle.is_in_use:
            ready = [each for each in ready if not self._held_back(throttle, each)]
        return ready

    def _positions(self, ready: list[Followed]) -> Positions | None:
        """Where to go on; None if something has to be synced or cut first. This is gone through for every
        fetch: what has not changed is neither made again nor, by ``RemoteLeader``, sent again."""
        positions: dict[TopicPartition, FollowerPosition] = {}
        for each in ready:
            partition = each.partition
            if partition.needs_sync or not each.is_cut:
                return None
            positions[partition.topic_partition] = self._position(each)
        return positions

    def _position(self, followed: Followed) -> FollowerPosition:
        partition = followed.partition
        log = partition.log
        position = followed.position
        if (
            position is None
            or position.offset != log.log_end_offset
            or position.log_start_offset != log.log_start_offset
            or position.last_fetched_epoch != log.epochs.latest_epoch
        ):
            position = followed.position = FollowerPosition(
                partition.topic_id,
                log.log_end_offset,
                log.log_start_offset,
                followed.epoch,
                log.epochs.latest_epoch,
            )
        return position

    def _begin_fetch(self, positions: Positions) -> bool:
        """Ask without waiting; the answer is taken, and the next one asked for, as soon as it is there."""
        return self._endpoint.begin_fetch(positions, lambda answers: self._answered(positions, answers))

    def _answered(self, positions: Positions, answers: Answers | Exception) -> None:
        """What was asked for without waiting has come. The task goes on where something has to be waited
        for."""
        waiting = self._unusual
        if waiting.done():
            # The loop has been closed.
            return
        try:
            if isinstance(answers, Exception):
                raise answers
            appending = Appending(self._append_in_slices(positions, answers))
            appending.go_on()
            usual = appending.is_done and not appending.unusual
            ready = self._ready(self._clock.monotonic_ms()) if usual else []
            following = self._positions(ready) if ready else None
            if following is None or not self._begin_fetch(following):
                waiting.set_result((positions, appending))
        except Exception as error:
            waiting.set_exception(error)

    def _append_in_slices(self, positions: Positions, answers: Answers) -> Generator[None, None, Answers]:
        """Append the records that have come; gives the answers that are something else.

        Yields wherever the rest is for another turn of the loop. By count and not by the clock, so that the
        same seed simulates the same.
        """
        if self._is_failing:
            self._is_failing = False
            logger.info("Fetching from broker %d works again", self.leader_id)
        unusual: Answers = {}
        batches, size, partitions = _BATCHES_PER_TURN, _BYTES_PER_TURN, _PARTITIONS_PER_TURN
        for topic_partition, answer in answers.items():
            position = positions.get(topic_partition)
            records = answer.records
            while position is not None:
                if batches <= 0 or size <= 0 or partitions <= 0:
                    yield
                    batches, size, partitions = _BATCHES_PER_TURN, _BYTES_PER_TURN, _PARTITIONS_PER_TURN
                followed = self._followed.get(topic_partition)
                if followed is None or not self._is_current(followed, position):
                    break
                if answer.error_code or answer.diverging_epoch is not None:
                    unusual[topic_partition] = answer
                    break
                count, end = leading_batches(records, batches, size)
                batches = batches - count if end == len(records) else 0
                size -= end
                partitions -= 1
                part, records = records[:end], records[end:]
                if not self._guarded(followed, self._append, followed, answer, part, not records):
                    break
                position = self._position(followed) if records else None
        return unusual

    async def _prepare(self, followed: list[Followed]) -> None:
        """Cut off what may not stay, and bring to the disk what topics with ``flush.messages`` want there
        before the leader counts on it."""
        loop = asyncio.get_running_loop()
        for each in followed:
            if not each.is_cut:
                self._cut_uncommitted(each)
            if not each.partition.needs_sync:
                continue
            try:
                await loop.run_in_executor(None, each.partition.log.files.flush)
            except LogDirOfflineError as error:
                self._disk_failed(each, error)
            if each.partition.needs_sync:
                self._delay(each)

    def _cut_uncommitted(self, followed: Followed) -> None:
        partition = followed.partition
        followed.is_cut = self._guarded(followed, partition.truncate_to, partition.log.high_watermark)

    async def _wait_for_work(self, now_ms: float) -> None:
        waits = [each.until_ms - now_ms for each in self._followed.values()]
        self._more.clear()
        try:
            async with asyncio.timeout(max(0.001, min(waits) / 1000) if waits else None):
                await self._more.wait()
        except TimeoutError:
            return

    def _held_back(self, throttle: ReplicationThrottle, followed: Followed) -> bool:
        """Whether a partition waits because too much was copied for throttled replicas of late."""
        if not throttle.holds_back(followed.partition.topic_partition, in_sync=followed.caught_up):
            return False
        self._delay(followed)
        return True

    async def _pause(self) -> None:
        await asyncio.sleep(self._backoff_ms() / 1000)

    def _is_current(self, followed: Followed, position: FollowerPosition) -> bool:
        """Whether an answer is still about what the partition is: it may have changed while it was
        fetched, or its topic have been deleted and made anew, with the same epoch and offset."""
        partition = followed.partition
        return (
            not partition.closed
            and not partition.is_leader
            and partition.topic_id == position.topic_id
            and followed.epoch == partition.leader_epoch == position.leader_epoch
            and partition.log.log_end_offset == position.offset
        )

    # Answers

    async def _take(self, followed: Followed, position: FollowerPosition, answer: FetchedPartition) -> None:
        """An answer that is not just more records, or none."""
        code = answer.error_code
        if code == ErrorCode.NONE:
            if answer.diverging_epoch is not None:
                await self._truncate(followed, *answer.diverging_epoch)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._start_again(followed, position)
        elif _is_fenced(answer):
            self.remove(followed.partition.topic_partition)
        else:
            if code not in _NOT_READY:
                logger.error(
                    "Broker %d refuses to be followed in %s: %s",
                    self.leader_id,
                    followed.partition.topic_partition,
                    ErrorCode(code).name,
                )
            self._delay(followed)

    def _append(
        self, followed: Followed, answer: FetchedPartition, records: memoryview, is_last: bool
    ) -> None:
        """Append the next of an answer's records, and after the last do as it says."""
        partition = followed.partition
        log = partition.log
        if records:
            log.begin_with_whole_batch(records)
            log.append_as_follower(records)
            partition.counts.replication_bytes_in += len(records)
            if partition.broker_id in partition.adding:
                partition.counts.reassignment_bytes_in += len(records)
            throttle = self._throttle
            if throttle is not None and throttle.applies_to(partition.topic_partition):
                throttle.record(len(records))
        if is_last:
            followed.caught_up = log.log_end_offset >= answer.high_watermark
            followed.lag = max(answer.high_watermark - log.log_end_offset, 0)
            partition.follow(answer.high_watermark, answer.log_start_offset)

    async def _truncate(self, followed: Followed, epoch: int, end_offset: int) -> None:
        """Cut the log back to where it agrees with the leader's, as far as ``epoch`` tells."""
        log = followed.partition.log
        known = log.end_offset_for_epoch(epoch)
        if known is None:
            offset = log.high_watermark if epoch < 0 else min(end_offset, log.log_end_offset)
        else:
            # If the leader's epoch is unknown here, what this log has of earlier ones may agree.
            own_epoch, own_end_offset = known
            offset = min(end_offset, own_end_offset) if own_epoch == epoch else own_end_offset
        if offset < log.high_watermark:
            logger.warning(
                "%s is cut back to offset %d, below its high watermark %d",
                followed.partition.topic_partition,
                offset,
                log.high_watermark,
            )
        await self._cut_back(followed, offset)

    async def _cut_back(self, followed: Followed, offset: int) -> None:
        """Truncate a log, which may have thousands of segments to lose, with turns for others in between."""
        partition = followed.partition
        for count, step in enumerate(partition.log.truncation_steps(offset)):
            if count:
                position = self._position(followed)
                await asyncio.sleep(0)
                known = self._followed.get(partition.topic_partition)
                if known is not followed or not self._is_current(followed, position):
                    return
            if not self._guarded(followed, partition.truncate_to, step):
                return

    async def _start_again(self, followed: Followed, position: FollowerPosition) -> None:
        """This log ends where the leader's has nothing: behind its end, or before its start."""
        partition = followed.partition
        try:
            start, end = await self._endpoint.log_bounds(partition.topic_partition, followed.epoch)
        except KafkaError as error:
            logger.info("The bounds of %s are not known: %s", partition.topic_partition, error)
            self._delay(followed)
            return
        if not self._is_current(followed, position):
            return
        if end < position.offset:
            # Only after an unclean election: the leader has less than this broker had.
            logger.warning("%s is cut back to its leader's end, offset %d", partition.topic_partition, end)
            await self._cut_back(followed, end)
        elif start > position.offset:
            self._guarded(followed, partition.start_again_at, start)
        else:
            self._delay(followed)

    # Trouble

    def _guarded(self, followed: Followed, work: Callable[..., object], *args: object) -> bool:
        """Change a log; what is wrong with it keeps the others from nothing. Whether nothing was."""
        partition = followed.partition
        try:
            work(*args)
            return True
        except LogDirOfflineError as error:
            self._disk_failed(followed, error)
        except (StorageError, KafkaError) as error:
            logger.error(
                "What broker %d sends of %s is refused: %s", self.leader_id, partition.topic_partition, error
            )
            self._delay(followed)
        return False

    def _disk_failed(self, followed: Followed, error: LogDirOfflineError) -> None:
        self._on_offline(error)
        if leaves_directory(error):
            self._delay(followed)
        else:
            self.remove(followed.partition.topic_partition)

    def _delay(self, followed: Followed) -> None:
        followed.until_ms = self._clock.monotonic_ms() + self._backoff_ms()


class FetchLoops:
    """One loop for each leader that partitions are followed at."""

    def __init__(self, make: Callable[[int], FetchLoop]) -> None:
        self._make = make
        self._loops: dict[int, FetchLoop] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, partition: Partition) -> None:
        """Follow a partition at its present leader, and nowhere else."""
        self.stop(partition.topic_partition)
        leader = partition.leader
        loop = self._loops.get(leader)
        if loop is None:
            loop = self._loops[leader] = self._make(leader)
            loop.start()
        loop.add(partition)
        self._leaders[partition.topic_partition] = leader

    def stop(self, partition: TopicPartition) -> None:
        """Follow a partition no more."""
        leader = self._leaders.pop(partition, None)
        if leader is not None and leader in self._loops:
            self._loops[leader].remove(partition)

    def close_idle(self) -> None:
        """End the loops that have nothing to fetch."""
        for leader, loop in list(self._loops.items()):
            if not len(loop):
                del self._loops[leader]
                self._close_soon(loop)

    def lags(self) -> list[tuple[int, TopicPartition, int]]:
        """Leader, partition, and how many records the replica here lacks as of its last fetch."""
        return [
            (leader, name, followed.lag)
            for leader, loop in self._loops.items()
            for name, followed in loop.followed.items()
        ]

    def leaders(self) -> Mapping[TopicPartition, int]:
        """Where each partition is followed."""
        return self._leaders

    async def close(self) -> None:
        """Stop all."""
        loops, self._loops = self._loops, {}
        self._leaders.clear()
        for loop in loops.values():
            self._close_soon(loop)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close_soon(self, loop: FetchLoop) -> None:
        task = asyncio.get_running_loop().create_task(loop.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
