"""How pipelines read their topics: as a stream with visible progress, or a range of time as one batch.

Both give the columns of Spark's Kafka connector (key, value, topic, partition, offset, timestamp,
timestampType, headers), from either connector. Headers are for dead letters, which carry the whole record.
Called by the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidelog.spark.pipelines.pipeline import Pipeline, TimeRange
from tidelog.spark.settings import PipelineSettings, connector_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EARLY_SLACK = timedelta(days=1)
"""A record is written at most so long before the time its event tells: ``parsing`` refuses the others."""


def read_stream(
    session: SparkSession, settings: PipelineSettings, pipeline: Pipeline, topics: Iterable[str]
) -> DataFrame:
    """The records of some topics as they come; the pipeline's group shows how far it is."""
    options = {
        **connector_options(settings),
        "subscribe": ",".join(topics),
        "startingOffsets": settings.starting_offsets,
        "kafka.isolation.level": "read_committed",
        **with_headers(settings),
        **_parallelism(settings),
    }
    if settings.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    if settings.format == "tidelog":
        options["commitGroup"] = pipeline.group
    return with_packed_headers(session.readStream.format(settings.format).options(**options).load())


def read_range(
    session: SparkSession, settings: PipelineSettings, topics: Sequence[str], time_range: TimeRange
) -> DataFrame:
    """The records that may hold events of a range of time; the caller filters by ``event_time``.

    Records are found by their own timestamps, from a day before the range for clocks that run ahead to the
    end of the log, since an event may be delivered at any time after it happened.
    """
    options = {
        **connector_options(settings),
        "subscribe": ",".join(topics),
        "startingTimestamp": _millis(time_range.start - EARLY_SLACK),
        "startingOffsetsByTimestampStrategy": "latest",
        "kafka.isolation.level": "read_committed",
        **with_headers(settings),
        **_parallelism(settings),
    }
    return with_packed_headers(session.read.format(settings.format).options(**options).load())


def with_headers(settings: PipelineSettings) -> dict[str, str]:
    """Only dead letters have a use for headers: as lists they would cost as much as all the rest."""
    return {"includeHeaders": "true", "headersFormat": "packed"} if settings.format == "tidelog" else {}


def with_packed_headers(records: DataFrame) -> DataFrame:
    """Spark's own connector has no such column: its letters are without the headers of their records."""
    from pyspark.sql import functions as F

    if "headers" in records.columns:
        return records
    return records.withColumn("headers", F.lit(None).cast("binary"))


def _parallelism(settings: PipelineSettings) -> dict[str, str]:
    return {} if settings.min_partitions is None else {"minPartitions": str(settings.min_partitions)}


def _millis(moment: datetime) -> str:
    return str(max(0, round(moment.timestamp() * 1000)))
