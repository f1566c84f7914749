"""Where records wait: a deque of batches per partition, filled by any thread, emptied by the sender.

Owns every batch from its first record until it has ended. ``append`` is for the threads that send; the rest
is for the sender, on its loop. One lock guards the queues; nothing under it takes long.

A record goes into the open batch of its partition; where there is none, or it is full, a new one takes its
memory from the pool. Keyless records are given their partition here, because that depends on where batches
begin (KIP-794).

``ready`` says which brokers have something to get: a partition's first batch is full, has waited
``linger.ms``, or must not wait (memory is short, somebody flushes, a transaction ends, the producer closes).
``drain`` then takes at most one batch per partition for each of them, in turns, up to ``max.request.size``,
lingering batches of the same broker included. A partition that is muted or whose first batch is in its retry
back-off is passed over.

Invariants: a partition's batches leave in the order in which their records came; one that comes back for a
retry goes in front of all that have not been sent and behind all that were sent before it. A queue is in
``_active`` exactly while it has batches; ``incomplete`` holds exactly the batches that have not ended. Lock
order: the accumulator's, then the pool's.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.errors import ClientClosedError
from tidelog.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.client.producer._buffer_pool import BufferPool
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer._settings import ProducerSettings
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer.quick_send import PartitionQueue, RecordFuture, TopicQueues, new_future
from tidelog.client.producer.record import SerializedRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.column_codec import ColumnSource, append_rows
from tidelog.records.compression import Codec
from tidelog.records.record_codec import BatchBuilder, split

_NEVER = float("inf")
# Length, attributes, timestamp and offset deltas, key and value lengths and header count, at their longest.
RECORD_OVERHEAD = 36
HEADER_OVERHEAD = 10
_BACKLOG_BYTES = 1 << 18
_STAND_ASIDE_S = 0.005


def upper_bound_bytes(record: SerializedRecord) -> int:
    """The most that a batch of this one record can take."""
    size = HEADER_SIZE + RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, data in record.headers:
        size += HEADER_OVERHEAD + len(name) * 4 + len(data or b"")
    return size


class AppendedRows(NamedTuple):
    """Rows of a table that went into one batch."""

    end: int
    """The position of the first row that did not."""
    batch: ProducerBatch
    first: int
    """The index in the batch of the first one that did."""


@dataclass(slots=True)
class ReadyCheck:
    """What waits for which broker."""

    nodes: set[int] = field(default_factory=set)
    """Brokers that should be sent to now."""
    queues: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    """Per broker, the partitions that have a batch to take along."""
    next_check_s: float = _NEVER
    """How long until one more may be ready."""
    unknown_leader_topics: set[str] = field(default_factory=set)


def _future(batch: ProducerBatch, index: int, record: SerializedRecord) -> RecordFuture:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    if record.on_delivery is not None:
        batch.add_callback(index, (record.timestamp_ms, key_size, value_size), record.on_delivery)
    return new_future(batch, index, record.timestamp_ms, key_size, value_size)


class RecordAccumulator:
    """The batches of one producer."""

    def __init__(
        self,
        settings: ProducerSettings,
        pool: BufferPool,
        transactions: TransactionManager | None,
        *,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lock = threading.Lock()
        self.pool = pool
        self.topics: dict[str, TopicQueues] = {}
        self.incomplete: set[ProducerBatch] = set()
        self.full_bytes = 0
        """How much is in full batches that the sender has not taken yet."""
        self.wake: Callable[[], None] = lambda: None
        """Wakes the sender, from any thread."""
        self._settings = settings
        self._rng = rng
        self._clock = clock
        self._batch_size = max(settings.batch_size, 1)
        self._active: dict[PartitionQueue, None] = {}
        self._waiting_nodes: dict[int, float] = {}
        self._drained = threading.Condition(self.lock)
        self._backlog_waiters = 0
        self._closed = False
        self._transactions = transactions
        self._linger_s = settings.linger_ms / 1000
        self._delivery_s = settings.delivery_timeout_ms / 1000
        self._flushes = 0

    # -- filling

    def topic(self, metadata: TopicMetadata) -> TopicQueues:
        """The queues of a topic, as many as it has partitions now."""
        with self.lock:
            topic = self.topics.get(metadata.name)
            if topic is None:
                topic = self.topics[metadata.name] = TopicQueues(metadata.name, self._batch_size, self._rng)
            topic.update(metadata)
            return topic

    def needed_bytes(self, record: SerializedRecord) -> int:
        """What a new batch for this record takes from the pool; raises for one that no request can hold."""
        size = upper_bound_bytes(record)
        if size > self._settings.max_request_size:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes is larger than max.request.size={self._settings.max_request_size}",
            )
        return max(self._batch_size, size)

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        record: SerializedRecord,
        granted_bytes: int = 0,
    ) -> RecordFuture | None:
        """Add a record to the open batch of ``partition``, or to a new one; None is the sticky partition.

        None where a new batch is needed and the pool has no memory for it: the caller then waits for
        ``needed_bytes`` and comes back with them as ``granted_bytes``.
        """
        _, key, value, _, timestamp_ms, headers, *_ = record
        needed = self.needed_bytes(record)
        with self.lock:
            try:
                queue = self._open_queue(topic, partition)
                while queue.open is not None:
                    batch = queue.open
                    index = batch.append(timestamp_ms, key, value, headers)
                    if index >= 0:
                        return _future(batch, index, record)
                    self._close_full(queue)
                    queue = self._open_queue(topic, partition)
                future: RecordFuture | None = None
                if granted_bytes or self.pool.allocate_nowait(needed):
                    granted_bytes = granted_bytes or needed
                    batch = self._new_batch(queue, granted_bytes)
                    # The first record goes in before others can see the batch: it always fits.
                    index = batch.append(timestamp_ms, key, value, headers)
                    future = _future(batch, index, record)
                    self._begin(queue, batch)
                    granted_bytes = 0
            finally:
                self._return(granted_bytes)
        self.wake()
        return future

    def append_rows(
        self,
        topic: TopicQueues,
        partition: int | None,
        source: ColumnSource,
        start: int,
        rows: bytes | None,
        needed_bytes: int,
        granted_bytes: int = 0,
    ) -> AppendedRows | None:
        """As :meth:`append`, with as many rows of a table as fit one batch."""
        with self.lock:
            try:
                queue = self._open_queue(topic, partition)
                while queue.open is not None:
                    batch = queue.open
                    assert batch.builder is not None
                    first = batch.builder.record_count
                    end = append_rows(batch.builder, source, start, rows)
                    if end > start:
                        return AppendedRows(end, batch, first)
                    self._close_full(queue)
                    queue = self._open_queue(topic, partition)
                appended: AppendedRows | None = None
                if granted_bytes or self.pool.allocate_nowait(needed_bytes):
                    granted_bytes = granted_bytes or needed_bytes
                    batch = self._new_batch(queue, granted_bytes)
                    assert batch.builder is not None
                    appended = AppendedRows(append_rows(batch.builder, source, start, rows), batch, 0)
                    self._begin(queue, batch)
                    granted_bytes = 0
            finally:
                self._return(granted_bytes)
        self.wake()
        return appended

    def _return(self, granted_bytes: int) -> None:
        if granted_bytes:
            self.pool.deallocate(granted_bytes)

    def _open_queue(self, topic: TopicQueues, partition: int | None) -> PartitionQueue:
        if self._closed:
            raise ClientClosedError("the producer is closed")
        if partition is not None:
            return topic.queues[partition]
        queue = topic.sticky
        # Only between two batches: moving on earlier would leave a small one behind (KIP-794).
        if queue is None or (queue.open is None and self._should_move(topic, queue)):
            queue = topic.sticky = topic.queues[self._next_sticky(topic)]
        return queue

    def _should_move(self, topic: TopicQueues, sticky: PartitionQueue) -> bool:
        """Whether the sticky partition has had its share, or has no leader while others have."""
        if topic.partitioner.is_time_to_move:
            return True
        return bool(topic.available) and sticky.topic_partition.partition not in topic.available

    def _next_sticky(self, topic: TopicQueues) -> int:
        partitions = self._quick(topic, topic.available) or topic.available or range(topic.partition_count)
        if not self._settings.adaptive_partitioning or topic.partition_count < 2:
            return topic.partitioner.next_partition(partitions, None)
        sizes = [len(topic.queues[number].batches) for number in partitions]
        return topic.partitioner.next_partition(partitions, sizes)

    def _quick(self, topic: TopicQueues, partitions: Sequence[int]) -> Sequence[int]:
        """Those whose broker has not kept batches waiting for ``partitioner.availability.timeout.ms``."""
        timeout_ms = self._settings.availability_timeout_ms
        if timeout_ms <= 0 or not self._waiting_nodes:
            return partitions
        latest = self._clock() - timeout_ms / 1000
        slow = {node_id for node_id, since in self._waiting_nodes.items() if since < latest}
        return [number for number in partitions if topic.leaders.get(number) not in slow]

    def node_waits(self, node_id: int, now_s: float) -> None:
        """There are batches for a broker that cannot take them now."""
        self._waiting_nodes.setdefault(node_id, now_s)

    def node_served(self, node_id: int) -> None:
        """A broker has got what waited for it."""
        self._waiting_nodes.pop(node_id, None)

    def _new_batch(self, queue: PartitionQueue, reserved_bytes: int) -> ProducerBatch:
        settings = self._settings
        # Records to be compressed take more room than the batch will, and go into memory of their own.
        pooled = reserved_bytes == self._batch_size and settings.codec is Codec.NONE
        buffer = self.pool.take_buffer() if pooled else None
        builder = BatchBuilder(
            self._batch_size,
            settings.codec,
            settings.compression_level,
            compression_ratio=queue.topic.compression_ratio,
            buffer=buffer,
        )
        return ProducerBatch(queue.topic_partition, builder, reserved_bytes, self._clock(), buffer)

    def _begin(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._active[queue] = None
        self.incomplete.add(batch)
        queue.push(batch, batch.append_now)

    def _close_full(self, queue: PartitionQueue) -> None:
        batch = queue.close_open()
        assert batch is not None
        batch.is_full = True
        self.full_bytes += batch.reserved_bytes
        if queue is queue.topic.sticky:
            queue.topic.partitioner.produced(batch.size_bytes)

    @property
    def has_backlog(self) -> bool:
        """Whether the sender is behind with full batches."""
        return self.full_bytes > _BACKLOG_BYTES

    def let_sender_run(self) -> None:
        """Stand aside while the sender is behind; for threads that send.

        A thread that never waits keeps the interpreter lock for 5 ms at a time, and the sender needs it
        several times per request: without this a busy program would send less the faster it is.
        """
        if self.has_backlog:
            with self.lock:
                self._backlog_waiters += 1
                self._drained.wait(_STAND_ASIDE_S)
                self._backlog_waiters -= 1

    # -- emptying

    def ready(self, metadata: ClusterMetadata, now_s: float) -> ReadyCheck:
        """Which brokers should be sent to, and with what."""
        check = ReadyCheck()
        urgent = (
            self._closed
            or self._flushes > 0
            or self.pool.waiter_count > 0
            or (self._transactions is not None and self._transactions.is_completing)
        )
        with self.lock:
            for queue in self._active:
                if queue.muted:
                    continue
                partition = metadata.partition(queue.topic_partition)
                if partition is None or partition.leader is None or partition.leader not in metadata.nodes:
                    check.unknown_leader_topics.add(queue.topic.name)
                    continue
                self._check_queue(queue, partition, urgent, now_s, check)
        return check

    def _check_queue(
        self,
        queue: PartitionQueue,
        partition: PartitionMetadata,
        urgent: bool,
        now_s: float,
        check: ReadyCheck,
    ) -> None:
        first = queue.batches[0]
        leader = partition.leader
        assert leader is not None
        if first.in_retry:
            # A new leader has had no time to refuse anything yet (KIP-951).
            wait_s = 0.0 if partition.leader_epoch > first.sent_leader_epoch else first.retry_at_s - now_s
            if wait_s > 0:
                check.next_check_s = min(check.next_check_s, wait_s)
                return
            check.nodes.add(leader)
        else:
            wait_s = first.created_s + self._linger_s - now_s
            if urgent or first.is_full or wait_s <= 0 or len(queue.batches) > 1:
                check.nodes.add(leader)
            else:
                check.next_check_s = min(check.next_check_s, wait_s)
        check.queues.setdefault(leader, []).append(queue)

    def drain(self, queues: Sequence[PartitionQueue], now_s: float) -> list[ProducerBatch]:
        """One request's worth of batches for one broker, at most one per partition."""
        drained: list[ProducerBatch] = []
        size = 0
        with self.lock:
            for queue in queues:
                if not queue.batches or queue.muted:
                    continue
                first = queue.batches[0]
                if drained and size + first.size_bytes > self._settings.max_request_size:
                    break
                if self._transactions is not None and not self._transactions.may_drain(first):
                    continue
                size += first.size_bytes
                self._take_first(queue, first)
                first.drained_s = now_s
                if self._transactions is not None:
                    self._transactions.assign_sequence(first)
                drained.append(first)
            if self._backlog_waiters and self.full_bytes <= _BACKLOG_BYTES:
                self._drained.notify_all()
        for batch in drained:
            self._encode(batch)
        return drained

    def _take_first(self, queue: PartitionQueue, first: ProducerBatch) -> None:
        queue.batches.popleft()
        if queue.open is first:
            queue.close_open()
            if queue is queue.topic.sticky:
                queue.topic.partitioner.produced(first.size_bytes)
        self._note_taken(first)
        first.close_for_appends()
        # To the end of the line: the partitions of a broker take turns.
        del self._active[queue]
        if queue.batches:
            self._active[queue] = None

    def _note_taken(self, batch: ProducerBatch) -> None:
        if batch.is_full:
            batch.is_full = False
            self.full_bytes -= batch.reserved_bytes

    def _encode(self, batch: ProducerBatch) -> None:
        builder = batch.builder
        if builder is None:
            return
        expected = builder.size_bytes - HEADER_SIZE
        encoded = batch.encode()
        if self._settings.codec is not Codec.NONE and expected > 0:
            # The builder's estimate is the raw size times the ratio it was given; this gives the true one.
            raw = expected / (
                builder.compression_ratio
                if builder.compression_ratio == 1.0
                else builder.compression_ratio * 1.05
            )
            self.topics[batch.topic_partition.topic].note_compression((len(encoded) - HEADER_SIZE) / raw)

    def take_expired(self, now_s: float) -> tuple[list[ProducerBatch], float]:
        """The batches whose ``delivery.timeout.ms`` has passed, and when the next one's may have."""
        expired: list[ProducerBatch] = []
        next_s = now_s + self._delivery_s
        with self.lock:
            for batch in self.incomplete:
                ends_s = batch.created_s + self._delivery_s
                if ends_s <= now_s:
                    expired.append(batch)
                else:
                    next_s = min(next_s, ends_s)
            for batch in expired:
                self._remove(batch)
        expired.sort(key=lambda batch: batch.created_s)
        return expired, next_s

    def _remove(self, batch: ProducerBatch) -> None:
        queue = self._queue(batch)
        if queue is queue.topic.sticky:
            # Its broker may be dead: whoever sends too little to fill a batch would stay there for ever.
            queue.topic.sticky = None
        if batch in queue.batches:
            if queue.open is batch:
                queue.close_open()
            queue.batches.remove(batch)
            self._note_taken(batch)
            if not queue.batches:
                del self._active[queue]

    def reenqueue(self, batch: ProducerBatch, retry_at_s: float) -> None:
        """A batch that could not be written takes its place in front again."""
        batch.attempts += 1
        batch.retry_at_s = retry_at_s
        with self.lock:
            self._insert(self._queue(batch), batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Replace a batch that is too large for its broker by smaller ones; how many."""
        encoded = batch.take_encoded()
        limit = min(self._batch_size, len(encoded))
        groups = split(encoded, limit)
        while len(groups) == 1 and len(groups[0]) > 1:
            limit //= 2
            groups = split(encoded, limit)
        parts: list[ProducerBatch] = []
        bounds: list[int] = []
        first = 0
        for group in groups:
            builder = BatchBuilder(limit, self._settings.codec, self._settings.compression_level)
            for record in group:
                builder.append(record.timestamp, record.key, record.value, record.headers)
            part = ProducerBatch(batch.topic_partition, builder, 0, batch.created_s)
            part.close_for_appends()
            parts.append(part)
            bounds.append(first)
            first += len(group)
        parts[0].reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        with self.lock:
            queue = self._queue(batch)
            queue.topic.compression_ratio = 1.0
            if self._transactions is not None:
                self._transactions.replace_in_flight(batch, parts)
            for part in reversed(parts):
                self._insert(queue, part)
            self.incomplete.discard(batch)
            self.incomplete.update(parts)
        batch.move_callbacks(bounds, parts)
        return len(parts)

    def _queue(self, batch: ProducerBatch) -> PartitionQueue:
        topic, partition = batch.topic_partition
        return self.topics[topic].queues[partition]

    def _insert(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        at = 0
        if self._transactions is not None and batch.has_sequence:
            while at < len(queue.batches) and self._transactions.precedes(queue.batches[at], batch):
                at += 1
        queue.batches.insert(at, batch)
        self._active[queue] = None

    # -- ending

    def complete(self, batch: ProducerBatch) -> None:
        """A batch has ended: its memory goes back."""
        with self.lock:
            self.incomplete.discard(batch)
        reserved, batch.reserved_bytes = batch.reserved_bytes, 0
        if reserved:
            self.pool.deallocate(reserved, batch.take_buffer())

    def mute(self, batches: Collection[ProducerBatch]) -> None:
        """Send nothing more of their partitions until they are unmuted."""
        for batch in batches:
            self._queue(batch).muted = True

    def unmute(self, batch: ProducerBatch) -> None:
        """Its partition may be sent to again."""
        self._queue(batch).muted = False

    def take_unsent(self, *, all_batches: bool = False) -> list[ProducerBatch]:
        """Remove the batches that wait in queues; those that brokers may have seen if ``all_batches``."""
        taken: list[ProducerBatch] = []
        with self.lock:
            for queue in list(self._active):
                kept = [] if all_batches else [each for each in queue.batches if each.has_sequence]
                taken += [each for each in queue.batches if all_batches or not each.has_sequence]
                queue.close_open()
                queue.batches.clear()
                queue.batches.extend(kept)
                if not kept:
                    del self._active[queue]
            for batch in taken:
                self._note_taken(batch)
        return taken

    def close_open_batches(self) -> None:
        """Let every record after this one begin a new batch."""
        with self.lock:
            for queue in self._active:
                if queue.open is not None:
                    self._close_full(queue)

    @property
    def has_undrained(self) -> bool:
        """Whether batches wait in queues."""
        return bool(self._active)

    async def wait_flushed(self) -> None:
        """Send what is there without lingering, and wait until all of it has ended."""
        with self.lock:
            self._flushes += 1
            waited_for = list(self.incomplete)
        self.wake()
        try:
            for batch in waited_for:
                await batch.wait_settled()
        finally:
            with self.lock:
                self._flushes -= 1

    def close(self) -> None:
        """Take no more records; what is there leaves without lingering."""
        with self.lock:
            self._closed = True
            for queue in self._active:
                queue.append = None
        self.wake()
