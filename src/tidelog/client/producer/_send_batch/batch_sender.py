"""``send_batch``: a collection of records or a table, with the outcome of every record.

    records   batch_input → the producer's own send, record by record → RecordTracker
    tables    one Arrow batch after the other → table_writer.RowWriter → RecordTracker

Invariant: every item that was read from the input has exactly one outcome in the result, whatever fails. Of a
record that is under way only its index is kept, and of one that has ended twelve bytes, so an input of any
length needs ``buffer.memory`` and the result. The producers own the waiting: for room, for metadata and for
acknowledgments.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence

from tidelog.client._network.retry import check_seconds
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer._send_batch.batch_input import RecordParts, record_parts
from tidelog.client.producer._send_batch.table_writer import located
from tidelog.client.producer.batch_result import BatchResult, BatchSourceError
from tidelog.client.producer.quick_send import RecordFuture, TopicQueues
from tidelog.client.producer.record_future import DeferredRecord, Delivery
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET


class _Piece:
    """Records of the input that are next to one another in one batch."""

    __slots__ = ("batch", "first", "indexes")

    def __init__(self, batch: ProducerBatch, first: int, indexes: array[int]) -> None:
        self.batch = batch
        self.first = first
        self.indexes = indexes


class RecordTracker:
    """Which records of the input are in which batches, until those have ended."""

    def __init__(self, result: BatchResult) -> None:
        self.result = result
        self._open: dict[ProducerBatch, _Piece] = {}
        self._pieces: deque[_Piece] = deque()

    def add(self, index: int, batch: ProducerBatch, place: int) -> None:
        """Record ``index`` of the input is record ``place`` of ``batch``."""
        piece = self._open.get(batch)
        if piece is None or piece.first + len(piece.indexes) != place:
            self._begin(batch, place, array("q", [index]))
        else:
            piece.indexes.append(index)

    def add_rows(self, indexes: Sequence[int], batch: ProducerBatch, first: int) -> None:
        """These records of the input are those of ``batch`` from ``first`` on."""
        self._begin(batch, first, array("q", indexes))

    def _begin(self, batch: ProducerBatch, first: int, indexes: array[int]) -> None:
        self.settle_ended()
        piece = self._open[batch] = _Piece(batch, first, indexes)
        self._pieces.append(piece)

    def settle_ended(self) -> None:
        """Move the outcomes of batches that have ended into the result, up to the first that has not."""
        while self._pieces and self._pieces[0].batch.is_settled:
            self._settle(self._pieces.popleft(), None)

    def settle_all(self, unfinished: Exception) -> None:
        """The same for all; records that are still under way fail with ``unfinished``."""
        while self._pieces:
            self._settle(self._pieces.popleft(), unfinished)

    def _settle(self, piece: _Piece, unfinished: Exception | None) -> None:
        if self._open.get(piece.batch) is piece:
            del self._open[piece.batch]
        result, at = self.result, 0
        for batch, first, count in located([(piece.batch, piece.first, len(piece.indexes))]):
            indexes = piece.indexes[at : at + count]
            at += count
            partition = batch.topic_partition.partition
            if not batch.done:
                assert unfinished is not None
                for index in indexes:
                    result.fail(index, unfinished, partition)
            elif batch.error is None and not batch.record_errors:
                base = batch.base_offset
                result.store(indexes, partition, base if base == NO_OFFSET else base + first)
            else:
                for place, index in enumerate(indexes, first):
                    error = batch.error_of(place)
                    assert error is not None
                    result.fail(index, error, partition)


class BatchSender:
    """One ``send_batch`` under way."""

    def __init__(
        self, topics: TopicQueues, note_lost_record: Callable[[Exception], None], timeout: float | None
    ) -> None:
        if timeout is not None:
            check_seconds("send_batch", timeout)
        self.result = BatchResult(topics.name)
        self.topics = topics
        self._tracker = RecordTracker(self.result)
        self._note_lost_record = note_lost_record
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout
        self._last_error: Exception | None = None
        self._too_late: RequestTimeoutError | None = None
        self._absent: dict[int, KafkaError] = {}
        self.failure: Exception | None = None
        """The error with which the input ended, if it did not end by itself."""

    # Records

    def read(self, item: object) -> RecordParts | None:
        """The parts of the next item of the input; None where it has failed already."""
        index = self.result.begin()
        try:
            self.check_time()
            return record_parts(item, self.topics.name)
        except Exception as error:
            self.fail(index, error)
            return None

    def must_look_up(self, partition: int | None) -> bool:
        """Whether the last metadata do not know this partition, and newer ones have not been requested."""
        return partition is not None and partition not in self.topics.queues and partition not in self._absent

    def looked_up(self, partition: int | None) -> None:
        """The metadata are as new as they can be: a partition that they do not have fails its records."""
        if partition is not None and partition not in self.topics.queues:
            self._absent[partition] = self.absent_partition(partition)

    def absent_partition(self, partition: int) -> KafkaError:
        """Why records of this partition fail."""
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {self.topics.name!r} has the partitions 0 to {self.topics.partition_count - 1}, and no "
            f"partition {partition}",
        )

    def send(self, record: RecordParts, send: Callable[..., Delivery]) -> DeferredRecord | None:
        """Buffer the record that :meth:`read` returned last; one that waits for room is returned."""
        index = len(self.result) - 1
        key, value, headers, timestamp_ms, partition = record
        try:
            if self._absent and partition is not None and (absent := self._absent.get(partition)):
                raise absent
            delivery = send(
                self.topics.name,
                value,
                key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
            )
        except Exception as error:
            self.fail(index, error)
            return None
        if isinstance(delivery, DeferredRecord):
            return delivery
        assert isinstance(delivery, RecordFuture)
        self._tracker.add(index, delivery.batch, delivery.index)
        return None

    async def wait_buffered(self, deferred: DeferredRecord) -> None:
        """Wait until the last record has room, or has failed because there was none."""
        index = len(self.result) - 1
        try:
            delivery = await deferred.buffered()
        except Exception as error:
            self.fail(index, error)
            return
        assert isinstance(delivery, RecordFuture)
        self._tracker.add(index, delivery.batch, delivery.index)

    def fail(self, index: int, error: Exception) -> None:
        """Note that a record will not be stored; a transaction that it belongs to cannot be committed."""
        self.result.fail(index, error)
        if error is not self._last_error:
            self._last_error = error
            self._note_lost_record(error)

    def check_time(self) -> None:
        """Raise if the time for the batch is up: later records are not sent."""
        if self._end is None:
            return
        if self._too_late is None and time.monotonic() >= self._end:
            self._too_late = RequestTimeoutError(
                f"the record was not sent, because the {self._timeout:g} s for its batch were over"
            )
        if self._too_late is not None:
            raise self._too_late

    # Tables

    def begin_rows(self, count: int) -> int:
        """So many more rows of a table have been read; the index of the first."""
        return self.result.begin_many(count)

    def rows_appended(self, indexes: Sequence[int], batch: ProducerBatch, first: int) -> None:
        """These rows are records of ``batch`` from ``first`` on."""
        self._tracker.add_rows(indexes, batch, first)

    # The end

    @property
    def remaining_s(self) -> float | None:
        """How long acknowledgments may be waited for; None: as long as ``delivery.timeout.ms`` allows."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def finish(self, problem: Exception | None) -> BatchResult:
        """The result, once acknowledgments were waited for; ``problem`` is what ended the waiting early."""
        if isinstance(problem, RequestTimeoutError) or problem is None:
            problem = RequestTimeoutError(
                "the record was not acknowledged before the timeout of its batch; it may still be written"
            )
        self._tracker.settle_all(problem)
        self.result.fail_pending(self.failure or problem)
        if self.failure is not None:
            raise BatchSourceError(
                f"the input of the batch failed after {len(self.result)} records: {self.failure}", self.result
            ) from self.failure
        return self.result
