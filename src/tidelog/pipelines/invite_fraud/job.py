"""invite-fraud as a job: invitations in, alerts and dead letters out, one query, exactly once.

Spark keeps the windows of inviters, devices and number blocks; the graph of who invited whom is kept by
``graph_log`` beside Spark's checkpoint. Each micro-batch writes the alerts of both in one transaction, under
its number: a batch that is replayed adds nothing. The topic is read twice per batch, for windows and for
edges and dead letters.
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
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_RECORD_SCHEMA = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    from tidelog.pipelines import alert_job
    from tidelog.pipelines.alert_letters import values_and_letters
    from tidelog.pipelines.invite_fraud.invitations import edge_values
    from tidelog.pipelines.invite_fraud.transform import alerts, invitations, windows
    from tidelog.pipelines.query import start_query
    from tidelog.pipelines.source import read_stream

    alert_job.prepare(settings, PIPELINE)
    raw = read_stream(session, settings, PIPELINE, PIPELINE.inputs)
    edges_and_letters = values_and_letters(raw, INVITE, NAME, edge_values)
    records = alerts(windows(invitations(raw))).unionByName(edges_and_letters)
    graph_log = GraphLog(settings.checkpoint(NAME) / "rings")
    writer = alert_job.BatchWriter(settings, NAME)

    def write(batch: DataFrame, batch_id: int) -> None:
        records = _with_rings(batch.toArrow(), batch_id, graph_log)
        writer.write(batch.sparkSession, records, batch_id)

    return start_query(records.writeStream.outputMode("update").foreachBatch(write), settings, NAME)


def _with_rings(batch: pa.Table, batch_id: int, graph_log: GraphLog) -> pa.Table:
    """A micro-batch's alerts of windows and rings, and its dead letters; its graph is on disk by then."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_edge = pc.is_null(batch["topic"])
    values = batch["value"].filter(is_edge).to_pylist()
    new_edges = [msgspec.json.decode(value, type=Edge) for value in values]
    rings = ring_alerts(graph_log.add(batch_id, new_edges))
    rows = [{"topic": INVITE_FRAUD_ALERTS, "key": key, "value": value} for key, value in rings]
    return pa.concat_tables(
        [batch.filter(pc.invert(is_edge)), pa.Table.from_pylist(rows, schema=batch.schema)]
    )


def _ring_records(session: SparkSession, rings: list[tuple[bytes, bytes]]) -> DataFrame:
    rows = [(INVITE_FRAUD_ALERTS, bytearray(key), bytearray(value), None) for key, value in rings]
    return session.createDataFrame(rows, _RECORD_SCHEMA)


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Detect in a range of time; windows and rings that reach into it are complete, as far as a day goes."""
    from tidelog.pipelines import alert_job
    from tidelog.pipelines.alert_letters import letters
    from tidelog.pipelines.invite_fraud.transform import alerts, invitations, windows
    from tidelog.pipelines.source import read_range

    alert_job.prepare(settings, PIPELINE)
    context = alert_job.widened(time_range, RULES.horizon)
    raw = read_range(session, settings, PIPELINE.inputs, context)
    invites = invitations(raw).where(alert_job.in_range("event_time", context)).persist()
    try:
        found = alerts(alert_job.overlapping(windows(invites), time_range))
        dead = letters(raw.where(alert_job.in_range("timestamp", time_range)), INVITE, NAME)
        records = found.unionByName(dead)
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

    graph = InviteGraph()
    start_ms, end_ms = (round(time.timestamp() * 1000) for time in (time_range.start, time_range.end))
    fields = {
        "time_ms": F.unix_millis("event_time"),
        **{name: F.col(name) for name in Edge.__struct_fields__ if name in invites.columns},
        "invitee_device": F.col("device"),
    }
    rows = invites.select(*(column.alias(name) for name, column in fields.items())).toLocalIterator()
    every = sorted(Edge(**row.asDict()) for row in rows)
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
