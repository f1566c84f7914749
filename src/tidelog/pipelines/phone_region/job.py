"""phone-region as a job: events with phone numbers → enriched events in a topic, and the table of users.

A micro-batch is computed once and kept while both outputs are written: records and dead letters together,
exactly once by the batch's number, then the users' rows, of which the newest by event time stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.pipelines import events
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "phone-region"
_INPUTS = (events.LOGIN.topic, events.MESSAGE_VERIFICATION.topic, events.INVITE.topic)


def _start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    from tidelog.pipelines.phone_region.transform import enrich
    from tidelog.pipelines.query import start_query
    from tidelog.pipelines.source import read_stream

    _prepare(settings)
    stream = enrich(read_stream(session, settings, PIPELINE, PIPELINE.inputs))
    return start_query(stream.writeStream.foreachBatch(_taking(settings)), settings, NAME)


def _prepare(settings: PipelineSettings) -> None:
    """A source does not start without its topics."""
    from tidelog.pipelines.topics import ensure_topics

    ensure_topics(settings, (*PIPELINE.inputs, events.USER_REGIONS, events.DEAD_LETTERS))


def _taking(settings: PipelineSettings) -> Callable[[DataFrame, int], None]:
    """What is done with each micro-batch of enriched rows."""
    from tidelog.pipelines.dead_letter import dead_letters
    from tidelog.pipelines.phone_region.schema import TABLE
    from tidelog.pipelines.phone_region.transform import records, user_regions
    from tidelog.pipelines.sinks import Batch, open_tables
    from tidelog.pipelines.source import connector_options

    tables = open_tables(settings)

    def take(enriched: DataFrame, batch_id: int) -> None:
        application = f"{PIPELINE.group}-{_query_id(enriched)}"
        enriched.persist()
        try:
            malformed = enriched.where(enriched.reason.isNotNull())
            outgoing = records(enriched).unionByName(dead_letters(malformed, NAME))
            writer = outgoing.write.format(settings.format).options(**connector_options(settings))
            if settings.format == "tidelog":
                writer = writer.option("txnAppId", application).option("txnVersion", str(batch_id))
            writer.mode("append").save()
            tables.upsert(TABLE, user_regions(enriched), Batch(application, batch_id))
        finally:
            enriched.unpersist()

    return take


def _query_id(frame: DataFrame) -> str:
    """The id of the checkpoint's query: a fresh checkpoint numbers its batches from 0 again."""
    return str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def _backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Bring the table up to date; the topic is a history, and what the stream wrote is not repeated."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.phone_region.schema import TABLE
    from tidelog.pipelines.phone_region.transform import enrich, user_regions
    from tidelog.pipelines.sinks import Batch, open_tables
    from tidelog.pipelines.source import read_range

    _prepare(settings)
    found = enrich(read_range(session, settings, PIPELINE.inputs, time_range))
    inside = (F.col("event_time") >= F.lit(time_range.start)) & (F.col("event_time") < F.lit(time_range.end))
    wanted = found.where(F.col("reason").isNull() & inside).persist()
    try:
        read = wanted.count()
        with open_tables(settings) as tables:
            written = tables.upsert(TABLE, user_regions(wanted), Batch(f"{PIPELINE.group}-backfill", 0))
    finally:
        wanted.unpersist()
    return BackfillReport(read=read, written={f"table {TABLE.name}": written}, dead_letters=0)


PIPELINE = Pipeline(
    name=NAME,
    summary="Region, carrier and validity of phone numbers, added to the events that carry one.",
    inputs=_INPUTS,
    outputs=(f"topic {events.USER_REGIONS}", "table user_regions"),
    start=_start,
    backfill=_backfill,
)
