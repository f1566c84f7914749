"""invite-fraud as a job: invitations in, alerts and dead letters out, one query, exactly once.

Invitations of the last month are state that tasks keep (``alert_state``). Late ones count while the watermark
allows it; a backfill counts them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.spark.pipelines.pipeline import BackfillReport, TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.detection.alert_job import backfill_range, start_detecting
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector
from tidelog_rewards.pipelines import INVITE_FRAUD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    return start_detecting(session, settings, INVITE_FRAUD, InviteDetector())


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time, with the months that decide what is reported."""
    return backfill_range(session, settings, INVITE_FRAUD, InviteDetector(), time_range)
