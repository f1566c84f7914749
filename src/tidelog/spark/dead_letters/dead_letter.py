"""Writes dead letters: records that a pipeline could not use, as ``letter`` says.

Letters are made in the tasks that parse (:func:`letter_batch`) and written by a task, exactly once
(``record_sink``); backfills have them as frames, with the columns of Spark's Kafka connector, and look for
those that the topic lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidelog.spark.dead_letters.letter import (
    CARRIED_BYTES,
    DEAD_LETTERS,
    HEADERS,
    LEFT_OUT,
    SEAL,
    SEALED,
    UNCHANGED,
    WHOLE,
    Place,
    Redaction,
    carried_bytes,
    letter_key,
    seal_of,
)
from tidelog.spark.read.packed_headers import unpacked
from tidelog.spark.settings import connector_options
from tidelog.spark.sinks.partition_work import map_in_arrow
from tidelog.spark.sinks.record_sink import RECORD_SCHEMA, RecordSink, single_batch, write_records

if TYPE_CHECKING:
    from tidelog.spark.settings import PipelineSettings

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
    records: pa.RecordBatch,
    codes: pa.Array,
    reasons: pa.Array,
    pipeline: str,
    redaction: Redaction = UNCHANGED,
) -> pa.RecordBatch:
    """The letters of those records that have a code, for a task that has parsed them.

    ``records`` have the columns topic, partition, offset, timestamp, key, value and, where the source was
    asked for them, headers, packed.
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
    for code, reason, topic, partition, offset, time_us, key, value, own in rows:
        place = Place(topic, partition, offset)
        own_pairs = [{"key": name, "value": told} for name, told in unpacked(own)]
        record = _carried(_Carried(WHOLE, key, value, own_pairs), place, redaction, time_us or 0)
        values.append(record.value)
        keys.append(letter_key(pipeline, place, code))
        time_ms = -1 if time_us is None else time_us // _US_PER_MS
        why = redaction.redacted(reason.encode(), time_us or 0)
        told = [*(str(each).encode() for each in (pipeline, *place, time_ms, code)), why]
        ours = zip(HEADERS, (*told, record.how, record.key), strict=True)
        headers.append([*({"key": name, "value": each} for name, each in ours), *record.headers])
    columns = [
        pa.repeat(pa.scalar(DEAD_LETTERS), len(keys)),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers, RECORD_SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


class _Carried(NamedTuple):
    """What a letter has of its record."""

    how: bytes
    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]]

    @property
    def size(self) -> int:
        return carried_bytes(self.key, self.value, ((each["key"], each["value"]) for each in self.headers))


def _carried(record: _Carried, place: Place, redaction: Redaction, time_us: int) -> _Carried:
    """A record as its letter has it: whole, or sealed and with tokens where numbers may be, or not at all."""

    def redacted(data: bytes | None) -> bytes | None:
        return None if data is None else redaction.redacted(data, time_us)

    def name(text: str) -> str:
        return redaction.redacted(text.encode(), time_us).decode()

    told = _Carried(
        SEALED,
        redacted(record.key),
        redacted(record.value),
        [{"key": name(each["key"]), "value": redacted(each["value"])} for each in record.headers],
    )
    if told[1:] == record[1:]:
        told = record
    else:
        own = [(each["key"], each["value"]) for each in record.headers]
        seal = seal_of((record.key, record.value, own), place, redaction, time_us)
        told.headers.append({"key": SEAL, "value": seal})
    return told if told.size <= CARRIED_BYTES else _Carried(LEFT_OUT, None, None, [])


def dead_letters(malformed: DataFrame, pipeline: str, redaction: Redaction = UNCHANGED) -> DataFrame:
    """Turn ``Parsed.malformed`` into records of the dead-letter topic: topic, key, value, headers."""

    def letters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield letter_batch(batch, batch.column("code"), batch.column("reason"), pipeline, redaction)

    return map_in_arrow(malformed, letters, _RECORD)


def write_missing(letters: DataFrame, settings: PipelineSettings, group: str) -> int:
    """Write the letters of a backfill that the stream has not written before; returns how many."""
    sink = RecordSink(settings, single_batch(f"{group}-backfill"))
    return write_records(_not_yet_written(letters, settings), sink)


def _not_yet_written(letters: DataFrame, settings: PipelineSettings) -> DataFrame:
    """The letters whose record has none from the same pipeline in the topic."""
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
