"""Whole Arrow tables into batches, without an object per record (``send_arrow``, ``send_batch``).

A table goes row by row into the same batches that ``send`` fills, by the compiled codec (``records/arrow``):
rows with a key by its hash, the rest to the partition that keyless records stick to, or all to one partition
that the caller names. Interceptors, serializers and callbacks do not see rows. ``RowWriter`` appends rows,
whichever call they come from; ``TableWriter`` is one ``send_arrow``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer._record_accumulator import AppendedRows, RecordAccumulator
from tidelog.client.producer._settings import ProducerSettings
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer.quick_send import TopicQueues
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET
from tidelog.records.arrow import column_sources, load_pyarrow
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.column_codec import ColumnSource, partition_rows

_ROW_OVERHEAD = 36


class WrittenRows(NamedTuple):
    """Rows that stand together in a partition; ``offset`` is that of the first, -1 with ``acks=0``."""

    topic: str
    partition: int
    offset: int
    rows: int


class TableFuture:
    """What becomes of a table: ``await`` it, or ask for its ``result``."""

    def __init__(self) -> None:
        self._pieces: list[tuple[ProducerBatch, int, int]] = []

    def __repr__(self) -> str:
        rows = sum(count for _, _, count in self._pieces)
        return f"<{'written' if self.done() else 'pending'} table of {rows} rows>"

    def add(self, batch: ProducerBatch, first: int, count: int) -> None:
        """``count`` rows went into ``batch`` from index ``first`` on."""
        self._pieces.append((batch, first, count))

    def done(self) -> bool:
        """Whether every row has been written or has failed."""
        return all(batch.is_settled for batch, _, _ in self._pieces)

    def result(self, timeout: float | None = None) -> list[WrittenRows]:
        """Where the rows went; waits up to ``timeout`` seconds, raises the first error among them."""
        end = None if timeout is None else time.monotonic() + timeout
        for batch, first, count in self._pieces:
            for index in (first, first + count - 1):
                left = None if end is None else max(end - time.monotonic(), 0.0)
                if batch.wait_done(index, left) is None:
                    raise RequestTimeoutError(
                        f"not all rows of the table were acknowledged within {timeout:g} s; "
                        "they may still be written"
                    )
        return self._written()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The first error among the rows, None if all were written; waits like ``result``."""
        try:
            self.result(timeout)
        except RequestTimeoutError:
            if not self.done():
                raise
            return next(_errors(self._pieces), None)
        except Exception as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, list[WrittenRows]]:
        yield from self._settled().__await__()
        return self._written()

    async def _settled(self) -> None:
        for batch, _, _ in self._pieces:
            if not batch.is_settled:
                await asyncio.shield(asyncio.ensure_future(batch.wait_settled()))

    def _written(self) -> list[WrittenRows]:
        for error in _errors(self._pieces):
            raise error
        return [
            WrittenRows(
                *batch.topic_partition,
                NO_OFFSET if batch.base_offset == NO_OFFSET else batch.base_offset + first,
                count,
            )
            for batch, first, count in located(self._pieces)
        ]


def located(pieces: list[tuple[ProducerBatch, int, int]]) -> Iterator[tuple[ProducerBatch, int, int]]:
    """The pieces in the batches in which they ended: one that was split is in several."""
    for whole, start, count in pieces:
        done = 0
        while done < count:
            batch, first = whole.locate(start + done)
            # Only a batch that was closed knows its size, and only such a one is split.
            size = batch.record_count or first + count - done
            rows = min(count - done, size - first)
            yield batch, first, rows
            done += rows


def _errors(pieces: list[tuple[ProducerBatch, int, int]]) -> Iterator[Exception]:
    for batch, first, count in located(pieces):
        for index in range(first, first + count) if batch.record_errors else (first,):
            error = batch.error_of(index)
            if error is not None:
                yield error


class Rows(NamedTuple):
    """Rows of a table for one partition, or for the one that keyless records stick to (None)."""

    partition: int | None
    source: ColumnSource
    order: bytes | None = None
    """The numbers of the rows, 32 bits each; None: all rows of ``source``."""

    @property
    def size(self) -> int:
        """How many rows."""
        return self.source.rows if self.order is None else len(self.order) // 4


NoteRows = Callable[[Rows, int, AppendedRows], object]
"""Receives the rows, the place of the first that was appended, and where they are now."""


class RowWriter:
    """Rows of tables on their way into the accumulator."""

    def __init__(
        self, accumulator: RecordAccumulator, transactions: TransactionManager | None, note: NoteRows
    ) -> None:
        self._accumulator = accumulator
        self._transactions = transactions
        self._note = note

    def write(self, topics: TopicQueues, work: Iterable[Rows], needed_bytes: int) -> Iterator[int]:
        """Append the rows, a batch at a time; a new batch takes ``needed_bytes`` of memory.

        Between two batches it says how many bytes of memory the caller must get before it goes on. Where that
        is 0 the sender should have a chance: batches are sent fastest while the processor's cache has them.
        """
        granted_bytes = 0
        for rows in work:
            at = 0
            while at < rows.size:
                appended = self._accumulator.append_rows(
                    topics, rows.partition, rows.source, at, rows.order, needed_bytes, granted_bytes
                )
                if appended is None:
                    granted_bytes = needed_bytes
                    yield granted_bytes
                    continue
                granted_bytes = 0
                self._note(rows, at, appended)
                at = appended.end
                if self._transactions is not None and self._transactions.is_transactional:
                    self._transactions.add_partition(appended.batch.topic_partition)
                    self._accumulator.wake()
                yield 0


class TableWriter:
    """One table on its way into the accumulator."""

    def __init__(
        self,
        table: Any,
        partition: int | None,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
    ) -> None:
        if partition is None and settings.partitioner is not None:
            raise ConfigError(
                "send_arrow does not ask partitioner.class: name the partition, or leave that option out"
            )
        self.future = TableFuture()
        self._rows = RowWriter(accumulator, transactions, self._note)
        self._partition = partition
        self._ignore_keys = settings.ignore_keys
        self._sources = column_sources(table, int(time.time() * 1000))
        self._needed_bytes = max(settings.batch_size, 1, _largest_row(table))
        if self._needed_bytes > max(settings.max_request_size, settings.batch_size):
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the largest row of the table takes {self._needed_bytes} bytes, more than "
                f"max.request.size={settings.max_request_size}",
            )

    def write(self, topics: TopicQueues) -> Iterator[int]:
        """Append the rows to their topic; as :meth:`RowWriter.write`."""
        return self._rows.write(topics, self._plan(topics), self._needed_bytes)

    def _note(self, rows: Rows, at: int, appended: AppendedRows) -> None:
        self.future.add(appended.batch, appended.first, appended.end - at)

    def _plan(self, topics: TopicQueues) -> Iterator[Rows]:
        for source in self._sources:
            if self._partition is not None:
                yield Rows(self._partition, source)
            else:
                yield from rows_by_key(source, topics, ignore_keys=self._ignore_keys)


def rows_by_key(source: ColumnSource, topics: TopicQueues, *, ignore_keys: bool) -> Iterator[Rows]:
    """The rows by the partitions that their keys choose; last those without a key."""
    if source.keys is None or ignore_keys:
        yield Rows(None, source)
        return
    groups, keyless = partition_rows(source.keys, topics.partition_count)
    for partition, order in enumerate(groups):
        yield Rows(partition, source, order)
    yield Rows(None, source, keyless)


def _largest_row(table: Any) -> int:
    """The most that a batch of one row of ``table`` can take; headers are not looked at."""
    load_pyarrow()
    import pyarrow.compute as pc

    size = HEADER_SIZE + _ROW_OVERHEAD
    for name in ("key", "value"):
        if name in table.schema.names:
            column = table.column(name)
            if str(column.type) in ("binary", "string", "large_binary", "large_string"):
                size += pc.max(pc.binary_length(column)).as_py() or 0
    return size
