"""Expressions that the two detecting pipelines share: ids, times, events counted once."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def interval(duration: timedelta) -> str:
    """A duration as Spark's windows and watermarks take it."""
    return f"{round(duration.total_seconds() * 1000)} milliseconds"


def time_text(time: Column) -> Column:
    """A time as events have it: UTC, ISO 8601, milliseconds (sessions of pipelines are in UTC)."""
    return F.date_format(time, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def alert_id(*parts: Column | str) -> Column:
    """The same for the same parts, another one for others; 32 hexadecimal digits."""
    texts = [F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts]
    return F.substring(F.sha2(F.concat_ws("\n", *texts), 256), 1, 32)


def computed_once(column: Column) -> Column:
    """The column, so that Spark does not copy its expression into later filters and lambdas.

    There it would be computed again for each element of an array. What Spark holds to be non-deterministic,
    it leaves where it is.
    """
    return F.when(F.spark_partition_id() >= 0, column)


def with_distinct_events(frame: DataFrame, delivered: str, distinct: str) -> DataFrame:
    """Replace the array ``delivered`` by ``distinct``: in the order of time, each event once.

    Its structs begin with ``event_time, event_id, partition, offset``. Deliveries of one event have the same
    time and id, so they are neighbours after sorting, the first delivery first.
    """
    others = [name for name in frame.columns if name != delivered]
    ordered = frame.select(*others, computed_once(F.array_sort(delivered)).alias(delivered))
    before = F.col(delivered)
    first = F.filter(
        before, lambda event, at: (at == 0) | (event["event_id"] != F.get(before, at - 1)["event_id"])
    )
    return ordered.select(*others, computed_once(first).alias(distinct))


def alert_records(alerts: DataFrame, topic: str) -> DataFrame:
    """Alerts as records: the id as key, all columns as a JSON object."""
    return alerts.select(
        F.lit(topic).alias("topic"),
        F.col("alert_id").cast("binary").alias("key"),
        F.to_json(F.struct(*alerts.columns)).cast("binary").alias("value"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
    )
