"""One pass over the records of a scan: partition after partition, in the order of their offsets.

    ScanSource.snapshot → Pruner → RangeFetcher (loop thread) → decode_chunk → filter → projection → slices

While the caller works on a record batch the next answer is on its way, unless a limit makes it unlikely to be
needed. Answers are small at first, for readers that stop early. Memory: about twice ``fetch.max.bytes`` for
each broker, and one record batch. Connections are opened when the first row is requested and closed with the
generator. Used by ``topic_scan``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tidelog.client._offsets import list_offsets
from tidelog.client._ranges.fetch_link import FetchLink
from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.client._ranges.range_decoder import decode_chunk
from tidelog.client._ranges.range_fetcher import Chunk, RangeFetcher, RangeProgress
from tidelog.client.scanning._pruning import Pruner, mentions
from tidelog.client.scanning._scan_source import ScanSource
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.records.arrow import arrow_schema, to_arrow
from tidelog.records.column_codec import RecordColumns

SCHEMA: pa.Schema = arrow_schema(with_headers=True)
"""All columns of a scan."""

_FIRST_BYTES = 256 << 10
_GROWTH = 4
_LIMIT_SLACK_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a pass reads: the rows that ``where`` keeps, at most ``limit``; of these what ``filter`` keeps."""

    columns: Sequence[str] | dict[str, Any]
    where: Any = None
    limit: int | None = None
    filter: Any = None
    batch_size: int

    def uses(self, name: str) -> bool:
        """Whether a column has to be decoded."""
        conditions = [each for each in (self.where, self.filter) if each is not None]
        if isinstance(self.columns, dict):
            conditions += self.columns.values()
        elif name in self.columns:
            return True
        return any(mentions(each, name) for each in conditions)

    def limited(self, rows: int) -> Request:
        """The same, with at most so many rows of its result where that can be decided before ``filter``."""
        if self.limit is None:
            return replace(self, where=self.pruning, filter=None, limit=rows)
        return self if self.filter is not None else replace(self, limit=min(rows, self.limit))

    @property
    def pruning(self) -> Any:
        """The condition that every row satisfies: ``filter`` may only prune where no limit comes first."""
        parts = [self.where, None if self.limit is not None else self.filter]
        given = [each for each in parts if each is not None]
        return None if not given else given[0] if len(given) == 1 else given[0] & given[1]


def read(source: ScanSource, request: Request) -> Iterator[pa.RecordBatch]:
    """The rows, in record batches."""
    if request.limit == 0:
        return
    link = source.open_link()
    try:
        yield from _Pass(source, request, link).batches()
    finally:
        link.close()


class _Pass:
    def __init__(self, source: ScanSource, request: Request, link: FetchLink) -> None:
        self._source = source
        self._request = request
        self._link = link
        self._fetcher = RangeFetcher(link, source.range_settings())
        self._names = [name for name in SCHEMA.names if request.uses(name)]
        if not self._names:
            self._names = ["offset"]  # rows are counted by it
        self._left = request.limit
        self._next_bytes = _FIRST_BYTES
        source.statistics.add(passes=1)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks(self._ranges()):
            for batch in self._decode(chunk):
                for start in range(0, batch.num_rows, self._request.batch_size):
                    part = batch.slice(start, self._request.batch_size)
                    self._source.statistics.add(returned_rows=part.num_rows)
                    yield part
                if self._left == 0:
                    return

    # Which offsets

    def _ranges(self) -> list[OffsetRange]:
        ranges = [each for each in self._source.snapshot(self._link) if each.size]
        condition = self._request.pruning
        if condition is None:
            return ranges
        pruner = Pruner(condition, SCHEMA)
        kept = set(pruner.partitions([each.partition for each in ranges]))
        pruned = []
        for each in ranges:
            if each.partition in kept:
                start, end = pruner.offsets(each.partition, each.start, each.end)
                pruned.append(each._replace(start=start, end=end))
        return self._prune_times([each for each in pruned if each.size], pruner)

    def _prune_times(self, ranges: list[OffsetRange], pruner: Pruner) -> list[OffsetRange]:
        """Begin each range at the first record that is not too early, which its broker finds."""
        wanted = {each.topic_partition: pruner.earliest_ms(each.partition) for each in ranges}
        first = self._offsets_for({each: time for each, time in wanted.items() if time > 0})
        pruned = []
        for each in ranges:
            start = first.get(each.topic_partition, each.start)
            if start != NO_OFFSET and start < each.end:
                pruned.append(each._replace(start=max(start, each.start)))
        return pruned

    def _offsets_for(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not times:
            return {}
        found = self._link.submit(list_offsets(self._link.cluster, times)).result()
        for result in found.values():
            result.raise_for_error()
        return {partition: result.offset for partition, result in found.items()}

    # Fetching

    def _chunks(self, ranges: Sequence[OffsetRange]) -> Iterator[Chunk]:
        """What is fetched, in the order of the ranges; what comes of later ones meanwhile waits."""
        order = {each.partition: place for place, each in enumerate(ranges)}
        open_ranges = [RangeProgress(each, each.start) for each in ranges]
        waiting: list[Chunk] = []
        ahead: Future[list[Chunk]] | None = None
        try:
            while open_ranges or waiting:
                if ahead is None and open_ranges:
                    ahead = self._fetch(open_ranges, alone=bool(waiting))
                fetched = ahead.result() if ahead is not None else []
                ahead = None
                open_ranges = [each for each in open_ranges if not each.is_done]
                chunks = sorted(waiting + fetched, key=lambda chunk: order[chunk.range.partition])
                last = order[open_ranges[0].range.partition] if open_ranges else len(order)
                ready = [chunk for chunk in chunks if order[chunk.range.partition] <= last]
                waiting = chunks[len(ready) :]
                if open_ranges and self._needs_more(ready):
                    ahead = self._fetch(open_ranges, alone=bool(waiting))
                yield from ready
        finally:
            if ahead is not None:
                ahead.cancel()

    def _needs_more(self, ready: Sequence[Chunk]) -> bool:
        """Whether these chunks cannot be all that is returned."""
        if self._left is None or self._request.where is not None:
            return self._left is None
        offsets = sum(chunk.batches[-1][1].next_offset - chunk.start for chunk in ready if chunk.batches)
        return offsets < self._left

    def _fetch(self, ranges: list[RangeProgress], *, alone: bool) -> Future[list[Chunk]]:
        size = self._next_bytes
        self._next_bytes = min(size * _GROWTH, self._link.config.max_bytes)
        if self._left is not None and self._request.where is None:
            rows_bytes = self._left * self._link.record_bytes(self._source.topic)
            size = min(size, int(rows_bytes) + _LIMIT_SLACK_BYTES)
        wanted = ranges[:1] if alone else ranges

        async def fetch() -> list[Chunk]:
            chunks = await self._fetcher.fetch(wanted, size)
            self._source.statistics.add(fetched_bytes=sum(len(chunk.data) for chunk in chunks))
            return chunks

        return self._link.submit(fetch())

    # Decoding

    def _decode(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        names, request = self._names, self._request
        new_columns = functools.partial(
            RecordColumns,
            with_headers="headers" in names,
            with_keys="key" in names,
            with_values="value" in names,
        )
        for columns, count in decode_chunk(chunk, new_columns, self._link.config):
            self._source.statistics.add(decoded_records=columns.rows, decoded_bytes=columns.size_bytes)
            batch = to_arrow(*chunk.range.topic_partition, columns, names).slice(0, count)
            if request.where is not None:
                batch = _one_batch(pa.Table.from_batches([batch]).filter(request.where))
            if self._left is not None:
                batch = batch.slice(0, self._left)
                self._left -= batch.num_rows
            batch = self._project(batch)
            if batch.num_rows:
                yield batch
            if self._left == 0:
                return

    def _project(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns, condition = self._request.columns, self._request.filter
        if isinstance(columns, dict):
            table = pa.Table.from_batches([batch])
            return _one_batch(ds.dataset(table).to_table(columns=columns, filter=condition))
        if condition is not None:
            batch = _one_batch(pa.Table.from_batches([batch]).filter(condition))
        return batch.select(list(columns))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table, as one batch also where there are none."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
