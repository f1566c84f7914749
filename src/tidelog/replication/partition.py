"""One partition on this broker: the log, who leads it, and who waits for it to change.

``Partition`` is what handlers work with: it checks leadership and epochs, appends, reads, and moves the
high watermark. Where this broker has the only replica, the high watermark follows the end of the log;
otherwise the followers move it (``followers``), whose fetches come in by ``fetched_by``, and the leader has
the controller take them into the in-sync replicas or put them out (``in_sync``).

Appends are staged and written in groups (``append_group``), so that all produce requests of one readable
event cost one write per partition. Waiters (long polls, produce requests whose answer is not due yet) are
told in a turn of the loop of their own after anything they may wait for has changed: more records, a new
high watermark, a moved start, the end of the partition.

Topics with ``flush.messages``: when so many messages are unsynced, the log is synced before the high
watermark moves on, so that nobody reads or gets acknowledged what a power failure may take back. The sync
runs in a thread. What is appended meanwhile waits for the next one, which covers all of it.

Owned by ``replication/partitions``; called by handlers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple, Protocol

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import INTERNAL_TOPICS, NO_LEADER_EPOCH, NO_OFFSET, TopicPartition, Uuid
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.znodes import NO_LEADER
from tidelog.replication.followers import NO_BROKER_EPOCH, Follower, Followers
from tidelog.replication.in_sync import InSync
from tidelog.replication.surroundings import ALONE, Surroundings
from tidelog.storage.log import FetchSlice, Isolation, Log
from tidelog.storage.log_append import AppendInfo
from tidelog.storage.producer_state import AppendOrigin

logger = logging.getLogger(__name__)

ACKS_ALL = -1
_new_tuple = tuple.__new__


class Waiter(Protocol):
    """Somebody who waits for a partition to change."""

    def partition_changed(self, partition: Partition) -> None:
        """Look at ``partition`` again."""


class ReadResult(NamedTuple):
    """What a read found; ``slice`` is empty where there is nothing to send."""

    slice: FetchSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None = None


class Partition:
    """A replica of a partition on this broker."""

    __slots__ = (
        "_epoch_start_offset",
        "_followers",
        "_in_sync",
        "_loop",
        "_on_offline",
        "_only_replica",
        "_surroundings",
        "_waiters",
        "_waking",
        "broker_id",
        "closed",
        "flushing",
        "is_internal",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "offline",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: Log,
        broker_id: int,
        loop: asyncio.AbstractEventLoop,
        on_offline: Callable[[LogDirOfflineError], None],
        surroundings: Surroundings = ALONE,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.use_log(log)
        self.is_internal = topic_partition.topic in INTERNAL_TOPICS
        self.leader = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.is_leader = False
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.closed = False
        self.offline = False
        """Whether the partition was closed because its log directory has failed."""
        self.flushing = False
        """Whether the log is being synced before the high watermark may follow its end."""
        self._only_replica = False
        self._followers = Followers()
        self._in_sync = InSync()
        self._epoch_start_offset = NO_OFFSET
        self._surroundings = surroundings
        self._loop = loop
        self._on_offline = on_offline
        self._waiters: dict[Waiter, None] = {}
        self._waking = False

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, leader {self.leader}, epoch {self.leader_epoch})"

    def apply(self, image: PartitionImage) -> bool:
        """Take over what the metadata say about leader, epoch and replicas; False if that is outdated."""
        if 0 <= image.state_version < self.partition_epoch:
            return False
        is_new_epoch = image.leader_epoch > self.leader_epoch
        is_new_leader = not self.is_leader
        self.replicas = image.replicas
        self.isr = image.isr
        self.leader = image.leader
        self.is_leader = image.leader == self.broker_id
        self.leader_epoch = image.leader_epoch
        self._in_sync.commit(image.isr, image.state_version)
        if self.is_leader:
            self._lead(is_new_epoch, is_new_leader)
        self._wake_soon()
        return True

    def _lead(self, is_new_epoch: bool, is_new_leader: bool) -> None:
        end_offset = self.log.log_end_offset
        self._followers.assign(each for each in self.replicas if each != self.broker_id)
        self._only_replica = not self._followers
        if is_new_epoch or is_new_leader:
            self._epoch_start_offset = end_offset
            now_ms = self._surroundings.clock.monotonic_ms()
            self._followers.begin_epoch(self.isr, end_offset, now_ms, is_new_leader=is_new_leader)
        if self.needs_sync:
            # It was written as a follower, or before a crash.
            self._flush()
        self.advance_high_watermark()

    def resign(self) -> None:
        """Lead no more until the controller says so again; what waits is told."""
        if self.is_leader:
            self.is_leader = False
            self.leader = NO_LEADER
            self._wake_soon()

    @property
    def partition_epoch(self) -> int:
        """The version of the partition's state that this broker knows; -1 if it knows none."""
        return self._in_sync.partition_epoch

    def use_log(self, log: Log) -> None:
        """Take ``log`` for the partition's own; whether and when it is synced is decided here from now on."""
        log.flush_on_append = False
        self.log = log

    # Appending

    def stage(
        self, records: memoryview, required_acks: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Check and number a batch; ``append_group`` writes it. Offsets are good once it has."""
        if not self.is_leader:
            raise self._not_leader()
        log = self.log
        if required_acks == ACKS_ALL and len(self.isr) < log.config.min_insync_replicas:
            self._check_in_sync_replicas()
        return log.stage_as_leader(records, self.leader_epoch, origin)

    def write_staged(self) -> None:
        """Write what is staged, make it readable and tell those who wait for it."""
        log = self.log
        log.write_staged()
        end_offset = log.log_end_offset
        if end_offset - log.recovery_point >= log.config.flush_messages:
            self._flush()
        elif self._only_replica:
            log.update_high_watermark(end_offset)
        else:
            self.advance_high_watermark()
        if self._waiters:
            self._wake_soon()

    def append(
        self, records: memoryview, required_acks: int = 1, origin: AppendOrigin = AppendOrigin.COORDINATOR
    ) -> AppendInfo:
        """Stage and write one batch, for callers inside the broker."""
        info = self.stage(records, required_acks, origin)
        self.write_staged()
        return info

    def advance_high_watermark(self) -> bool:
        """Move the high watermark to what all in-sync replicas have; whether it moved.

        What is being synced yet is not committed. With fewer replicas in sync than ``min.insync.replicas``
        asks for nothing is (KIP-966).
        """
        log = self.log
        end_offset = log.recovery_point if self.flushing else log.log_end_offset
        if not self._only_replica:
            if len(self.isr) < self._required_in_sync:
                return False
            surroundings = self._surroundings
            now_ms = surroundings.clock.monotonic_ms()
            committed = self._followers.committed_offset(
                log.log_end_offset,
                self._in_sync.maximal,
                surroundings.live_brokers(),
                now_ms,
                surroundings.max_lag_ms,
            )
            end_offset = min(end_offset, committed)
        if end_offset <= log.high_watermark:
            return False
        log.update_high_watermark(end_offset)
        return True

    # Following

    def follow(self, leader_high_watermark: int, leader_start_offset: int) -> None:
        """Take over, as far as this log reaches, where the leader's is committed and where it starts."""
        log = self.log
        before = log.high_watermark, log.log_start_offset
        log.update_high_watermark(max(log.high_watermark, min(leader_high_watermark, log.log_end_offset)))
        if leader_start_offset > log.log_start_offset:
            log.increment_log_start_offset(
                min(leader_start_offset, log.high_watermark), "the leader's has moved"
            )
        if before != (log.high_watermark, log.log_start_offset):
            self._wake_soon()

    def truncate_to(self, offset: int) -> None:
        """Drop everything from ``offset`` on, which the leader does not have."""
        truncation = self._surroundings.truncation
        if truncation is None:
            self.log.truncate_to(offset)
        else:
            truncation.truncate_to(self.topic_partition, offset)
        self._wake_soon()

    def start_again_at(self, offset: int) -> None:
        """Drop everything: the leader's log starts behind the end of this one."""
        truncation = self._surroundings.truncation
        if truncation is None:
            self.log.truncate_fully_and_start_at(offset)
        else:
            truncation.truncate_fully_and_start_at(self.topic_partition, offset)
        self._wake_soon()

    # Followers

    def fetched_by(
        self,
        broker_id: int,
        offset: int,
        log_start_offset: int,
        broker_epoch: int = NO_BROKER_EPOCH,
        current_leader_epoch: int = NO_LEADER_EPOCH,
    ) -> None:
        """A follower has all before ``offset``: the high watermark and the in-sync replicas may change."""
        follower = self._followers.get(broker_id)
        if not self.is_leader or follower is None:
            raise KafkaError(
                # Whoever names an epoch may be right, and this broker not have heard of it yet.
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if current_leader_epoch < 0
                else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"Replica {broker_id} is not recognized as a valid replica of {self.topic_partition} in "
                f"leader epoch {self.leader_epoch}",
            )
        now_ms = self._surroundings.clock.monotonic_ms()
        moved = offset != follower.log_end_offset or log_start_offset != follower.log_start_offset
        follower.fetched(offset, log_start_offset, self.log.log_end_offset, now_ms, broker_epoch)
        if broker_id not in self.isr and self._may_join(broker_id, offset):
            self._propose((*self.isr, broker_id))
        if moved:
            self.advance_high_watermark()
            self._wake_soon()

    def _may_join(self, broker_id: int, offset: int) -> bool:
        """In sync is who has all that is committed, and all of the epochs before this one."""
        return (
            self._in_sync.proposed is None
            and offset >= self.log.high_watermark
            and offset >= self._epoch_start_offset
            and self._surroundings.is_alive(broker_id)
        )

    def shrink_isr(self) -> None:
        """Have those put out of the in-sync replicas that have fallen behind for too long."""
        if not self.is_leader or self._in_sync.proposed is not None or self.closed:
            return
        surroundings = self._surroundings
        lagging = self._followers.lagging(
            self.isr, self.log.log_end_offset, surroundings.clock.monotonic_ms(), surroundings.max_lag_ms
        )
        if lagging:
            logger.info("Replicas %s of %s have fallen behind", lagging, self.topic_partition)
            self._propose(tuple(each for each in self.isr if each not in lagging))

    def brokers_changed(self) -> None:
        """Brokers have come or gone: who is gone and not in sync holds the high watermark back no longer."""
        if self.is_leader and not self.closed and self.advance_high_watermark():
            self._wake_soon()

    def _propose(self, isr: tuple[int, ...]) -> None:
        self._in_sync.propose(isr)
        self._surroundings.isr_requests.submit(self, isr)

    def isr_changed(self, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has answered: these are in sync now."""
        if leader_epoch != self.leader_epoch or not self.is_leader or partition_epoch < self.partition_epoch:
            return
        if isr != self.isr:
            logger.info("Replicas %s of %s are in sync now", list(isr), self.topic_partition)
        self.isr = isr
        self._in_sync.commit(isr, partition_epoch)
        if self.advance_high_watermark():
            self._wake_soon()

    def isr_refused(self, leader_epoch: int) -> None:
        """The controller has refused a change; who leads, or is in sync, will be told soon if that is why."""
        if leader_epoch == self.leader_epoch and self._in_sync.proposed is not None:
            self._in_sync.withdraw()
            if self.is_leader and self.advance_high_watermark():
                self._wake_soon()

    def broker_epochs(self, isr: Collection[int], own_epoch: int) -> dict[int, int]:
        """In which epochs of their brokers replicas have caught up (KIP-903)."""
        epochs: dict[int, int] = {}
        for broker_id in isr:
            follower = self._followers.get(broker_id)
            epochs[broker_id] = own_epoch if follower is None else follower.broker_epoch
        return epochs

    def readable_followers(self, offset: int) -> list[Follower]:
        """The in-sync followers that a consumer at ``offset`` may read from (KIP-392)."""
        return self._followers.holding(offset, self.isr)

    @property
    def is_behind_epoch(self) -> bool:
        """Whether this broker leads, and the high watermark has not come to where its epoch began.

        Until then a client that asks for the end of the log could be told less than it was told before.
        """
        return self.is_leader and self.log.high_watermark < self._epoch_start_offset

    @property
    def low_watermark(self) -> int:
        """Before which offset all live replicas have deleted everything."""
        start_offset = self.log.log_start_offset
        if self._only_replica:
            return start_offset
        return self._followers.low_watermark(start_offset, self._surroundings.live_brokers())

    # Syncing

    @property
    def needs_sync(self) -> bool:
        """Whether more than the topic's ``flush.messages`` allows may be lost with the machine."""
        log = self.log
        return log.log_end_offset - log.recovery_point >= log.config.flush_messages

    def is_synced(self, offset: int) -> bool:
        """Whether all before ``offset`` is as durable as the topic wants it."""
        return not self.flushing or self.log.recovery_point >= offset

    def _flush(self) -> None:
        """Sync the log in a thread; while that is under way, it is the next one that syncs the rest."""
        if self.flushing or self.closed:
            return
        self.flushing = True
        log = self.log
        end_offset = log.log_end_offset
        flush = self._loop.run_in_executor(None, log.flush_up_to, end_offset)
        flush.add_done_callback(partial(self._flushed, log, end_offset))

    def _flushed(self, log: Log, end_offset: int, flush: asyncio.Future[None]) -> None:
        if self.closed or flush.cancelled():
            return
        error = flush.exception()
        short = log is self.log and log.recovery_point < min(end_offset, log.log_end_offset)
        if short and error is None and not log.directory.exists():
            error = FileNotFoundError(f"its directory {log.directory} is gone")
        if error is not None:
            # Nobody knows what the disk has of these records: those who wait for them are told by the end
            # of the partition, and `flushing` stays, so that none of them passes for synced.
            self._on_offline(self._sync_failed(error))
            if not self.closed:
                self.close(offline=True)
            return
        self.flushing = False
        log = self.log
        if log.unflushed_messages >= log.config.flush_messages:
            self._flush()
        if self.is_leader:
            self.advance_high_watermark()
        self._wake_soon()

    def _sync_failed(self, error: BaseException) -> LogDirOfflineError:
        if isinstance(error, LogDirOfflineError):
            return error
        logger.error("Syncing %s met a bug", self.topic_partition, exc_info=error)
        directory = self.log.directory
        return LogDirOfflineError(f"syncing {directory} failed: {error}", str(directory.parent))

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        min_one_message: bool,
        current_leader_epoch: int = NO_LEADER_EPOCH,
        last_fetched_epoch: int = NO_LEADER_EPOCH,
        leader_only: bool = True,
    ) -> ReadResult:
        """A range of records from ``offset`` on; refuses readers with another idea of who leads.

        Without ``leader_only`` a follower serves, too: consumers, up to its own high watermark (KIP-392).
        Epochs below zero are none, as in Kafka for fetches alone.
        """
        if not self.is_leader or current_leader_epoch >= 0:
            if leader_only:
                self.check_leader(current_leader_epoch)
            else:
                self.check_epoch(current_leader_epoch)
        log = self.log
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        log_start_offset = log.log_start_offset
        if last_fetched_epoch >= 0:
            diverging = self._diverging_epoch(offset, last_fetched_epoch)
            if diverging is not None:
                return ReadResult(None, high_watermark, last_stable_offset, log_start_offset, diverging)
        found = log.read(offset, max_bytes, isolation=isolation, min_one_message=min_one_message)
        return _new_tuple(ReadResult, (found, high_watermark, last_stable_offset, log_start_offset, None))

    def has_rolled_past(self, offset: int) -> bool:
        """Whether a reader at ``offset`` is in an older segment, so that no append gives it more to read."""
        return self.log.segments.active.base_offset > offset

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raise unless this broker leads, in the epoch that the client believes in, if it names one."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise self._not_leader()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise if the client names another leader epoch than the present one."""
        if current_leader_epoch != NO_LEADER_EPOCH:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"Leader epoch {current_leader_epoch} of {self.topic_partition} is over, "
                    f"it is {self.leader_epoch}",
                )
            if current_leader_epoch > self.leader_epoch:
                raise KafkaError(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"Leader epoch {current_leader_epoch} of {self.topic_partition} is yet unknown here, "
                    f"it is {self.leader_epoch}",
                )

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``leader_epoch`` and where it ends; ``(-1, -1)`` if that is not known."""
        log = self.log
        latest = log.epochs.latest_epoch
        if (
            self.is_leader
            and latest < self.leader_epoch
            and max(latest, 0) <= leader_epoch <= self.leader_epoch
        ):
            # Nothing has been appended in the current epoch, so the log does not know of it yet (its first
            # append writes it down): it begins, and all before it end, where the log ends.
            known = leader_epoch == self.leader_epoch or latest < 0
            return leader_epoch if known else latest, log.log_end_offset
        return log.end_offset_for_epoch(leader_epoch) or (NO_LEADER_EPOCH, NO_OFFSET)

    def _diverging_epoch(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where the reader's history parts from this log's, if it does (KIP-595)."""
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_LEADER_EPOCH:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Could not determine the end offset of the last fetched epoch {last_fetched_epoch} "
                "from the request",
            )
        if offset < self.log.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic_partition}, but we only "
                f"have log segments in the range {self.log.log_start_offset} to {self.log.log_end_offset}.",
            )
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None

    # Waiting

    def watch(self, waiter: Waiter) -> None:
        """Tell ``waiter`` of every change until it is unwatched."""
        self._waiters[waiter] = None

    def unwatch(self, waiter: Waiter) -> None:
        """Tell ``waiter`` no more."""
        self._waiters.pop(waiter, None)

    def close(self, *, offline: bool = False) -> None:
        """The partition is gone from this broker, or, ``offline``, its directory is: nobody need wait."""
        self.closed = True
        self.offline = offline
        self._wake_soon()

    def changed(self) -> None:
        """Something moved that no append did: the start of the log, say."""
        self._wake_soon()

    def _wake_soon(self) -> None:
        # In a turn of its own: whoever changed the partition is not made to wait for those who waited.
        if self._waiters and not self._waking:
            self._waking = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        for waiter in tuple(self._waiters):
            waiter.partition_changed(self)

    @property
    def _required_in_sync(self) -> int:
        """``min.insync.replicas``, but no more replicas than the partition has, as in Kafka."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def _check_in_sync_replicas(self) -> None:
        required = self._required_in_sync
        if len(self.isr) < required:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.isr)} is insufficient to satisfy the min.isr "
                f"requirement of {required} for partition {self.topic_partition}",
            )

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Leader not local for partition {self.topic_partition} on broker {self.broker_id}",
        )
