"""How the detecting pipelines write: exactly once as a stream, and only what is new as a backfill.

A backfill computes the alerts of a range of time anew. It writes those that the topic does not hold yet, in
one transaction, so that running it twice leaves what running it once leaves, and an alert that late events
have changed replaces the old one. Called by ``account_switch.job`` and ``invite_fraud.job``.
"""

from __future__ import annotations

import uuid
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from tidelog.pipelines.events import ACCOUNT_SWITCH_ALERTS, DEAD_LETTERS, INVITE_FRAUD_ALERTS
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange
from tidelog.pipelines.source import connector_options
from tidelog.pipelines.topics import ensure_topics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RECORD = ("topic", "key", "value", "headers")
ALERT_TOPICS = {"account-switch": ACCOUNT_SWITCH_ALERTS, "invite-fraud": INVITE_FRAUD_ALERTS}


def prepare(settings: PipelineSettings, pipeline: Pipeline) -> None:
    """Create the topics that are missing: a source does not start without them."""
    ensure_topics(settings, (*pipeline.inputs, ALERT_TOPICS[pipeline.name], DEAD_LETTERS))


def one_task(records: DataFrame) -> DataFrame:
    """Alerts are few: one task writes a batch in one transaction, and a replay is cut the same way."""
    return records.select(*RECORD).repartition(1)


def application(settings: PipelineSettings, name: str) -> str:
    """The name under which the sink remembers what a checkpoint has written: its query's id.

    Python data sources take no output mode ``update``, so alerts are written from ``foreachBatch``, where the
    batch has to be named.
    """
    metadata = msgspec.json.decode((settings.checkpoint(name) / "metadata").read_bytes())
    return f"{name}-{metadata['id']}"


def write_batch(records: DataFrame, settings: PipelineSettings, app_id: str, version: int) -> None:
    """Write records as version ``version`` of ``app_id``: a second time nothing is added."""
    options = connector_options(settings)
    if settings.format == "tidelog":
        options |= {"txnAppId": app_id, "txnVersion": str(version)}
    one_task(records).write.format(settings.format).options(**options).mode("append").save()


def in_range(column: str, time_range: TimeRange) -> Column:
    """Whether the time of ``column`` is in the range."""
    time = F.col(column)
    return (time >= F.lit(time_range.start)) & (time < F.lit(time_range.end))


def widened(time_range: TimeRange, by: timedelta) -> TimeRange:
    """The range and as much before and behind it: what windows at its edges need."""
    return TimeRange(time_range.start - by, time_range.end + by)


def overlapping(alerts: DataFrame, time_range: TimeRange) -> DataFrame:
    """The alerts whose window has a moment in the range; times are text in UTC, whose order is theirs."""
    start, end = (
        f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
        for moment in (time_range.start, time_range.end)
    )
    return alerts.where((F.col("window_start") < end) & (F.col("window_end") > start))


def backfill_records(
    session: SparkSession, settings: PipelineSettings, name: str, records: DataFrame, read: int
) -> BackfillReport:
    """Write the records that their topics do not hold as the newest of their key, and count them by topic."""
    identified = records.select(*RECORD, _identity().alias("identity"))
    known = _held(session, settings, name)
    fresh = identified.join(known, "identity", "left_anti").select(*RECORD).persist()
    try:
        written = {row["topic"]: row["count"] for row in fresh.groupBy("topic").count().collect()}
        if written:
            write_batch(fresh, settings, f"{name}-backfill-{uuid.uuid4().hex}", 0)
    finally:
        fresh.unpersist()
    dead = written.pop(DEAD_LETTERS, 0)
    return BackfillReport(read, {f"topic {topic}": count for topic, count in written.items()}, dead)


def _held(session: SparkSession, settings: PipelineSettings, name: str) -> DataFrame:
    """The identities of the newest record of each alert, and of all dead letters."""
    options = {
        **connector_options(settings),
        "subscribe": f"{ALERT_TOPICS[name]},{DEAD_LETTERS}",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    held = session.read.format(settings.format).options(**options).load()
    dead = F.col("topic") == DEAD_LETTERS
    newest = (
        held.where(~dead)
        .groupBy("topic", "key")
        .agg(F.max_by("value", "offset").alias("value"), F.max_by("headers", "offset").alias("headers"))
    )
    return (
        newest.select(*RECORD)
        .unionByName(held.where(dead).select(*RECORD))
        .select(_identity().alias("identity"))
    )


def _identity() -> Column:
    """A hash over everything that is written of a record."""
    headers = F.transform("headers", lambda header: F.concat_ws("=", header["key"], F.hex(header["value"])))
    parts = [
        F.col("topic"),
        *(F.coalesce(F.hex(name), F.lit("-")) for name in ("key", "value")),
        F.coalesce(F.concat_ws(",", headers), F.lit("")),
    ]
    return F.sha2(F.concat_ws("/", *parts), 256)
