"""One partition on this broker: who leads it, what its leader does, and who waits for it to change.

``Partition`` is what handlers work with: a replica that can be read (``replica``), and, where this broker
leads, be appended to. The leader moves the high watermark: where this broker has the only replica, it follows
the end of the log; otherwise the followers move it (``followers``), whose fetches come in by ``fetched_by``,
and the leader has the controller take them into the in-sync replicas or put them out (``in_sync``).

Appends are staged and written in groups (``append_group``), so that all produce requests of one readable
event cost one write per partition. Waiters (long polls, produce requests whose answer is not due yet) are
told after anything they may wait for has changed: more records, a new high watermark, a moved start, the end
of the partition. They are told in a turn of the loop of their own; only followers hear of records at once.

Topics with ``flush.messages``: when so many messages are unsynced, the log is synced before the high
watermark moves on (``syncing``).

Owned by ``replication/partitions``; called by handlers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition, Uuid
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.znodes import NO_LEADER
from tidelog.replication.followers import NO_BROKER_EPOCH, Follower, Followers
from tidelog.replication.in_sync import InSync
from tidelog.replication.replica import Replica
from tidelog.replication.replication_context import STANDALONE, ReplicationContext
from tidelog.replication.syncing import LogSync
from tidelog.storage.log import Log
from tidelog.storage.log_append import AppendInfo, Judged
from tidelog.storage.producer_state import AppendOrigin

logger = logging.getLogger(__name__)

ACKS_ALL = -1


class Waiter(Protocol):
    """Somebody who waits for a partition to change."""

    def partition_changed(self, partition: Partition) -> None:
        """Look at ``partition`` again."""


class Partition(Replica):
    """A replica of a partition on this broker."""

    __slots__ = (
        "_epoch_start_offset",
        "_followers",
        "_in_sync",
        "_only_replica",
        "_sync",
        "_waiters",
        "_write_committed",
        "flushing",
        "isr",
        "replicas",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: Log,
        broker_id: int,
        loop: asyncio.AbstractEventLoop,
        on_offline: Callable[[LogDirOfflineError], None],
        context: ReplicationContext = STANDALONE,
    ) -> None:
        super().__init__(topic_partition, topic_id, log, broker_id, loop, context)
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.flushing = False
        """Whether the log is being synced before the high watermark may follow its end."""
        self._only_replica = False
        self._followers = Followers()
        self._in_sync = InSync()
        self._epoch_start_offset = NO_OFFSET
        self._sync = LogSync(self, loop, on_offline)
        self._waiters: dict[Waiter, None] = {}
        self._write_committed = False

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
        # One that a reassignment takes away counts as long as it is in sync: it may be elected yet.
        others = dict.fromkeys((*self.replicas, *self.isr))
        self._followers.assign(each for each in others if each != self.broker_id)
        self._only_replica = not self._followers
        if is_new_epoch or is_new_leader:
            self._epoch_start_offset = end_offset
            now_ms = self._context.clock.monotonic_ms()
            self._followers.begin_epoch(self.isr, end_offset, now_ms, is_new_leader=is_new_leader)
        if self.needs_sync:
            # It was written as a follower, or before a crash.
            self._sync.begin()
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

    # Appending

    def stage(
        self,
        records: memoryview,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        judged: Judged | None = None,
    ) -> AppendInfo:
        """Check and number a batch; ``append_group`` writes it. Offsets are good once it has.

        ``judged`` is what is known of one that was looked at before.
        """
        if not self.is_leader:
            raise self._not_leader()
        log = self.log
        if required_acks == ACKS_ALL and len(self.isr) < log.config.min_insync_replicas:
            self._check_in_sync_replicas()
        return log.stage_as_leader(records, self.leader_epoch, origin, judged)

    def takes_writes(self, required_acks: int) -> bool:
        """Whether a batch would not be refused whatever is in it."""
        return self.is_leader and (
            required_acks != ACKS_ALL or len(self.isr) >= self.log.config.min_insync_replicas
        )

    def write_staged(self) -> None:
        """Write what is staged and make it readable; ``tell_of_written`` is to follow."""
        log = self.log
        log.write_staged()
        end_offset = log.log_end_offset
        if end_offset - log.recovery_point >= log.config.flush_messages:
            self._sync.begin()
        elif self._only_replica:
            log.update_high_watermark(end_offset)
        else:
            self._write_committed = self.advance_high_watermark()

    def tell_of_written(self) -> None:
        """Tell those who wait for records: followers at once, for an answer to a producer depends on them.

        Where the write has committed something, others wait for just that, coordinators among them, and go on
        in a turn of their own.
        """
        if self._waiters:
            if self._only_replica or self._write_committed:
                self._wake_soon()
            else:
                self._wake()

    def append(
        self, records: memoryview, required_acks: int = 1, origin: AppendOrigin = AppendOrigin.COORDINATOR
    ) -> AppendInfo:
        """Stage and write one batch, for callers inside the broker."""
        info = self.stage(records, required_acks, origin)
        self.write_staged()
        self._wake_soon()
        return info

    def advance_high_watermark(self, now_ms: float | None = None) -> bool:
        """Move the high watermark to what all in-sync replicas have; whether it moved.

        What is being synced yet is not committed. With fewer replicas in sync than ``min.insync.replicas``
        asks for nothing is (KIP-966).
        """
        log = self.log
        end_offset = log.recovery_point if self.flushing else log.log_end_offset
        if not self._only_replica:
            if len(self.isr) < self._required_in_sync:
                return False
            context = self._context
            committed = self._followers.committed_offset(
                log.log_end_offset,
                self._in_sync.maximal,
                context.live_brokers,
                context.clock.monotonic_ms() if now_ms is None else now_ms,
                context.max_lag_ms,
            )
            end_offset = min(end_offset, committed)
        if end_offset <= log.high_watermark:
            return False
        log.update_high_watermark(end_offset)
        return True

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
        now_ms = self._context.clock.monotonic_ms()
        more = offset != follower.log_end_offset
        start_moved = log_start_offset != follower.log_start_offset
        follower.fetched(offset, log_start_offset, self.log.log_end_offset, now_ms, broker_epoch)
        if broker_id not in self.isr and self._may_join(broker_id, offset):
            self._propose((*self.isr, broker_id))
        # What a follower has matters to others only where it commits something or ends a deletion.
        if (more and self.advance_high_watermark(now_ms)) or start_moved:
            self._wake_soon()

    def _may_join(self, broker_id: int, offset: int) -> bool:
        """In sync is who has all that is committed, and all of the epochs before this one."""
        return (
            self._in_sync.proposed is None
            and offset >= self.log.high_watermark
            and offset >= self._epoch_start_offset
            and self._context.is_alive(broker_id)
        )

    def shrink_isr(self) -> None:
        """Have those put out of the in-sync replicas that have fallen behind for too long."""
        if not self.is_leader or self._in_sync.proposed is not None or self.closed:
            return
        context = self._context
        lagging = self._followers.lagging(
            self.isr, self.log.log_end_offset, context.clock.monotonic_ms(), context.max_lag_ms
        )
        if lagging:
            logger.info("Replicas %s of %s have fallen behind", lagging, self.topic_partition)
            self._propose(tuple(each for each in self.isr if each not in lagging))

    def brokers_changed(self) -> None:
        """Brokers have come or gone: who is gone and not in sync holds the high watermark back no longer."""
        if self.is_leader and not self.closed and self.advance_high_watermark():
            self._wake_soon()

    def options_changed(self) -> None:
        """The topic's options are other ones: with a lower ``min.insync.replicas`` more may be committed."""
        if self.is_leader and not self.closed and self.advance_high_watermark():
            self._wake_soon()

    def _propose(self, isr: tuple[int, ...]) -> None:
        self._in_sync.propose(isr)
        self._context.isr_requests.submit(self, isr)

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
            self._in_sync.withdraw(self.isr)
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
        return self._followers.low_watermark(start_offset, self._context.live_brokers())

    # Syncing

    @property
    def needs_sync(self) -> bool:
        """Whether more than the topic's ``flush.messages`` allows may be lost with the machine."""
        log = self.log
        return log.log_end_offset - log.recovery_point >= log.config.flush_messages

    def is_synced(self, offset: int) -> bool:
        """Whether all before ``offset`` is as durable as the topic wants it."""
        return not self.flushing or self.log.recovery_point >= offset

    def synced(self) -> None:
        """A sync has ended: what waited for it may go on."""
        if self.is_leader:
            self.advance_high_watermark()
        self._wake_soon()

    # Waiting

    def watch(self, waiter: Waiter) -> None:
        """Tell ``waiter`` of every change until it is unwatched."""
        self._waiters[waiter] = None

    def unwatch(self, waiter: Waiter) -> None:
        """Tell ``waiter`` no more."""
        self._waiters.pop(waiter, None)

    @property
    def _is_watched(self) -> bool:
        return bool(self._waiters)

    def _wake(self) -> None:
        self._waking = False
        for waiter in tuple(self._waiters):
            try:
                waiter.partition_changed(self)
            except Exception:
                # The others wait for the same news, and whoever brought it is not to blame.
                logger.exception("Somebody who waits for %s failed to look at it", self.topic_partition)

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
