"""The rows of a table in a ``send_batch``: Arrow batch by Arrow batch into the accumulator.

Columns are ``key`` and ``value`` (bytes or text), ``headers``, ``timestamp`` and ``partition``; other columns
are refused, because their contents would be lost. Rows that cannot be sent (too large, a bad header, a
partition that does not exist) fail alone. Invariant: every row read is failed, or in a batch, or flagged
neither and failed by ``give_up``. Used by ``Producer.send_batch`` and ``AsyncProducer.send_batch``.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tidelog.client.producer._record_accumulator import (
    HEADER_OVERHEAD,
    RECORD_OVERHEAD,
    AppendedRows,
    RecordAccumulator,
)
from tidelog.client.producer._send_batch.batch_input import InvalidRecordError, check_headers
from tidelog.client.producer._send_batch.batch_sender import BatchSender
from tidelog.client.producer._send_batch.table_writer import Rows, RowWriter, rows_by_key
from tidelog.client.producer._settings import ProducerSettings
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.errors import ConfigError, ErrorCode, KafkaError
from tidelog.records.arrow import check_sendable, load_pyarrow, plain_columns, row_source
from tidelog.records.batch import HEADER_SIZE
from tidelog.records.record import RecordHeader

_MAX_ROWS = 1 << 16


class TableSender:
    """The rows of one table."""

    def __init__(
        self,
        sender: BatchSender,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
    ) -> None:
        self._sender = sender
        self._settings = settings
        self._writer = RowWriter(accumulator, transactions, self._note)
        self._first = 0
        self._gone = bytearray()
        """A byte for each row of the current Arrow batch: whether it has failed or is in a batch."""
        self._batch: Any = None
        self._partitions: list[int | None] | None = None

    def read(self, records: Any) -> Iterator[Any]:
        """The table in Arrow batches that are not too large; raises at once where it cannot be sent."""
        reader = _reader(records)
        check_sendable(reader.schema)
        return (
            batch.slice(start, _MAX_ROWS) for batch in reader for start in range(0, batch.num_rows, _MAX_ROWS)
        )

    def begin(self, batch: Any) -> set[int]:
        """Take the next Arrow batch; the partitions that it names and the last metadata do not know."""
        self._first = self._sender.begin_rows(batch.num_rows)
        self._gone = bytearray(batch.num_rows)
        self._batch = batch
        self._partitions = None
        if "partition" in batch.schema.names:
            self._partitions = batch.column("partition").to_pylist()
            return {each for each in set(self._partitions) if self._sender.must_look_up(each)}
        return set()

    def write(self) -> Iterator[int]:
        """Append the rows; as ``RowWriter.write``. Raises once the time for the batch is up."""
        self._sender.check_time()
        columns = plain_columns(self._batch)
        headers = self._headers(columns)
        self._check_times(columns)
        self._check_partitions()
        largest = self._check_sizes(columns, headers)
        if all(self._gone):
            return
        source = row_source(columns, headers, int(time.time() * 1000))
        needed = max(self._settings.batch_size, 1, largest)
        for wanted in self._writer.write(self._sender.topics, self._plan(source), needed):
            yield wanted
            self._sender.check_time()

    def give_up(self, error: Exception) -> None:
        """Fail the rows that are left of the current Arrow batch."""
        for row in range(len(self._gone)):
            if not self._gone[row]:
                self._fail(row, error)

    def _fail(self, row: int, error: Exception) -> None:
        self._gone[row] = 1
        self._sender.fail(self._first + row, error)

    def _note(self, rows: Rows, at: int, appended: AppendedRows) -> None:
        first, gone = self._first, self._gone
        if rows.order is None:
            chosen: Sequence[int] = range(at, appended.end)
            gone[at : appended.end] = b"\x01" * (appended.end - at)
        else:
            chosen = memoryview(rows.order).cast("i")[at : appended.end]
            for row in chosen:
                gone[row] = 1
        self._sender.rows_appended([first + row for row in chosen], appended.batch, appended.first)

    def _headers(self, columns: dict[str, Any]) -> list[Sequence[RecordHeader]] | None:
        found = columns.get("headers")
        if found is None:
            return None
        rows: list[Sequence[RecordHeader]] = []
        for row, pairs in enumerate(found.to_pylist()):
            headers = [_header(pair) for pair in pairs or ()]
            try:
                check_headers(headers)
            except InvalidRecordError as error:
                self._fail(row, error)
                headers = []
            rows.append(headers)
        return rows

    def _check_times(self, columns: dict[str, Any]) -> None:
        """Fail the rows whose timestamp no record can have."""
        times = columns.get("timestamp")
        if times is None:
            return
        import pyarrow.compute as compute

        if (compute.min(times).as_py() or 0) >= 0:
            return
        for row, time_ms in enumerate(times.to_pylist()):
            if time_ms is not None and time_ms < 0 and not self._gone[row]:
                self._fail(row, ValueError(f"a record cannot have the timestamp {time_ms}"))

    def _check_partitions(self) -> None:
        sender = self._sender
        if self._settings.partitioner is not None:
            error = ConfigError(
                "partitioner.class does not see the rows of a table: name their partition in the column "
                "partition, or leave that option out"
            )
            for row in range(len(self._gone)):
                if not self._gone[row] and (self._partitions is None or self._partitions[row] is None):
                    self._fail(row, error)
        known = sender.topics.queues
        for row, partition in enumerate(self._partitions or ()):
            if partition is not None and partition not in known and not self._gone[row]:
                self._fail(row, sender.absent_partition(partition))

    def _check_sizes(self, columns: dict[str, Any], headers: list[Sequence[RecordHeader]] | None) -> int:
        """Fail the rows that no request can hold; the most that a batch of one of the others takes."""
        pa = load_pyarrow()
        import pyarrow.compute as compute

        total: Any = None
        for name in ("key", "value"):
            if name in columns:
                lengths = compute.fill_null(compute.binary_length(columns[name]), 0).cast(pa.int64())
                total = lengths if total is None else compute.add(total, lengths)
        overhead = HEADER_SIZE + RECORD_OVERHEAD
        limit = self._settings.max_request_size
        if headers is None:
            largest = (compute.max(total).as_py() or 0) + overhead
            if largest <= limit:
                return int(largest)
        sizes_of = [overhead + size for size in total.to_pylist()]
        for row, pairs in enumerate(headers or ()):
            for name, value in pairs:
                sizes_of[row] += HEADER_OVERHEAD + len(name) * 4 + len(value or b"")
        largest = 0
        for row, size in enumerate(sizes_of):
            if size <= limit:
                largest = max(largest, size)
            elif not self._gone[row]:
                self._fail(
                    row,
                    KafkaError(
                        ErrorCode.MESSAGE_TOO_LARGE,
                        f"a record of {size} bytes is larger than max.request.size={limit}",
                    ),
                )
        return largest

    def _plan(self, source: Any) -> Iterable[Rows]:
        """The rows that are left, by partition; rows that name it or have a key keep their order."""
        by_key = rows_by_key(source, self._sender.topics, ignore_keys=self._settings.ignore_keys)
        named = self._partitions
        if not any(self._gone) and (named is None or not any(each is not None for each in named)):
            return by_key
        if named is None:
            named = [None] * len(self._gone)
        placed: dict[int | None, array[int]] = {}
        chosen: list[int | None] = list(named)
        for rows in by_key:
            if rows.partition is not None and rows.order is not None:
                for row in memoryview(rows.order).cast("i"):
                    if chosen[row] is None:
                        chosen[row] = rows.partition
        for row, partition in enumerate(chosen):
            if not self._gone[row]:
                placed.setdefault(partition, array("i")).append(row)
        return [Rows(partition, source, order.tobytes()) for partition, order in placed.items()]


def _header(pair: Any) -> Any:
    """A header as a pair; its value may be text, as those of keys and values may."""
    if pair is None:
        return pair
    name, value = (pair["key"], pair["value"]) if isinstance(pair, dict) else pair
    return name, value.encode() if isinstance(value, str) else value


def _reader(records: Any) -> Any:
    """A ``pyarrow.RecordBatchReader`` of whatever speaks Arrow's protocol."""
    pa = load_pyarrow()
    try:
        if not hasattr(records, "__arrow_c_stream__"):
            records = pa.Table.from_batches([pa.record_batch(records)])
        return pa.RecordBatchReader.from_stream(records)
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(
            f"send_batch takes a table with a key or a value column, got {type(records).__name__}"
        ) from error
