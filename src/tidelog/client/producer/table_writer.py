"""Whole Arrow tables into batches, without an object per record (``send_arrow``).

A table goes row by row into the same batches that ``send`` fills, by the compiled codec (``records/arrow``):
rows with a key by its hash, the rest to the partition that keyless records stick to, or all to one partition
that the caller names. Interceptors, serializers and callbacks do not see rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.client.producer.quick_send import TopicQueues
from tidelog.client.producer.record_accumulator import AppendedRows, RecordAccumulator
from tidelog.client.producer.settings import ProducerSettings
from tidelog.client.producer.transaction_manager import TransactionManager
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
            for batch, first, count in _located(self._pieces)
        ]


def _located(pieces: list[tuple[ProducerBatch, int, int]]) -> Iterator[tuple[ProducerBatch, int, int]]:
    """The pieces in the batches in which they ended: one that was split is in several."""
    for whole, start, count in pieces:
        done = 0
        while done < count:
            batch, first = whole.locate(start + done)
            rows = min(count - done, batch.record_count - first)
            yield batch, first, rows
            done += rows


def _errors(pieces: list[tuple[ProducerBatch, int, int]]) -> Iterator[Exception]:
    for batch, first, count in _located(pieces):
        for index in range(first, first + count) if batch.record_errors else (first,):
            error = batch.error_of(index)
            if error is not None:
                yield error


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
        self._accumulator = accumulator
        self._transactions = transactions
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
        self._work: Iterator[tuple[int | None, ColumnSource, bytes | None]] = iter(())
        self._current: tuple[int | None, ColumnSource, bytes | None] | None = None
        self._at = 0

    def begin(self, topics: TopicQueues) -> None:
        """The topic is known: rows can be given their partitions."""
        self._topics = topics
        self._work = self._plan(topics)
        self._current = next(self._work, None)

    def write(self) -> Iterator[int]:
        """Append the rows, a batch at a time.

        Between two batches it says how many bytes of memory the caller must get before it goes on. Where that
        is 0 the sender should have a chance: batches are sent fastest while the processor's cache has them.
        """
        granted_bytes = 0
        while self._current is not None:
            partition, source, rows = self._current
            appended = self._accumulator.append_rows(
                self._topics, partition, source, self._at, rows, self._needed_bytes, granted_bytes
            )
            if appended is None:
                granted_bytes = self._needed_bytes
                yield granted_bytes
                continue
            granted_bytes = 0
            self._note(appended)
            end = source.rows if rows is None else len(rows) // 4
            if self._at >= end:
                self._current, self._at = next(self._work, None), 0
            yield 0

    def _note(self, appended: AppendedRows) -> None:
        self.future.add(appended.batch, appended.first, appended.end - self._at)
        self._at = appended.end
        if self._transactions is not None and self._transactions.is_transactional:
            self._transactions.add_partition(appended.batch.topic_partition)
            self._accumulator.wake()

    def _plan(self, topics: TopicQueues) -> Iterator[tuple[int | None, ColumnSource, bytes | None]]:
        for source in self._sources:
            if not source.rows:
                continue
            if self._partition is not None or source.keys is None or self._ignore_keys:
                yield self._partition, source, None
                continue
            groups, keyless = partition_rows(source.keys, topics.partition_count)
            for partition, rows in enumerate(groups):
                if rows:
                    yield partition, source, rows
            if keyless:
                yield None, source, keyless


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
