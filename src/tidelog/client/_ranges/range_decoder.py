"""Decodes fetched chunks into columns, some thousand records or some megabytes at once.

Control batches and, for readers of committed records, aborted transactions are passed over. Used by
``spark.read._range_reader`` and ``client.scanning``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from tidelog.client._ranges.range_fetcher import Chunk
from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.errors import CorruptRecordError
from tidelog.records.batch import MAGIC_V2
from tidelog.records.column_codec import RecordColumns
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.legacy import batch_of, open_legacy
from tidelog.records.record_codec import decode_records

_MAX_ROWS = 1 << 16
_MAX_BYTES = 8 << 20


def decode_chunk(
    chunk: Chunk, new_columns: Callable[[], RecordColumns], config: FetchConfig
) -> Iterator[tuple[RecordColumns, int]]:
    """The records of a chunk as columns, and how many of the columns' rows are within the range."""
    hidden = _AbortedTransactions(chunk.aborted) if config.read_committed and chunk.aborted else None
    columns = new_columns()
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
                columns.append_batch(chunk.data, chunk.start, pos=at, check_crc=config.check_crcs)
            else:
                message = open_legacy(chunk.data, at, check_crc=config.check_crcs)
                columns.append_batch(batch_of(message), chunk.start, check_crc=False)
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f"partition {chunk.range.topic_partition}, offset {header.base_offset}: {error}; see "
                "`tidelog log verify` on the broker's data directory"
            ) from error
        if columns.rows >= _MAX_ROWS or columns.size_bytes >= _MAX_BYTES:
            yield columns, _rows_within(columns, chunk.range.end)
            columns = new_columns()
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
