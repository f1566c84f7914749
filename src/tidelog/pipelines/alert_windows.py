"""Windows of events to alerts as records, by a scoring function in Python; pure DataFrame to DataFrame.

The state of a detecting query is a list of events per subject and window. What is to be said about such a
list is a plain function, applied by one Arrow UDF. As expressions of Spark (lambdas over arrays) the same
rules made plans so large that the JVM was busy for seconds planning and compiling before the first alert.

Called by the ``transform`` of account-switch and invite-fraud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf

from tidelog.pipelines.alert_evidence import Window

EventT = TypeVar("EventT")
Score = Callable[[Any, Window, Iterable[EventT]], msgspec.Struct | None]
"""What a subject's events in a window are: an alert, whose first field is its id, or nothing."""

HEADERS = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
)
_ALERT = T.StructType([T.StructField("key", T.BinaryType()), T.StructField("value", T.BinaryType())])


def interval(duration: timedelta) -> str:
    """A duration as Spark's windows and watermarks take it."""
    return f"{round(duration.total_seconds() * 1000)} milliseconds"


def alert_records(
    windows: DataFrame, subject: str, event: Callable[..., EventT], score: Score[EventT], topic: str
) -> DataFrame:
    """Alerts as records of ``topic``: their id as key, a JSON object as value.

    ``windows`` have the column ``subject``, ``window`` and ``delivered``, an array of structs whose fields
    are the arguments of ``event``, times in microseconds. The UDF counts as non-deterministic for Spark's
    optimizer, which otherwise may apply it twice, to find the alerts and to write them.
    """

    def alerts(subjects: pa.Array, times: pa.Array, delivered: pa.Array) -> pa.Array:
        return scored(subjects, times, delivered, event, score)

    found = arrow_udf(alerts, _ALERT).asNondeterministic()  # type: ignore[call-overload]
    alert = windows.select(found(subject, "window", "delivered").alias("_alert"))
    return alert.where(F.col("_alert.key").isNotNull()).select(
        F.lit(topic).alias("topic"), "_alert.key", "_alert.value", F.lit(None).cast(HEADERS).alias("headers")
    )


def scored(
    subjects: pa.Array,
    times: pa.StructArray,
    delivered: pa.ListArray,
    event: Callable[..., EventT],
    score: Score[EventT],
) -> pa.StructArray:
    """``key`` and ``value`` of the alert of each window, null where there is none."""
    starts_us, ends_us = (_plain(times.field(name)) for name in ("start", "end"))
    events = list(map(event, *(_plain(field) for field in delivered.flatten().flatten())))
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    at = 0
    for subject, start_us, end_us, length in zip(
        subjects.to_pylist(), starts_us, ends_us, delivered.value_lengths().to_pylist(), strict=True
    ):
        alert = score(subject, Window(start_us, end_us), events[at : at + length])
        at += length
        keys.append(None if alert is None else str(msgspec.structs.astuple(alert)[0]).encode())
        values.append(None if alert is None else msgspec.json.encode(alert))
    return pa.StructArray.from_arrays(
        [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], names=["key", "value"]
    )


def _plain(column: pa.Array) -> list[Any]:
    """The values of a column, times as microseconds since 1970."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
