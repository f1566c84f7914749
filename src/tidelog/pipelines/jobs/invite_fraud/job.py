"""invite-fraud as a job: invitations in, alerts and dead letters out, one query, exactly once.

Windows and the graph of who invited whom are state that tasks keep (``alert_state``). Late invitations count
while the watermark allows it, in rings for a day; a backfill counts them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipelines.framework.events import DEAD_LETTERS, INVITE, INVITE_FRAUD_ALERTS
from tidelog.pipelines.jobs.invite_fraud.schema import NAME
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    from tidelog.pipelines.framework.alert_job import start_detecting
    from tidelog.pipelines.jobs.invite_fraud.detector import InviteDetector

    return start_detecting(session, settings, PIPELINE, InviteDetector())


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time; windows and rings that reach into it are complete, as far as a day goes."""
    from tidelog.pipelines.framework.alert_job import backfill_range, window_of
    from tidelog.pipelines.jobs.invite_fraud.detector import InviteDetector

    detector = InviteDetector(within=window_of(time_range))
    return backfill_range(session, settings, PIPELINE, detector, time_range)


PIPELINE = Pipeline(
    name=NAME,
    summary="Scores invitations: one device, address or number block, bursts, rings.",
    inputs=(INVITE.topic,),
    outputs=(f"topic {INVITE_FRAUD_ALERTS}", f"topic {DEAD_LETTERS}"),
    start=start,
    backfill=backfill,
)
