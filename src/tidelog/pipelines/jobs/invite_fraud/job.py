"""invite-fraud as a job: invitations in, alerts and dead letters out, one query, exactly once.

Invitations of the last month are state that tasks keep (``alert_state``). Late ones count while the watermark
allows it; a backfill counts them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.framework.events import DEAD_LETTERS, INCIDENTS, INVITE, INVITE_FRAUD_ALERTS
from tidelog.pipelines.framework.topics import ALL as TOPICS
from tidelog.pipelines.jobs.invite_fraud.schema import NAME
from tidelog.spark.pipelines.pipeline import BackfillReport, Pipeline, TimeRange
from tidelog.spark.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    from tidelog.pipelines.framework.alert_job import start_detecting
    from tidelog.pipelines.jobs.invite_fraud.detector import InviteDetector

    return start_detecting(session, settings, PIPELINE, InviteDetector())


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time, with the months that decide what is told of it."""
    from tidelog.pipelines.framework.alert_job import backfill_range
    from tidelog.pipelines.jobs.invite_fraud.detector import InviteDetector

    return backfill_range(session, settings, PIPELINE, InviteDetector(), time_range)


PIPELINE = Pipeline(
    name=NAME,
    summary="Scores invitations: one device, address or number block, bursts, rings, trees.",
    inputs=(INVITE.topic,),
    outputs=(
        f"topic {INVITE_FRAUD_ALERTS}",
        f"topic {INCIDENTS}",
        "table incidents",
        f"topic {DEAD_LETTERS}",
    ),
    start=start,
    backfill=backfill,
    preload=(
        "tidelog.pipelines.framework.alert_tasks",
        "tidelog.pipelines.jobs.invite_fraud.detector",
    ),
    topics=TOPICS,
)
