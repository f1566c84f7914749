"""account-switch as a job: logins in, alerts and dead letters out, one query, exactly once.

Late logins count while the watermark allows it; a backfill counts them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.account_switch.schema import NAME, RULES
from tidelog.pipelines.events import ACCOUNT_SWITCH_ALERTS, DEAD_LETTERS, LOGIN
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    from tidelog.pipelines import alert_job
    from tidelog.pipelines.account_switch.transform import alerts, windows
    from tidelog.pipelines.alert_letters import letters
    from tidelog.pipelines.parsing import parse
    from tidelog.pipelines.query import start_query
    from tidelog.pipelines.source import read_stream

    alert_job.prepare(settings, PIPELINE)
    raw = read_stream(session, settings, PIPELINE, PIPELINE.inputs)
    records = alerts(windows(parse(raw, LOGIN).events)).unionByName(letters(raw, LOGIN, NAME))

    writer = alert_job.BatchWriter(settings, NAME)

    def write(batch: DataFrame, batch_id: int) -> None:
        writer.write(batch.sparkSession, batch.toArrow(), batch_id)

    return start_query(records.writeStream.outputMode("update").foreachBatch(write), settings, NAME)


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time; alerts of windows that reach into it are complete."""
    from tidelog.pipelines import alert_job
    from tidelog.pipelines.account_switch.transform import alerts, windows
    from tidelog.pipelines.alert_letters import letters
    from tidelog.pipelines.parsing import parse
    from tidelog.pipelines.source import read_range

    alert_job.prepare(settings, PIPELINE)
    context = alert_job.widened(time_range, RULES.window)
    raw = read_range(session, settings, PIPELINE.inputs, context)
    logins = parse(raw, LOGIN).events.where(alert_job.in_range("event_time", context)).persist()
    try:
        found = alerts(alert_job.overlapping(windows(logins), time_range))
        dead = letters(raw.where(alert_job.in_range("timestamp", time_range)), LOGIN, NAME)
        records = found.unionByName(dead)
        read = logins.where(alert_job.in_range("event_time", time_range)).count()
        return alert_job.backfill_records(session, settings, NAME, records, read)
    finally:
        logins.unpersist()


PIPELINE = Pipeline(
    name=NAME,
    summary="Finds devices that change accounts again and again.",
    inputs=(LOGIN.topic,),
    outputs=(f"topic {ACCOUNT_SWITCH_ALERTS}", f"topic {DEAD_LETTERS}"),
    start=start,
    backfill=backfill,
)
