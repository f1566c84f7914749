"""How the detecting pipelines write: exactly once as a stream, and only what is new as a backfill.

A micro-batch of a stream is one Spark job: its records, which are few, come to the driver, and the driver
writes them, as a task of the sink would. With a job for the sink, and one to see whether there is anything
for it, the first batch took two seconds of CPU more. The driver holds the dead letters of a batch in memory,
at most as many as a trigger reads.

A backfill computes the alerts of a range of time anew. It writes those that the topic does not hold yet, in
one transaction, so that running it twice leaves what running it once leaves, and an alert that late events
have changed replaces the old one. Called by ``account_switch.job`` and ``invite_fraud.job``.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from tidelog.pipelines.events import ACCOUNT_SWITCH_ALERTS, DEAD_LETTERS, INVITE_FRAUD_ALERTS
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange
from tidelog.pipelines.source import connector_options
from tidelog.pipelines.topics import ensure_topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

RECORD = ("topic", "key", "value", "headers")
ALERT_TOPICS = {"account-switch": ACCOUNT_SWITCH_ALERTS, "invite-fraud": INVITE_FRAUD_ALERTS}


def prepare(settings: PipelineSettings, pipeline: Pipeline) -> None:
    """Create the topics that are missing: a source does not start without them."""
    ensure_topics(settings, (*pipeline.inputs, ALERT_TOPICS[pipeline.name], DEAD_LETTERS))


def one_task(records: DataFrame) -> DataFrame:
    """Alerts are few: one task writes a batch in one transaction, and a replay is cut the same way."""
    return records.select(*RECORD).repartition(1)


class BatchWriter:
    """Writes the micro-batches of one run of a streaming query, each in a transaction that tells its number.

    Python data sources take no output mode ``update``, so alerts are written from ``foreachBatch``, where the
    batch has to be named. A batch that is replayed adds nothing.
    """

    def __init__(self, settings: PipelineSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._run_id = uuid.uuid4().hex

    def write(self, session: SparkSession, records: pa.Table, batch_id: int) -> None:
        """Write the records of a batch; with none there is nothing to do."""
        if not records.num_rows:
            return
        app_id = self._application()
        if self._settings.format != "tidelog":
            write_batch(session.createDataFrame(records), self._settings, app_id, batch_id)
            return
        from tidelog.spark.batch_writer import finish_write
        from tidelog.spark.epoch_task import write_exactly_once
        from tidelog.spark.write_message import WriteName
        from tidelog.spark.write_options import write_options

        options = write_options(_sink_options(self._settings, app_id, batch_id), streaming=False)
        name = WriteName(app_id, batch_id, self._run_id, task=0, streaming=False)
        finish_write([write_exactly_once(records.to_batches(), options, name)], options, commit=True)

    def _application(self) -> str:
        """The name under which the sink remembers what a checkpoint has written: its query's id."""
        path = self._settings.checkpoint(self._name) / "metadata"
        return f"{self._name}-{msgspec.json.decode(path.read_bytes())['id']}"


def write_batch(records: DataFrame, settings: PipelineSettings, app_id: str, version: int) -> None:
    """Write records as version ``version`` of ``app_id``: a second time nothing is added."""
    options = _sink_options(settings, app_id, version)
    one_task(records).write.format(settings.format).options(**options).mode("append").save()


def _sink_options(settings: PipelineSettings, app_id: str, version: int) -> dict[str, str]:
    options = connector_options(settings)
    if settings.format == "tidelog":
        options |= {"txnAppId": app_id, "txnVersion": str(version)}
    return options


def in_range(column: str, time_range: TimeRange) -> Column:
    """Whether the time of ``column`` is in the range."""
    time = F.col(column)
    return (time >= F.lit(time_range.start)) & (time < F.lit(time_range.end))


def widened(time_range: TimeRange, by: timedelta) -> TimeRange:
    """The range and as much before and behind it: what windows at its edges need."""
    return TimeRange(time_range.start - by, time_range.end + by)


def overlapping(windows: DataFrame, time_range: TimeRange) -> DataFrame:
    """The windows that have a moment in the range."""
    start, end = F.lit(time_range.start), F.lit(time_range.end)
    return windows.where((F.col("window.start") < end) & (F.col("window.end") > start))


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
