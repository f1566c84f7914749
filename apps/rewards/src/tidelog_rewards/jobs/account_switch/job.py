"""account-switch as a job: logins in, alerts and dead letters out, one query, exactly once.

Late logins count while the watermark allows it; a backfill counts them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.spark.pipelines.pipeline import BackfillReport, Pipeline, TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.events import ACCOUNT_SWITCH_ALERTS, DEAD_LETTERS, INCIDENTS, LOGIN
from tidelog_rewards.jobs.account_switch.schema import NAME
from tidelog_rewards.topics import ALL as TOPICS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    from tidelog_rewards.detection.alert_job import start_detecting
    from tidelog_rewards.jobs.account_switch.detector import SwitchDetector

    return start_detecting(session, settings, PIPELINE, SwitchDetector())


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time, with the months that decide what is told of it."""
    from tidelog_rewards.detection.alert_job import backfill_range
    from tidelog_rewards.jobs.account_switch.detector import SwitchDetector

    return backfill_range(session, settings, PIPELINE, SwitchDetector(), time_range)


PIPELINE = Pipeline(
    name=NAME,
    summary="Finds many accounts in one hand: on one device, or behind one address.",
    inputs=(LOGIN.topic,),
    outputs=(
        f"topic {ACCOUNT_SWITCH_ALERTS}",
        f"topic {INCIDENTS}",
        "table incidents",
        f"topic {DEAD_LETTERS}",
    ),
    start=start,
    backfill=backfill,
    preload=(
        "tidelog_rewards.detection.alert_tasks",
        "tidelog_rewards.jobs.account_switch.detector",
    ),
    topics=TOPICS,
)
