"""Turns records into typed events, and what is no event into rows with a reason; pure DataFrame to DataFrame.

A record is parsed once, by an Arrow UDF over ``event_parser``. As expressions of Spark the same rules made
plans so large that the JVM spent most of its first half minute planning and compiling.

The rules, beside those that ``events`` gives for each field:

* The value is exactly one JSON object in UTF-8: nothing behind it, no comments, no byte order mark. Of a key
  that occurs twice the last counts, as JSON parsers have it. A tombstone (null) and an empty value are
  malformed.
* Unknown fields are ignored. A field of another kind of event is unknown.
* ``null`` is the same as absent. Required strings are not empty, and no string is longer than
  :data:`MAX_STRING_CHARS` (Cassandra's keys end at 64 KB).
* Types are strict: ``"5"`` is no number, ``5`` is no string, and ``5.0`` and ``5e0`` are not whole numbers.
* A time has a date, a time of day with at most microseconds, and a zone (``Z`` or ``+09:00``). It lies
  after 1999 and at most a day after the record's own timestamp, for clocks that are wrong.

Called by every pipeline: directly when its output is computed row by row, with ``events`` and ``malformed``
when it filters. The UDF counts as non-deterministic for Spark's optimizer, which otherwise may push a filter
below it and parse every record twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from tidelog_rewards.event_parser import MAX_STRING_CHARS as MAX_STRING_CHARS
from tidelog_rewards.event_parser import parser_of, wide_fields
from tidelog_rewards.events import EventKind, FieldType

if TYPE_CHECKING:
    from tidelog.spark.pipelines.pipeline import TimeRange

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

_SPARK_TYPES: dict[FieldType, T.DataType] = {
    "string": T.StringType(),
    "long": T.LongType(),
    "boolean": T.BooleanType(),
    "time": T.TimestampType(),
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of a parsed frame: all of them, the good ones, the others.

    ``rows`` has the columns of the record (:data:`RECORD_COLUMNS`), ``kind``, the fields of all kinds asked
    for (null where they belong to another kind), and ``code`` and ``reason``, which are null for an event.
    Use it where one pass must give both results and dead letters.
    """

    rows: DataFrame
    kinds: tuple[EventKind, ...]

    @property
    def events(self) -> DataFrame:
        """``topic``, ``partition``, ``offset``, ``timestamp``, ``kind`` and the typed fields."""
        return self.rows.where(F.col("reason").isNull()).drop("key", "value", "headers", "code", "reason")

    @property
    def malformed(self) -> DataFrame:
        """The record's columns, ``code`` and ``reason``."""
        return self.rows.where(F.col("reason").isNotNull()).select(*RECORD_COLUMNS, "code", "reason")


def event_schema(kind: EventKind) -> T.StructType:
    """The fields of a kind of event as Spark types them."""
    return T.StructType(
        [T.StructField(field.name, _SPARK_TYPES[field.type], not field.required) for field in kind.fields]
    )


def parse(raw: DataFrame, kind: EventKind) -> Parsed:
    """Parse records of one kind, whatever their topic is called."""
    return _parse(raw, (kind,), kind)


def parse_all(raw: DataFrame, kinds: Iterable[EventKind]) -> Parsed:
    """Parse records of several kinds, told apart by their topic, into one wide row."""
    return _parse(raw, tuple(kinds), None)


def malformed_in(rows: DataFrame, time_range: TimeRange) -> DataFrame:
    """Of parsed rows the records that are no events and were written in a range of time."""
    written = F.col("timestamp")
    within = (written >= F.lit(time_range.start)) & (written < F.lit(time_range.end))
    return rows.where(F.col("reason").isNotNull() & within).select(*RECORD_COLUMNS, "code", "reason")


def of_kind(events: DataFrame, kind: EventKind) -> DataFrame:
    """The events of one kind out of a wide frame, with its own fields only."""
    position = [F.col(name) for name in ("topic", "partition", "offset", "timestamp")]
    fields = [F.col(field.name) for field in kind.fields]
    return events.where(F.col("kind") == kind.name).select(*fields, *position)


def _parse(raw: DataFrame, kinds: tuple[EventKind, ...], only: EventKind | None) -> Parsed:
    def columns(topics: pa.Array, values: pa.Array, timestamps: pa.Array) -> pa.Array:
        return parser_of(kinds, only).columns(topics, values, timestamps)

    wide = wide_fields(kinds)
    fields = [T.StructField(name, _SPARK_TYPES[type_]) for name, type_ in wide.items()]
    text = T.StringType()
    why = [T.StructField(name, text) for name in ("code", "reason")]
    result = T.StructType([T.StructField("kind", text), *fields, *why])
    parsed = arrow_udf(columns, result).asNondeterministic()  # type: ignore[call-overload]
    if "headers" not in raw.columns:  # a source that was not asked for them
        raw = raw.withColumn("headers", F.lit(None).cast("binary"))
    rows = raw.select(*RECORD_COLUMNS, parsed("topic", "value", "timestamp").alias("_event"))
    return Parsed(rows.select(*RECORD_COLUMNS, "_event.*"), kinds)
