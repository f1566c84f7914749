"""One partition on this broker: who leads it, what its leader does, and who waits for it to change.

``Partition`` is what handlers work with. Every replica can be read, whether it leads or follows: it checks
which leader epoch a reader believes in, and tells where epochs end (KIP-101, KIP-595). One that follows takes
over its leader's log, as ``fetch_loop`` brings it. One that leads is appended to, and moves the high
watermark: where this broker has the only replica, it follows the end of the log; otherwise the followers move
it (``followers``), whose fetches come in by ``fetched_by``, and the leader has the controller take them into
the in-sync replicas or put them out (``in_sync``).

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
from typing import NamedTuple, Protocol

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import INTERNAL_TOPICS, NO_LEADER_EPOCH, NO_OFFSET, TopicPartition, Uuid
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.znodes.znodes import NO_LEADER
from tidelog.metrics.topic_counts import TopicCounts
from tidelog.replication.followers import NO_BROKER_EPOCH, Follower, Followers
from tidelog.replication.in_sync import InSync
from tidelog.replication.replication_context import STANDALONE, ReplicationContext
from tidelog.replication.syncing import LogSync
from tidelog.storage.log.log import FetchSlice, Isolation, Log
from tidelog.storage.log.log_appender import AppendInfo, Judged
from tidelog.storage.producers.producer_state import AppendOrigin

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
        "_context",
        "_counted_bytes",
        "_counted_offset",
        "_epoch_start_offset",
        "_followers",
        "_in_sync",
        "_loop",
        "_only_replica",
        "_sync",
        "_waiters",
        "_waking",
        "_write_committed",
        "adding",
        "broker_id",
        "closed",
        "counts",
        "flushing",
        "is_internal",
        "is_leader",
        "is_reassigned",
        "isr",
        "leader",
        "leader_epoch",
        "leads_since_epoch",
        "log",
        "offline",
        "replicas",
        "synced_offset",
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
        context: ReplicationContext = STANDALONE,
        counts: TopicCounts | None = None,
    ) -> None:
        self.counts = counts or TopicCounts()
        """The figures of its topic."""
        self._counted_offset = self._counted_bytes = 0
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.is_leader = False
        self._take_log(log)
        self.is_internal = topic_partition.topic in INTERNAL_TOPICS
        self.leader = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.leads_since_epoch = NO_LEADER_EPOCH
        """While this broker leads, the leader epoch in which it began to; later ones have not ended that."""
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        """Those that a reassignment adds, as long as it is under way."""
        self.is_reassigned = False
        """Whether replicas come or go."""
        self.closed = False
        self.offline = False
        """Whether the partition was closed because its log directory has failed."""
        self.flushing = False
        """Whether the log is being synced before the high watermark may follow its end."""
        self.synced_offset = 0
        """Meanwhile, up to where it was synced when that began."""
        self._context = context
        self._loop = loop
        self._only_replica = False
        self._followers = Followers()
        self._in_sync = InSync()
        self._epoch_start_offset = NO_OFFSET
        self._sync = LogSync(self, loop, on_offline)
        self._waiters: dict[Waiter, None] = {}
        self._waking = False
        self._write_committed = False

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, leader {self.leader}, epoch {self.leader_epoch})"

    def use_log(self, log: Log) -> None:
        """Take ``log`` for the partition's own; whether and when it is synced is decided here from now on."""
        self.count_appends()
        self._take_log(log)

    def _take_log(self, log: Log) -> None:
        log.appender.flush_on_append = False
        self.log = log
        self._count_from_here()

    # Who leads

    def apply(self, image: PartitionImage) -> bool:
        """Take over what the metadata say about leader, epoch and replicas; False if that is outdated."""
        if 0 <= image.state_version < self.partition_epoch:
            return False
        is_new_epoch = image.leader_epoch > self.leader_epoch
        is_new_leader = not self.is_leader
        self.count_appends()
        self.replicas = image.replicas
        self.adding = image.adding_replicas
        self.is_reassigned = bool(image.adding_replicas or image.removing_replicas)
        self.isr = image.isr
        self.leader = image.leader
        self.is_leader = image.leader == self.broker_id
        self.leader_epoch = image.leader_epoch
        self._in_sync.commit(image.isr, image.state_version)
        if self.is_leader:
            if is_new_leader:
                self.leads_since_epoch = image.leader_epoch
                self._count_from_here()
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
            self.count_appends()
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
        if required_acks == ACKS_ALL and len(self.isr) < log.files.config.min_insync_replicas:
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
        files = log.files
        end_offset = files.log_end_offset
        if end_offset - files.recovery_point >= files.config.flush_messages:
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

    def count_appends(self) -> None:
        """Take what was appended by this leader since the last time into its topic's figures."""
        if self.is_leader:
            files = self.log.files
            self.counts.messages_in += max(files.log_end_offset - self._counted_offset, 0)
            self.counts.bytes_in += max(files.appended_bytes - self._counted_bytes, 0)
            self._count_from_here()

    def _count_from_here(self) -> None:
        files = self.log.files
        self._counted_offset = files.log_end_offset
        self._counted_bytes = files.appended_bytes

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
        files = log.files
        end_offset = self._safe_offset if self.flushing else files.log_end_offset
        if not self._only_replica:
            if len(self.isr) < self._required_in_sync:
                return False
            context = self._context
            committed = self._followers.committed_offset(
                files.log_end_offset,
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
        log_start_offset = log.files.log_start_offset
        if last_fetched_epoch >= 0:
            diverging = self._diverging_epoch(offset, last_fetched_epoch)
            if diverging is not None:
                return ReadResult(None, high_watermark, last_stable_offset, log_start_offset, diverging)
        self.counts.fetch_requests += 1
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

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Leader not local for partition {self.topic_partition} on broker {self.broker_id}",
        )

    # Following

    def follow(self, leader_high_watermark: int, leader_start_offset: int) -> None:
        """Take over, as far as this log reaches, where the leader's is committed and where it starts."""
        log = self.log
        moved = False
        high_watermark = min(leader_high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.update_high_watermark(high_watermark)
            moved = True
        if leader_start_offset > log.log_start_offset:
            before = log.log_start_offset
            log.increment_log_start_offset(
                min(leader_start_offset, log.high_watermark), "the leader's has moved"
            )
            moved = moved or log.log_start_offset != before
        if moved:
            self._wake_soon()

    def truncate_to(self, offset: int) -> None:
        """Drop everything from ``offset`` on, which the leader does not have."""
        truncation = self._context.truncation
        if truncation is None:
            self.log.truncate_to(offset)
        else:
            truncation.truncate_to(self.topic_partition, offset)
        self._wake_soon()

    def start_again_at(self, offset: int) -> None:
        """Drop everything: the leader's log starts behind the end of this one."""
        truncation = self._context.truncation
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

    def shrink_isr(self) -> list[int]:
        """Have those put out of the in-sync replicas that have fallen behind for too long; gives these."""
        if not self.is_leader or self._in_sync.proposed is not None or self.closed:
            return []
        context = self._context
        lagging = self._followers.lagging(
            self.isr, self.log.log_end_offset, context.clock.monotonic_ms(), context.max_lag_ms
        )
        if lagging:
            self._propose(tuple(each for each in self.isr if each not in lagging))
        return lagging

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
            if len(isr) < len(self.isr):
                self.counts.isr_shrinks += 1
            else:
                self.counts.isr_expands += 1
        self.isr = isr
        self._in_sync.commit(isr, partition_epoch)
        if self.advance_high_watermark():
            self._wake_soon()

    def isr_refused(self, leader_epoch: int) -> None:
        """The controller has refused a change; who leads, or is in sync, will be told soon if that is why."""
        if leader_epoch == self.leader_epoch and self._in_sync.proposed is not None:
            self.counts.failed_isr_updates += 1
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
        return log.files.unflushed_messages >= log.config.flush_messages

    def is_synced(self, offset: int) -> bool:
        """Whether all before ``offset`` is as durable as the topic wants it."""
        return not self.flushing or self._safe_offset >= offset

    @property
    def _safe_offset(self) -> int:
        """Up to where the log is synced as far as anybody may know while a sync is under way.

        The thread that syncs moves the recovery point before the loop hears of it: an answer that went by
        that alone would come before its records can be read. The log may have been cut, or be another one.
        """
        return min(self.synced_offset, self.log.files.recovery_point)

    def synced(self) -> None:
        """A sync has ended: what waited for it may go on."""
        if self.is_leader:
            self.advance_high_watermark()
        self._wake_soon()

    # Its end, and those who wait

    def close(self, *, offline: bool = False) -> None:
        """The partition is gone from this broker, or, ``offline``, its directory is: nobody need wait."""
        self.count_appends()
        self.closed = True
        self.offline = offline
        self._wake_soon()

    def changed(self) -> None:
        """Something moved that no append did: the start of the log, say."""
        self._wake_soon()

    def watch(self, waiter: Waiter) -> None:
        """Tell ``waiter`` of every change until it is unwatched."""
        self._waiters[waiter] = None

    def unwatch(self, waiter: Waiter) -> None:
        """Tell ``waiter`` no more."""
        self._waiters.pop(waiter, None)

    def _wake_soon(self) -> None:
        # In a turn of its own: whoever changed the partition is not made to wait for those who waited.
        if not self._waking and self._waiters:
            self._waking = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        for waiter in tuple(self._waiters):
            try:
                waiter.partition_changed(self)
            except Exception:
                # The others wait for the same news, and whoever brought it is not to blame.
                logger.exception("Somebody who waits for %s failed to look at it", self.topic_partition)
