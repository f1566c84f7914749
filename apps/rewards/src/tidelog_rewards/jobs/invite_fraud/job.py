"""invite-fraud as a job: invitations in, alerts and dead letters out, one query, exactly once.

Invitations of the last month are state that tasks keep (``alert_state``). Late ones count while the watermark
allows it; a backfill counts them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.spark.pipelines.pipeline import BackfillReport, Pipeline, TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.events import DEAD_LETTERS, INCIDENTS, INVITE, INVITE_FRAUD_ALERTS
from tidelog_rewards.jobs.invite_fraud.schema import NAME
from tidelog_rewards.topics import ALL as TOPICS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    from tidelog_rewards.detection.alert_job import start_detecting
    from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector

    return start_detecting(session, settings, PIPELINE, InviteDetector())


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time, with the months that decide what is told of it."""
    from tidelog_rewards.detection.alert_job import backfill_range
    from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector

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
        "tidelog_rewards.detection.alert_tasks",
        "tidelog_rewards.jobs.invite_fraud.detector",
    ),
    topics=TOPICS,
)
