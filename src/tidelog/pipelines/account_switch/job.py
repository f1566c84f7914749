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
    from tidelog.pipelines.account_switch.transform import alerts
    from tidelog.pipelines.alert_columns import alert_records
    from tidelog.pipelines.dead_letter import dead_letters
    from tidelog.pipelines.parsing import parse
    from tidelog.pipelines.query import start_query
    from tidelog.pipelines.source import read_stream

    alert_job.prepare(settings, PIPELINE)
    parsed = parse(read_stream(session, settings, PIPELINE, PIPELINE.inputs), LOGIN)
    records = alert_records(alerts(parsed.events), ACCOUNT_SWITCH_ALERTS).unionByName(
        dead_letters(parsed.malformed, NAME)
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            if not batch.isEmpty():
                alert_job.write_batch(batch, settings, alert_job.application(settings, NAME), batch_id)
        finally:
            batch.unpersist()

    return start_query(records.writeStream.outputMode("update").foreachBatch(write), settings, NAME)


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time; alerts of windows that reach into it are complete."""
    from tidelog.pipelines import alert_job
    from tidelog.pipelines.account_switch.transform import alerts
    from tidelog.pipelines.alert_columns import alert_records
    from tidelog.pipelines.dead_letter import dead_letters
    from tidelog.pipelines.parsing import parse
    from tidelog.pipelines.source import read_range

    alert_job.prepare(settings, PIPELINE)
    context = alert_job.widened(time_range, RULES.window)
    parsed = parse(read_range(session, settings, PIPELINE.inputs, context), LOGIN)
    logins = parsed.events.where(alert_job.in_range("event_time", context)).persist()
    try:
        found = alert_job.overlapping(alerts(logins), time_range)
        letters = dead_letters(parsed.malformed.where(alert_job.in_range("timestamp", time_range)), NAME)
        records = alert_records(found, ACCOUNT_SWITCH_ALERTS).unionByName(letters)
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
