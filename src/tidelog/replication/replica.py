"""A replica of a partition: its log as others read it, what it takes over from its leader, and its end.

Every replica has this side, whether it leads or follows: it checks which leader epoch a reader believes in,
reads, tells where epochs end (KIP-101, KIP-595), and follows a leader's log. What a leader does besides is in
``partition``, whose class is the only one that is made.
"""

from __future__ import annotations

import abc
import asyncio
from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import INTERNAL_TOPICS, NO_LEADER_EPOCH, NO_OFFSET, TopicPartition, Uuid
from tidelog.replication.replication_context import ReplicationContext
from tidelog.storage.log import FetchSlice, Isolation, Log

_new_tuple = tuple.__new__


class ReadResult(NamedTuple):
    """What a read found; ``slice`` is empty where there is nothing to send."""

    slice: FetchSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None = None


class Replica(abc.ABC):
    """One replica, on this broker."""

    __slots__ = (
        "_context",
        "_loop",
        "_waking",
        "broker_id",
        "closed",
        "is_internal",
        "is_leader",
        "leader",
        "leader_epoch",
        "log",
        "offline",
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
        context: ReplicationContext,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.use_log(log)
        self.is_internal = topic_partition.topic in INTERNAL_TOPICS
        self.leader = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.is_leader = False
        self.closed = False
        self.offline = False
        """Whether the partition was closed because its log directory has failed."""
        self._context = context
        self._loop = loop
        self._waking = False

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, leader {self.leader}, epoch {self.leader_epoch})"

    def use_log(self, log: Log) -> None:
        """Take ``log`` for the partition's own; whether and when it is synced is decided here from now on."""
        log.flush_on_append = False
        self.log = log

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

    # Its end, and those who wait

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
        if not self._waking and self._is_watched:
            self._waking = True
            self._loop.call_soon(self._wake)

    @property
    @abc.abstractmethod
    def _is_watched(self) -> bool:
        """Whether anybody waits for the replica to change."""

    @abc.abstractmethod
    def _wake(self) -> None:
        """Tell those who wait."""

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Leader not local for partition {self.topic_partition} on broker {self.broker_id}",
        )
