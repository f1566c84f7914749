"""collect as a job: one streaming query, or a parallel load of a range of time.

A micro-batch is parsed once and kept; its events go to the lake and, where contact points are given, to
Cassandra, then its dead letters to their topic. Each step may be repeated: the lake replaces a batch's files,
Cassandra upserts, the topic's sink knows the batch by its number. So a crash anywhere leaves nothing twice
and nothing out. There is no watermark: an event is collected however late it comes, under the day it tells.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.pipelines import events
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "collect"


def _start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    from tidelog.pipelines.collect.transform import rows
    from tidelog.pipelines.query import start_query
    from tidelog.pipelines.source import read_stream

    _prepare(settings)
    stream = rows(read_stream(session, settings, PIPELINE, PIPELINE.inputs))
    return start_query(stream.writeStream.foreachBatch(_collecting(settings)), settings, NAME)


def _prepare(settings: PipelineSettings) -> None:
    """A source does not start without its topics."""
    from tidelog.pipelines.topics import ensure_topics

    ensure_topics(settings, (*PIPELINE.inputs, events.DEAD_LETTERS))


def _collecting(settings: PipelineSettings) -> Callable[[DataFrame, int], None]:
    """What is done with each micro-batch. The stores are opened, and unreachable ones told, at once."""
    from tidelog.pipelines.collect.schema import TABLES
    from tidelog.pipelines.collect.transform import events_of, letters_of
    from tidelog.pipelines.dead_letter import write_dead_letters
    from tidelog.pipelines.sinks import Batch, open_event_tables, open_lake

    lake = open_lake(settings)
    tables = open_event_tables(settings)
    for table in TABLES:
        lake.ensure(table)
        if tables is not None:
            tables.ensure(table)

    def collect(parsed: DataFrame, batch_id: int) -> None:
        batch = Batch(f"{PIPELINE.group}-{_query_id(parsed)}", batch_id)
        parsed.persist()
        try:
            lake.upsert_each(TABLES, events_of(parsed), "kind", batch)
            if tables is not None:
                tables.upsert_each(TABLES, events_of(parsed), "kind", batch)
            letters = letters_of(parsed, NAME)
            if not letters.isEmpty():
                write_dead_letters(letters, settings, batch.application, batch_id)
        finally:
            parsed.unpersist()

    return collect


def _query_id(frame: DataFrame) -> str:
    """The id in the checkpoint: a fresh checkpoint numbers its batches from 0 again."""
    return str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def _backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    from tidelog.pipelines.collect.transform import in_range, rows
    from tidelog.pipelines.source import read_range

    _prepare(settings)
    found = in_range(rows(read_range(session, settings, PIPELINE.inputs, time_range)), time_range).persist()
    try:
        return BackfillReport(
            read=found.count(),
            written=_load(found, settings),
            dead_letters=_write_missing_letters(found, settings),
        )
    finally:
        found.unpersist()


def _load(found: DataFrame, settings: PipelineSettings) -> dict[str, int]:
    """Bring the events of a range into the lake and the tables; rows by output."""
    from tidelog.pipelines.collect.schema import TABLES
    from tidelog.pipelines.collect.transform import events_of
    from tidelog.pipelines.sinks import Batch, open_event_tables, open_lake

    batch = Batch(f"{PIPELINE.group}-backfill-{uuid.uuid4().hex}", 0)
    wanted = events_of(found)
    lake = open_lake(settings)
    written = {
        f"lake {table.name}": lake.merge(table, wanted.where(wanted.kind == table.name), batch)
        for table in TABLES
    }
    tables = open_event_tables(settings)
    if tables is not None:
        with tables:
            counts = tables.upsert_each(TABLES, wanted, "kind", batch)
        written |= {f"table {name}": count for name, count in counts.items()}
    return written


def _write_missing_letters(found: DataFrame, settings: PipelineSettings) -> int:
    """The stream may have written letters for these records before."""
    from tidelog.pipelines.collect.transform import letters_of
    from tidelog.pipelines.dead_letter import not_yet_written, write_dead_letters

    missing = not_yet_written(letters_of(found, NAME), settings).persist()
    try:
        count = missing.count()
        if count:
            write_dead_letters(missing, settings, f"{PIPELINE.group}-backfill-{uuid.uuid4().hex}", 0)
    finally:
        missing.unpersist()
    return count


PIPELINE = Pipeline(
    name=NAME,
    summary="All event logs into Cassandra tables and a Parquet lake by date; late and repeated events too.",
    inputs=tuple(kind.topic for kind in events.LOGS),
    outputs=tuple(f"lake and table {kind.name}" for kind in events.LOGS),
    start=_start,
    backfill=_backfill,
)
