"""Writes dead letters: records that a pipeline could not use, as ``letter`` says.

Letters are made in the tasks that parse (:func:`letter_batch`) and written by a task, exactly once
(``record_sink``); backfills have them as frames, with the columns of Spark's Kafka connector, and look for
those that the topic lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidelog.pipelines.framework.events import DEAD_LETTERS
from tidelog.pipelines.framework.letter import CARRIED_BYTES, HEADERS, LEFT_OUT, WHOLE, letter_key
from tidelog.pipelines.framework.record_sink import RECORD_SCHEMA
from tidelog.pipelines.framework.sinks.partition_work import map_in_arrow
from tidelog.pipelines.framework.source import connector_options

if TYPE_CHECKING:
    from tidelog.pipelines.pipeline import PipelineSettings

_PLACE = ("topic", "partition", "offset")
_NAMES_THE_RECORD = 4
"""So many headers, from the first, say which record it is for which pipeline."""
_US_PER_MS = 1000
_HEADER = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
_RECORD = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("headers", T.ArrayType(_HEADER)),
    ]
)


def letter_batch(
    records: pa.RecordBatch, codes: pa.Array, reasons: pa.Array, pipeline: str
) -> pa.RecordBatch:
    """The letters of those records that have a code, for a task that has parsed them.

    ``records`` have the columns topic, partition, offset, timestamp, key, value and, where the source was
    asked for them, headers.
    """
    malformed = records.filter(pc.is_valid(codes))
    has_headers = "headers" in malformed.schema.names
    own_headers = malformed.column("headers").to_pylist() if has_headers else [None] * malformed.num_rows
    rows = zip(
        codes.drop_null().to_pylist(),
        reasons.filter(pc.is_valid(codes)).to_pylist(),
        *(malformed.column(name).to_pylist() for name in _PLACE),
        malformed.column("timestamp").cast(pa.int64()).to_pylist(),
        malformed.column("key").to_pylist(),
        malformed.column("value").to_pylist(),
        own_headers,
        strict=True,
    )
    keys: list[bytes] = []
    values: list[bytes | None] = []
    headers: list[list[dict[str, Any]]] = []
    for code, reason, *place, time_us, key, value, own in rows:
        carried = WHOLE
        if _size(key, value, own) > CARRIED_BYTES:
            carried, key, value, own = LEFT_OUT, None, None, None
        values.append(value)
        keys.append(letter_key(pipeline, place, code))
        time_ms = -1 if time_us is None else time_us // _US_PER_MS
        told = [str(each).encode() for each in (pipeline, *place, time_ms, code, reason)]
        ours = zip(HEADERS, (*told, carried, key), strict=True)
        headers.append([*({"key": name, "value": each} for name, each in ours), *(own or ())])
    columns = [
        pa.repeat(pa.scalar(DEAD_LETTERS), len(keys)),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers, RECORD_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _size(key: bytes | None, value: bytes | None, headers: list[dict[str, Any]] | None) -> int:
    own = sum(len(each["key"]) + len(each["value"] or b"") for each in headers or ())
    return len(key or b"") + len(value or b"") + own


def dead_letters(malformed: DataFrame, pipeline: str) -> DataFrame:
    """Turn ``Parsed.malformed`` into records of the dead-letter topic: topic, key, value, headers."""

    def letters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield letter_batch(batch, batch.column("code"), batch.column("reason"), pipeline)

    return map_in_arrow(malformed, letters, _RECORD)


def not_yet_written(letters: DataFrame, settings: PipelineSettings) -> DataFrame:
    """The letters whose record has none from the same pipeline in the topic: for backfills."""
    options = {
        **connector_options(settings),
        "subscribe": DEAD_LETTERS,
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    written = letters.sparkSession.read.format(settings.format).options(**options).load()
    known = written.select(_record_of(F.col("headers")).alias("_record")).distinct()
    named = letters.withColumn("_record", _record_of(F.col("headers")))
    return named.join(known, "_record", "left_anti").drop("_record")


def _record_of(headers: Column) -> Column:
    first = F.slice(headers, 1, _NAMES_THE_RECORD)
    return F.array_join(F.transform(first, lambda header: header["value"].cast("string")), "/")
