"""How records get into batches: the side of the accumulator that the threads that send see.

Owns the queues of all partitions and the lock that guards them; nothing under it takes long. A record goes
into the open batch of its partition; where there is none, or it is full, a new one takes its memory from the
pool. Keyless records are given their partition here, because that depends on where batches begin (KIP-794).

Invariant: a queue is in ``_active`` exactly while it has batches; ``incomplete`` holds exactly the batches
that have not ended. Lock order: this one, then the pool's.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.client.errors import ClientClosedError
from tidelog.client.metadata import TopicMetadata
from tidelog.client.producer.buffer_pool import BufferPool
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.client.producer.quick_send import PartitionQueue, RecordFuture, TopicQueues, new_future
from tidelog.client.producer.record import DeliveryCallback
from tidelog.client.producer.settings import ProducerSettings
from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.column_codec import ColumnSource, append_rows
from tidelog.records.compression import Codec
from tidelog.records.record import RecordHeader
from tidelog.records.record_codec import BatchBuilder

# Length, attributes, timestamp and offset deltas, key and value lengths and header count, at their longest.
_RECORD_OVERHEAD = 36
_HEADER_OVERHEAD = 10
BACKLOG_BYTES = 1 << 18
_STAND_ASIDE_S = 0.005


def upper_bound_bytes(key: bytes | None, value: bytes | None, headers: Sequence[RecordHeader]) -> int:
    """The most that a batch of this one record can take."""
    size = HEADER_SIZE + _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, data in headers:
        size += _HEADER_OVERHEAD + len(name) * 4 + len(data or b"")
    return size


class AppendedRows(NamedTuple):
    """Rows of a table that went into one batch."""

    end: int
    """The position of the first row that did not."""
    batch: ProducerBatch
    first: int
    """The index in the batch of the first one that did."""


class BatchAppender:
    """The batches of one producer, as they are filled."""

    def __init__(
        self,
        settings: ProducerSettings,
        pool: BufferPool,
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

    def topic(self, metadata: TopicMetadata) -> TopicQueues:
        """The queues of a topic, as many as it has partitions now."""
        with self.lock:
            topic = self.topics.get(metadata.name)
            if topic is None:
                topic = self.topics[metadata.name] = TopicQueues(metadata.name, self._batch_size, self._rng)
            topic.update(metadata)
            return topic

    def needed_bytes(self, key: bytes | None, value: bytes | None, headers: Sequence[RecordHeader]) -> int:
        """What a new batch for this record takes from the pool; raises for one that no request can hold."""
        size = upper_bound_bytes(key, value, headers)
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
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[RecordHeader],
        on_delivery: DeliveryCallback | None,
        granted_bytes: int = 0,
    ) -> RecordFuture | None:
        """Add a record to the open batch of its partition, or to a new one.

        None where a new batch is needed and the pool has no memory for it: the caller then waits for
        ``needed_bytes`` and comes back with them as ``granted_bytes``.
        """
        needed = self.needed_bytes(key, value, headers)
        with self.lock:
            try:
                queue = self._open_queue(topic, partition)
                while queue.open is not None:
                    batch = queue.open
                    index = batch.append(timestamp_ms, key, value, headers)
                    if index >= 0:
                        return self._future(batch, index, timestamp_ms, key, value, on_delivery)
                    self._close_full(queue)
                    queue = self._open_queue(topic, partition)
                future: RecordFuture | None = None
                if granted_bytes or self.pool.allocate_nowait(needed):
                    granted_bytes = granted_bytes or needed
                    batch = self._new_batch(queue, granted_bytes)
                    # The first record goes in before others can see the batch: it always fits.
                    index = batch.append(timestamp_ms, key, value, headers)
                    future = self._future(batch, index, timestamp_ms, key, value, on_delivery)
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

    def _future(
        self,
        batch: ProducerBatch,
        index: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        on_delivery: DeliveryCallback | None,
    ) -> RecordFuture:
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if on_delivery is not None:
            batch.add_callback(index, (timestamp_ms, key_size, value_size), on_delivery)
        return new_future(batch, index, timestamp_ms, key_size, value_size)

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
        if queue is None or (queue.open is None and topic.partitioner.is_time_to_move):
            queue = topic.sticky = topic.queues[self._next_sticky(topic)]
        return queue

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
        return self.full_bytes > BACKLOG_BYTES

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
