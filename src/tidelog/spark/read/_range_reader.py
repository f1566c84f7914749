"""Executor side: the records of a task's offset ranges as Arrow record batches.

    RangeFetcher (loop thread)  →  batches of the log  →  RecordColumns  →  pyarrow.RecordBatch  →  Spark

While Spark works on a record batch and this thread decodes the next one, the answer behind it is on its way.
Batches are decoded straight into Arrow's buffers; control batches and, for readers of committed records,
aborted transactions are passed over. Small record batches are put together, large ones are cut. Called by the
readers' ``read``, in Python workers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.types import StructType

from tidelog.client._ranges.fetch_link import FetchLink, link_for
from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.client._ranges.range_decoder import decode_chunk
from tidelog.client._ranges.range_fetcher import Chunk, RangeFetcher, RangeProgress
from tidelog.records.column_codec import RecordColumns
from tidelog.spark.read._arrow_rows import ArrowRows, BatchAssembler
from tidelog.spark.read._source_options import SourceOptions


def read_ranges(
    ranges: Sequence[OffsetRange], options: SourceOptions, schema: StructType, link: FetchLink | None = None
) -> Iterator[Any]:
    """``pyarrow.RecordBatch`` after ``pyarrow.RecordBatch``, in the order of ranges and offsets."""
    link = link or link_for(options.client_for("executor"))
    rows = ArrowRows(options, schema)
    assembler = BatchAssembler()
    new_columns = functools.partial(RecordColumns, with_headers=options.include_headers)
    for chunk in _chunks(link, ranges, options):
        for columns, count in decode_chunk(chunk, new_columns, link.config):
            yield from assembler.add(rows.to_batch(chunk.range, columns, count))
    yield from assembler.rest()


def _chunks(link: FetchLink, ranges: Sequence[OffsetRange], options: SourceOptions) -> Iterator[Chunk]:
    """What is fetched, with one round of fetches always ahead."""
    fetcher = RangeFetcher(link, options.range_settings())
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
