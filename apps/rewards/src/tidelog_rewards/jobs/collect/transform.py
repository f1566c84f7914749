"""Records to rows of the tables and dead letters; pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelog.spark.dead_letters.dead_letter import dead_letters
from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.sinks.partition_work import map_in_arrow
from tidelog_rewards.events import LOGS
from tidelog_rewards.jobs.collect import task_work
from tidelog_rewards.parsing import RECORD_COLUMNS, parse_all
from tidelog_rewards.phones.phone_tokens import PhonesWritten

SECONDS_PER_DAY = 86_400


def rows(raw: DataFrame) -> DataFrame:
    """Every record once: an event with ``kind``, its fields and its ``date``, or one with a ``reason``."""
    parsed = parse_all(raw, LOGS).rows
    # Spark's own functions for dates go by the session's time zone; the day is UTC's.
    day = F.floor(F.unix_seconds("event_time") / SECONDS_PER_DAY).cast("int")
    return parsed.withColumn("date", F.date_from_unix_date(day).cast("string"))


def events_of(parsed: DataFrame) -> DataFrame:
    """The rows for the tables; ``kind`` names each one's."""
    return parsed.where(F.col("reason").isNull()).drop(
        "key", "value", "headers", "timestamp", "code", "reason"
    )


def in_range(parsed: DataFrame, time_range: TimeRange) -> DataFrame:
    """The events of a range of time, and what is no event among the records that were written in it."""
    when = F.when(F.col("reason").isNull(), F.col("event_time")).otherwise(F.col("timestamp"))
    return parsed.where((when >= F.lit(time_range.start)) & (when < F.lit(time_range.end)))


def with_tokens(parsed: DataFrame, phones: PhonesWritten) -> DataFrame:
    """The same rows with what stands for phone numbers, written in tasks."""

    def replaced(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            at = batch.schema.get_field_index("phone")
            tokens = task_work.with_tokens(batch.column("phone"), batch.column("event_time"), phones)
            yield batch.set_column(at, batch.schema.field(at), tokens)

    return map_in_arrow(parsed, replaced, parsed.schema)


def letters_of(parsed: DataFrame, pipeline: str, phones: PhonesWritten) -> DataFrame:
    """The dead letters."""
    malformed = parsed.where(F.col("reason").isNotNull()).select(*RECORD_COLUMNS, "code", "reason")
    return dead_letters(malformed, pipeline, phones)
