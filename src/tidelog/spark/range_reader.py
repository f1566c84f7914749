"""Executor side: the records of a task's offset ranges as Arrow record batches.

    RangeFetcher (loop thread)  →  batches of the log  →  RecordColumns  →  pyarrow.RecordBatch  →  Spark

While Spark works on a record batch and this thread decodes the next one, the answer behind it is on its way.
Batches are decoded straight into Arrow's buffers; control batches and, for readers of committed records,
aborted transactions are passed over. Small record batches are put together, large ones are cut. Called by the
readers' ``read``, in Python workers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.types import StructType

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import MAGIC_V2
from tidelog.records.column_codec import RecordColumns
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.legacy import batch_of, open_legacy
from tidelog.records.record_codec import decode_records
from tidelog.spark.arrow_rows import ArrowRows, BatchAssembler
from tidelog.spark.fetch_link import FetchLink, link_for
from tidelog.spark.planning import OffsetRange
from tidelog.spark.range_fetcher import Chunk, RangeFetcher, RangeProgress
from tidelog.spark.source_options import SourceOptions

_MAX_ROWS = 1 << 16
_MAX_BYTES = 8 << 20


def read_ranges(
    ranges: Sequence[OffsetRange], options: SourceOptions, schema: StructType, link: FetchLink | None = None
) -> Iterator[Any]:
    """``pyarrow.RecordBatch`` after ``pyarrow.RecordBatch``, in the order of ranges and offsets."""
    link = link or link_for(options.client_for("executor"))
    rows = ArrowRows(options, schema)
    assembler = BatchAssembler()
    for chunk in _chunks(link, ranges, options):
        for columns, count in _decode(chunk, options, check_crcs=link.config.check_crcs):
            yield from assembler.add(rows.to_batch(chunk.range, columns, count))
    yield from assembler.rest()


def _chunks(link: FetchLink, ranges: Sequence[OffsetRange], options: SourceOptions) -> Iterator[Chunk]:
    """What is fetched, with one round of fetches always ahead."""
    fetcher = RangeFetcher(link, options)
    todo = [RangeProgress(each, each.start) for each in ranges]
    ahead = link.submit(fetcher.fetch(todo)) if todo else None
    try:
        while ahead is not None:
            chunks = ahead.result()
            todo = [each for each in todo if not each.is_done]
            ahead = link.submit(fetcher.fetch(todo)) if todo else None
            yield from chunks
    finally:
        if ahead is not None:
            ahead.cancel()


def _decode(chunk: Chunk, options: SourceOptions, *, check_crcs: bool) -> Iterator[tuple[RecordColumns, int]]:
    """The records of a chunk as columns, and how many of the columns' rows lie within the range."""
    hidden = _AbortedTransactions(chunk.aborted) if options.read_committed and chunk.aborted else None
    columns = RecordColumns(with_headers=options.include_headers)
    for at, header in chunk.batches:
        is_aborted = hidden is not None and hidden.hides(header.last_offset, header.producer_id)
        if header.is_control:
            if hidden is not None:
                hidden.marker_seen(chunk.data, at, header.producer_id)
            continue
        if is_aborted and header.is_transactional:
            continue
        try:
            if header.magic == MAGIC_V2:
                columns.append_batch(chunk.data, chunk.start, pos=at, check_crc=check_crcs)
            else:
                message = open_legacy(chunk.data, at, check_crc=check_crcs)
                columns.append_batch(batch_of(message), chunk.start, check_crc=False)
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f"partition {chunk.range.topic_partition}, offset {header.base_offset}: {error}; see "
                "`tidelog log verify` on the broker's data directory"
            ) from error
        if columns.rows >= _MAX_ROWS or columns.size_bytes >= _MAX_BYTES:
            yield columns, _rows_within(columns, chunk.range.end)
            columns = RecordColumns(with_headers=options.include_headers)
    if columns.rows:
        yield columns, _rows_within(columns, chunk.range.end)


def _rows_within(columns: RecordColumns, end: int) -> int:
    offsets = columns.offsets.cast("q")
    return len(offsets) if offsets[-1] < end else bisect_left(offsets, end)


class _AbortedTransactions:
    """Which producers' records are those of an aborted transaction at the current batch."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._upcoming = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._aborting: set[int] = set()

    def hides(self, last_offset: int, producer_id: int) -> bool:
        while self._upcoming and self._upcoming[-1][1] <= last_offset:
            self._aborting.add(self._upcoming.pop()[0])
        return producer_id in self._aborting

    def marker_seen(self, data: memoryview | bytes, at: int, producer_id: int) -> None:
        marker = decode_records(data, pos=at)
        if marker and parse_control_type(marker[0][3]) is ControlType.ABORT:
            self._aborting.discard(producer_id)
