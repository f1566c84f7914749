"""One batch of one partition on its way: records are appended, it is sent, perhaps again, and it ends once.

Owns the batch's bytes, its producer id and sequence, and how it ended. All records of a batch end together,
so the futures of its records (``record_future``) are views of it and cost next to nothing.

Life: *open* (``append``), *closed* (``encode`` has been called once: nothing is added any more), then *done*
(written or failed) or *split* into smaller ones, which take over. Invariant: ``end`` takes effect once; what
comes later (an answer to a batch that has already expired, say) changes nothing.

The open batch is guarded by the accumulator's lock; everything from ``encode`` on happens on the sender's
loop. Waiting is for any thread and any loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from tidelog.client.producer.record import DeliveryCallback, RecordMetadata
from tidelog.ids import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TopicPartition,
)
from tidelog.records.batch import HEADER_SIZE, add_sequence
from tidelog.records.record import RecordHeader
from tidelog.records.record_codec import BatchBuilder, restamp

logger = logging.getLogger(__name__)

# Waiting for a batch is rare (most programs flush or use callbacks), so one lock does for all of them.
_waiting = threading.Lock()

RecordSizes = tuple[int, int, int]
"""Timestamp, size of the key, size of the value."""


class ProducerBatch:
    """Records of one partition that are sent, and end, together."""

    __slots__ = (
        "_callbacks",
        "_encoded",
        "_waiters",
        "answered",
        "append_time_ms",
        "attempts",
        "base_offset",
        "base_sequence",
        "buffer",
        "builder",
        "compression_rate",
        "created_s",
        "done",
        "drained_s",
        "error",
        "is_full",
        "is_transactional",
        "largest_record_bytes",
        "order",
        "parts",
        "producer_epoch",
        "producer_id",
        "record_count",
        "record_errors",
        "reserved_bytes",
        "retry_at_s",
        "sent_leader_epoch",
        "sequence_has_been_reset",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        builder: BatchBuilder,
        reserved_bytes: int,
        created_s: float,
        buffer: bytearray | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.builder: BatchBuilder | None = builder
        self.reserved_bytes = reserved_bytes
        """What it holds of the buffer pool; 0 once it has given it back."""
        self.buffer = buffer
        self.answered = False
        """Whether a broker has answered: then nothing of its bytes is left to be sent."""
        self.created_s = created_s
        self.drained_s = 0.0
        self.retry_at_s = 0.0
        self.attempts = 0
        self.sent_leader_epoch = -1
        self.record_count = 0
        self.compression_rate = 1.0
        """Its size through that of its records uncompressed, once it is encoded."""
        self.largest_record_bytes = 0
        self.is_full = False
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.is_transactional = False
        self.sequence_has_been_reset = False
        self.order = 0
        """How many batches of its partition were numbered before it."""
        self.done = False
        self.error: Exception | None = None
        self.record_errors: Mapping[int, Exception] = {}
        self.base_offset = NO_OFFSET
        self.append_time_ms = NO_TIMESTAMP
        self.parts: list[tuple[int, ProducerBatch]] = []
        """Where the records of a split batch went: the first index of each part, ascending."""
        self._encoded: bytes | memoryview | None = None
        self._callbacks: list[tuple[int, RecordSizes, DeliveryCallback]] = []
        self._waiters: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return (
            f"<batch of {self.topic_partition}, {self.record_count} records, sequence {self.base_sequence}>"
        )

    @property
    def has_sequence(self) -> bool:
        """Whether it has been given its place in the partition's sequence, which it keeps through retries."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record."""
        return add_sequence(self.base_sequence, self.record_count - 1)

    @property
    def in_retry(self) -> bool:
        """Whether a broker may already have it."""
        return self.attempts > 0

    @property
    def size_bytes(self) -> int:
        """Its size on the wire; an estimate until it is encoded."""
        if self._encoded is not None:
            return len(self._encoded)
        return 0 if self.builder is None else self.builder.size_bytes

    @property
    def is_settled(self) -> bool:
        """Whether its records, in whichever batch they are now, have all ended."""
        return self.done or (bool(self.parts) and all(part.is_settled for _, part in self.parts))

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[RecordHeader],
    ) -> int:
        """The index of the record, or -1 where it does not fit (or the batch is closed)."""
        return -1 if self.builder is None else self.builder.append(timestamp_ms, key, value, headers)

    @property
    def append_now(self) -> Callable[..., int]:
        """The builder's own ``append``, for records that need no more than that."""
        assert self.builder is not None
        return self.builder.append

    def add_callback(self, index: int, sizes: RecordSizes, callback: DeliveryCallback) -> None:
        """Have ``callback`` told how record ``index`` ended."""
        self._callbacks.append((index, sizes, callback))

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        """Give the batch its place in the partition's sequence."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional

    def reset_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give a batch that was sent already another place; it is stamped anew before it is sent again."""
        self.set_producer_state(producer_id, producer_epoch, base_sequence, self.is_transactional)
        self.sequence_has_been_reset = True
        if self._encoded is not None:
            self._encoded = restamp(
                self._encoded, producer_id, producer_epoch, base_sequence, self.is_transactional
            )

    def encode(self) -> bytes | memoryview:
        """The batch's bytes; the first call closes it."""
        if self._encoded is None:
            builder = self.builder
            assert builder is not None
            self._encoded = builder.close_view(
                self.producer_id, self.producer_epoch, self.base_sequence, self.is_transactional
            )
            self.record_count = builder.record_count
            self.largest_record_bytes = builder.largest_record_bytes
            if builder.codec:
                self.compression_rate = len(self._encoded) / (HEADER_SIZE + builder.record_bytes)
            self.builder = None
        return self._encoded

    def take_buffer(self) -> bytearray | None:
        """Its memory, for another batch, once it is done and where no connection may still look at it."""
        buffer, self.buffer = self.buffer, None
        return buffer if self.answered else None

    def close_for_appends(self) -> None:
        """Fix the number of records, which the sequence numbers are counted by."""
        if self.builder is not None:
            self.record_count = self.builder.record_count

    def take_encoded(self) -> bytes | memoryview:
        """Its bytes, to be split; the batch needs them no more."""
        encoded = self.encode()
        self._encoded = None
        return encoded

    def move_callbacks(self, bounds: Sequence[int], parts: Sequence[ProducerBatch]) -> None:
        """Hand over to ``parts``, the first of whose records are those at ``bounds``."""
        for index, sizes, callback in self._callbacks:
            at = bisect_right(bounds, index) - 1
            parts[at].add_callback(index - bounds[at], sizes, callback)
        self._callbacks = []
        with _waiting:
            self.parts = list(zip(bounds, parts, strict=True))
            waiters, self._waiters = self._waiters, []
        self._wake(waiters)

    def end(
        self,
        error: Exception | None,
        base_offset: int = NO_OFFSET,
        append_time_ms: int = NO_TIMESTAMP,
        record_errors: Mapping[int, Exception] | None = None,
    ) -> bool:
        """End the batch, wake who waits and call who asked to be called; False if it had ended before."""
        if self.done:
            return False
        self.error = error
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.record_errors = record_errors or {}
        with _waiting:
            self.done = True
            waiters, self._waiters = self._waiters, []
        self.builder = None
        self._encoded = None
        self._wake(waiters)
        if self._callbacks:
            self._call_back()
        return True

    def _wake(self, waiters: Sequence[Callable[[], object]]) -> None:
        # Some run a program's own callback, or wake an event loop that may be closed by now.
        for wake in waiters:
            try:
                wake()
            except Exception:
                logger.exception("whoever waited for a record of %s could not be told", self.topic_partition)

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for index, sizes, callback in callbacks:
            try:
                callback(self.metadata_of(index, sizes), self.error_of(index))
            except Exception:
                logger.exception("the delivery callback of a record of %s failed", self.topic_partition)

    def metadata_of(self, index: int, sizes: RecordSizes) -> RecordMetadata:
        """Where record ``index`` of a batch that is done went."""
        topic, partition = self.topic_partition
        timestamp_ms, key_size, value_size = sizes
        return RecordMetadata(
            topic,
            partition,
            NO_OFFSET if self.base_offset == NO_OFFSET else self.base_offset + index,
            timestamp_ms if self.append_time_ms == NO_TIMESTAMP else self.append_time_ms,
            key_size,
            value_size,
        )

    def error_of(self, index: int) -> Exception | None:
        """What kept record ``index`` from being written."""
        return self.record_errors.get(index, self.error)

    def locate(self, index: int) -> tuple[ProducerBatch, int]:
        """The batch in which record ``index`` is now, and its index there."""
        batch = self
        while batch.parts:
            at = bisect_right(batch.parts, index, key=lambda part: part[0]) - 1
            first, part = batch.parts[at]
            batch, index = part, index - first
        return batch, index

    def call_when_moved(self, wake: Callable[[], object]) -> bool:
        """Have ``wake`` called, in the sender's thread, when the batch is done or split; False if it is."""
        with _waiting:
            if self.done or self.parts:
                return False
            self._waiters.append(wake)
            return True

    def wait_done(self, index: int, timeout_s: float | None) -> ProducerBatch | None:
        """Block until the batch of record ``index`` is done; None when time is up."""
        batch, _ = self.locate(index)
        if batch.done:
            return batch
        event = threading.Event()
        while True:
            batch, _ = self.locate(index)
            event.clear()
            if batch.done:
                return batch
            if batch.call_when_moved(event.set) and not event.wait(timeout_s):
                return None

    async def wait_settled(self) -> None:
        """Suspend until all records have ended, wherever they went."""
        loop = asyncio.get_running_loop()
        while not self.done and not self.parts:
            moved = loop.create_future()
            if self.call_when_moved(lambda moved=moved: loop.call_soon_threadsafe(set_done, moved)):  # type: ignore[misc]
                await moved
        for _, part in self.parts:
            await part.wait_settled()


def set_done(future: asyncio.Future[None]) -> None:
    """End a future that may have been given up."""
    if not future.done():
        future.set_result(None)
