"""Dead letters: records that a pipeline could not use, as they came, with headers that say where and why.

The headers are ``pipeline``, ``topic``, ``partition``, ``offset`` and ``reason``, in this order, all text in
UTF-8: `tidelog consume ml_dead_letters` shows them, and a mended record can be sent again to its topic. A
pipeline writes one letter for a record, however often it meets it. Letters are made in the tasks that parse
(:func:`letter_batch`) and written by a task (``record_sink``); backfills have them as frames, with the
columns of Spark's Kafka connector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelog.pipelines.framework.events import DEAD_LETTERS
from tidelog.pipelines.framework.record_sink import RECORD_SCHEMA
from tidelog.pipelines.framework.source import connector_options

if TYPE_CHECKING:
    from tidelog.pipelines.pipeline import PipelineSettings

_PLACE = ("topic", "partition", "offset")
_NAMES_THE_RECORD = 4
"""So many headers, from the first, say which record it is for which pipeline."""


def letter_batch(records: pa.RecordBatch, reasons: pa.Array, pipeline: str) -> pa.RecordBatch:
    """The letters of those records that have a reason, for a task that has parsed them.

    ``records`` have the columns topic, partition, offset, key and value.
    """
    malformed = records.filter(pc.is_valid(reasons))
    told = {
        "pipeline": [pipeline] * malformed.num_rows,
        **{name: malformed.column(name).to_pylist() for name in _PLACE},
        "reason": reasons.drop_null().to_pylist(),
    }
    headers = [
        [{"key": name, "value": str(value).encode()} for name, value in zip(told, values, strict=True)]
        for values in zip(*told.values(), strict=True)
    ]
    columns = {
        "topic": [DEAD_LETTERS] * malformed.num_rows,
        "key": malformed.column("key"),
        "value": malformed.column("value"),
        "headers": headers,
    }
    arrays = [pa.array(columns[field.name], field.type) for field in RECORD_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def dead_letters(malformed: DataFrame, pipeline: str) -> DataFrame:
    """Turn ``Parsed.malformed`` into records of the dead-letter topic: topic, key, value, headers."""
    return malformed.select(
        F.lit(DEAD_LETTERS).alias("topic"), "key", "value", dead_letter_headers(pipeline).alias("headers")
    )


def dead_letter_headers(pipeline: str) -> Column:
    """The headers, from the columns topic, partition, offset and reason."""
    return F.array(
        _header("pipeline", F.lit(pipeline)),
        *(_header(name, F.col(name)) for name in ("topic", "partition", "offset", "reason")),
    )


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


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def _record_of(headers: Column) -> Column:
    first = F.slice(headers, 1, _NAMES_THE_RECORD)
    return F.array_join(F.transform(first, lambda header: header["value"].cast("string")), "/")
