"""invite-fraud as a job: invitations in, alerts and dead letters out, one query, exactly once.

Spark keeps the windows of inviters, devices and number blocks; the graph of who invited whom is kept by
``graph_log`` beside Spark's checkpoint. Each micro-batch writes the alerts of both in one transaction, under
its number: a batch that is replayed adds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tidelog.pipelines.events import DEAD_LETTERS, INVITE, INVITE_FRAUD_ALERTS
from tidelog.pipelines.invite_fraud.graph import Edge, InviteGraph
from tidelog.pipelines.invite_fraud.graph_log import GraphLog
from tidelog.pipelines.invite_fraud.rings import ring_alerts
from tidelog.pipelines.invite_fraud.schema import NAME, RULES
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.pipelines.parsing import Parsed

_RECORD_SCHEMA = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    from tidelog.pipelines import alert_job
    from tidelog.pipelines.alert_columns import alert_records
    from tidelog.pipelines.invite_fraud.transform import alerts
    from tidelog.pipelines.parsing import parse
    from tidelog.pipelines.query import start_query
    from tidelog.pipelines.source import read_stream

    alert_job.prepare(settings, PIPELINE)
    parsed = parse(read_stream(session, settings, PIPELINE, PIPELINE.inputs), INVITE)
    records = alert_records(alerts(parsed.events), INVITE_FRAUD_ALERTS).unionByName(
        _edges_and_letters(parsed)
    )
    graph_log = GraphLog(settings.checkpoint(NAME) / "rings")

    def write(batch: DataFrame, batch_id: int) -> None:
        _write(batch, batch_id, settings, graph_log)

    return start_query(records.writeStream.outputMode("update").foreachBatch(write), settings, NAME)


def _edges_and_letters(parsed: Parsed) -> DataFrame:
    """In one pass over the records: dead letters as they are written, events as edges without a topic."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.dead_letter import dead_letter_headers
    from tidelog.pipelines.invite_fraud.transform import edges

    rows = edges(parsed.rows)
    malformed = F.col("reason").isNotNull()
    return rows.select(
        F.when(malformed, DEAD_LETTERS).alias("topic"),
        F.when(malformed, F.col("key")).alias("key"),
        F.when(malformed, F.col("value")).otherwise(F.to_json("edge").cast("binary")).alias("value"),
        F.when(malformed, dead_letter_headers(NAME)).alias("headers"),
    )


def _write(batch: DataFrame, batch_id: int, settings: PipelineSettings, graph_log: GraphLog) -> None:
    """One micro-batch: first the graph on disk, then the alerts of windows and rings, and dead letters."""
    from tidelog.pipelines import alert_job

    batch.persist()
    try:
        new_edges = [_edge(row["value"]) for row in batch.where("topic IS NULL").select("value").collect()]
        rings = ring_alerts(graph_log.add(batch_id, new_edges))
        records = batch.where("topic IS NOT NULL")
        if rings:
            records = records.unionByName(_ring_records(batch.sparkSession, rings))
        if rings or not records.isEmpty():
            alert_job.write_batch(records, settings, alert_job.application(settings, NAME), batch_id)
    finally:
        batch.unpersist()


def _edge(value: bytes | bytearray) -> Edge:
    return msgspec.json.decode(value, type=Edge)


def _ring_records(session: SparkSession, rings: list[tuple[bytes, bytes]]) -> DataFrame:
    rows = [(INVITE_FRAUD_ALERTS, bytearray(key), bytearray(value), None) for key, value in rings]
    return session.createDataFrame(rows, _RECORD_SCHEMA)


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time; windows and rings that reach into it are complete, as far as a day goes."""
    from tidelog.pipelines import alert_job
    from tidelog.pipelines.alert_columns import alert_records
    from tidelog.pipelines.dead_letter import dead_letters
    from tidelog.pipelines.invite_fraud.transform import alerts
    from tidelog.pipelines.parsing import parse
    from tidelog.pipelines.source import read_range

    alert_job.prepare(settings, PIPELINE)
    context = alert_job.widened(time_range, RULES.horizon)
    parsed = parse(read_range(session, settings, PIPELINE.inputs, context), INVITE)
    invites = parsed.events.where(alert_job.in_range("event_time", context)).persist()
    try:
        found = alert_job.overlapping(alerts(invites), time_range)
        letters = dead_letters(parsed.malformed.where(alert_job.in_range("timestamp", time_range)), NAME)
        records = alert_records(found, INVITE_FRAUD_ALERTS).unionByName(letters)
        rings = _rings_of(invites, time_range)
        if rings:
            records = records.unionByName(_ring_records(session, rings))
        read = invites.where(alert_job.in_range("event_time", time_range)).count()
        return alert_job.backfill_records(session, settings, NAME, records, read)
    finally:
        invites.unpersist()


def _rings_of(invites: DataFrame, time_range: TimeRange) -> list[tuple[bytes, bytes]]:
    """The rings that an invitation of the range closed."""
    from pyspark.sql import functions as F

    from tidelog.pipelines.invite_fraud.transform import edges

    graph = InviteGraph()
    start_ms, end_ms = (round(time.timestamp() * 1000) for time in (time_range.start, time_range.end))
    rows = edges(invites).select(F.to_json("edge").alias("edge")).toLocalIterator()
    every = sorted(_edge(row["edge"].encode()) for row in rows)
    graph.add(edge for edge in every if edge.time_ms < start_ms)
    return ring_alerts(graph.add(edge for edge in every if start_ms <= edge.time_ms < end_ms))


PIPELINE = Pipeline(
    name=NAME,
    summary="Scores invitations: one device, address or number block, bursts, rings.",
    inputs=(INVITE.topic,),
    outputs=(f"topic {INVITE_FRAUD_ALERTS}", f"topic {DEAD_LETTERS}"),
    start=start,
    backfill=backfill,
)
