"""Decoded records as Arrow record batches with the columns that Spark expects.

Keys, values, offsets and headers stay where the codec has put them; times are multiplied (Spark counts in
microseconds) and the topic is repeated from a buffer that is kept. The schema is exactly the one that PySpark
derives from the data source's, which it insists on. Used by ``spark.read._range_reader``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.records.column_codec import BinaryColumn, RecordColumns
from tidelog.spark.read._schema import CORRUPT_VALUE
from tidelog.spark.read._source_options import SourceOptions
from tidelog.spark.read.packed_headers import packed

_ENOUGH_ROWS = 8192
_ENOUGH_BYTES = 1 << 20
_US_PER_MS = pa.scalar(1000, pa.int64())


class ArrowRows:
    """Makes record batches for one schema."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._packs_headers = options.packed_headers
        self._json = None
        if options.value_format == "json":
            from tidelog.spark.read._json_values import JsonValues

            self._json = JsonValues(schema["value"].dataType, self._schema.field("value").type)
        self._topics: dict[str, Any] = {}

    def to_batch(self, source: OffsetRange, columns: RecordColumns, rows: int) -> Any:
        """The first ``rows`` records of ``columns``, which must not be added to afterwards."""
        total = columns.rows
        timestamps = pc.multiply(_numbers(pa.int64(), total, columns.timestamps), _US_PER_MS)
        arrays = {
            "key": _binary(pa.binary(), columns.keys),
            "topic": self._topic(source.topic, total),
            "partition": _numbers(pa.int32(), total, source.partition.to_bytes(4, sys.byteorder) * total),
            "offset": _numbers(pa.int64(), total, columns.offsets),
            "timestamp": timestamps.view(self._schema.field("timestamp").type),
            "timestampType": _numbers(pa.int8(), total, columns.timestamp_types).cast(pa.int32()),
        }
        if columns.with_headers:
            arrays["headers"] = self._headers(columns)
        if self._json is not None:
            values = _binary(pa.binary(), columns.values)
            arrays["value"], arrays[CORRUPT_VALUE] = self._json.parse(values)
        else:
            arrays["value"] = _binary(self._schema.field("value").type, columns.values)
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)
        return batch if rows == total else batch.slice(0, rows)

    def _topic(self, topic: str, rows: int) -> Any:
        known = self._topics.get(topic)
        if known is None or len(known) < rows:
            known = self._topics[topic] = pa.repeat(pa.scalar(topic, pa.string()), max(rows, _ENOUGH_ROWS))
        return known.slice(0, rows)

    def _headers(self, columns: RecordColumns) -> Any:
        kind = self._schema.field("headers").type
        names, values = _binary(pa.string(), columns.header_keys), _binary(pa.binary(), columns.header_values)
        if self._packs_headers:
            return packed(names, values, columns.header_ends.cast("B").cast("i").tolist())
        pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
        ends = pa.py_buffer(columns.header_ends)
        lists = pa.Array.from_buffers(kind, columns.rows, [None, ends], 0, children=[pairs])
        # Spark's connector has no list, rather than an empty one, where a record has no headers.
        there = pc.greater(pc.list_value_length(lists), 0)
        missing = columns.rows - there.true_count
        if not missing:
            return lists
        return pa.Array.from_buffers(
            kind, columns.rows, [there.buffers()[1], ends], missing, children=[pairs]
        )


class BatchAssembler:
    """Puts small record batches together: each one costs Spark more than some thousand rows do."""

    def __init__(self) -> None:
        self._small: list[Any] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: Any) -> Iterator[Any]:
        """What is ready to go, in order."""
        if not batch.num_rows:
            return
        if not self._small and (batch.num_rows >= _ENOUGH_ROWS or batch.nbytes >= _ENOUGH_BYTES):
            yield batch
            return
        self._small.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _ENOUGH_ROWS or self._bytes >= _ENOUGH_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Any]:
        """What is left."""
        small, self._small = self._small, []
        self._rows = self._bytes = 0
        if len(small) == 1:
            yield small[0]
        elif small:
            yield from pa.Table.from_batches(small).combine_chunks().to_batches()


def _numbers(kind: Any, rows: int, buffer: bytes | memoryview) -> Any:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffer)], 0)


def _binary(kind: Any, column: BinaryColumn) -> Any:
    buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in column.buffers()]
    return pa.Array.from_buffers(kind, column.rows, buffers, column.null_count)
