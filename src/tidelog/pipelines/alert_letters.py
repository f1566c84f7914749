"""What a detecting pipeline writes of single records: dead letters, and whatever it makes of events.

One pass over the records of a micro-batch, by one Arrow UDF that gives finished rows. Letters are those of
:mod:`tidelog.pipelines.dead_letter`, byte for byte. Called by the jobs of account-switch and invite-fraud.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from tidelog.pipelines.alert_windows import HEADERS
from tidelog.pipelines.event_parser import parser_of
from tidelog.pipelines.events import DEAD_LETTERS, EventKind
from tidelog.pipelines.parsing import RECORD_COLUMNS

EventValues = Callable[[pa.StructArray, pa.Array, pa.Array], list[bytes | None]]
"""What is made of events: parsed events, partitions, offsets → values, None where there is no event."""

_RECORD = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("headers", HEADERS),
    ]
)
_ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def letters(raw: DataFrame, kind: EventKind, pipeline: str) -> DataFrame:
    """The dead letters among records of one kind: ``topic``, ``key``, ``value``, ``headers``."""
    return _rows(raw, kind, pipeline, None).where(F.col("topic").isNotNull())


def values_and_letters(raw: DataFrame, kind: EventKind, pipeline: str, values: EventValues) -> DataFrame:
    """The dead letters, and ``value`` of each event in a row without a topic."""
    return _rows(raw, kind, pipeline, values)


def _rows(raw: DataFrame, kind: EventKind, pipeline: str, values: EventValues | None) -> DataFrame:
    def rows(*columns: pa.Array) -> pa.Array:
        return letter_rows(dict(zip(RECORD_COLUMNS, columns, strict=True)), kind, pipeline, values)

    made = arrow_udf(rows, _RECORD).asNondeterministic()  # type: ignore[call-overload]
    return raw.select(made(*RECORD_COLUMNS).alias("_row")).select("_row.*")


def letter_rows(
    records: dict[str, pa.Array], kind: EventKind, pipeline: str, values: EventValues | None = None
) -> pa.StructArray:
    """The letter of each record that is no event; the others have nulls but for what ``values`` makes."""
    parsed = parser_of((kind,), kind).columns(records["topic"], records["value"], records["timestamp"])
    reasons = parsed.field("reason")
    made: list[bytes | None] = [None] * len(reasons)
    if values is not None:
        made = values(parsed, records["partition"], records["offset"])
    topics: list[str | None] = [None] * len(reasons)
    keys: list[bytes | None] = [None] * len(reasons)
    headers: list[list[dict[str, Any]] | None] = [None] * len(reasons)
    for at, reason in enumerate(reasons.to_pylist()):
        if reason is not None:
            topics[at] = DEAD_LETTERS
            keys[at], made[at] = records["key"][at].as_py(), records["value"][at].as_py()
            place = {name: records[name][at].as_py() for name in ("topic", "partition", "offset")}
            headers[at] = _headers({"pipeline": pipeline, **place, "reason": reason})
    columns = [
        pa.array(topics, pa.string()),
        pa.array(keys, pa.binary()),
        pa.array(made, pa.binary()),
        pa.array(headers, _ARROW_HEADERS),
    ]
    return pa.StructArray.from_arrays(columns, names=["topic", "key", "value", "headers"])


def _headers(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": str(value).encode()} for name, value in told.items()]
