"""collect as a job: one streaming query, or a parallel load of a range of time.

A micro-batch is one Spark job. Its tasks parse records, write files for the lake, send rows to Cassandra
where contact points are given, and write dead letters to their topic (``task_work``); the driver then
commits the files to the lake. Each step may be repeated: the lake knows the batch by its number,
Cassandra upserts, the topic's sink knows the batch by its number. So a crash anywhere
leaves nothing twice and nothing out. There is no watermark: an event is collected however late it comes,
under the day it tells.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from tidelog.spark.dead_letters.dead_letter import write_missing
from tidelog.spark.pipelines.figures import count_quality
from tidelog.spark.pipelines.pipeline import BackfillReport, TimeRange
from tidelog.spark.pipelines.quality import quality_of
from tidelog.spark.pipelines.query import start_query
from tidelog.spark.pipelines.source import read_range, read_stream
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks import Batch, open_event_tables, open_lake
from tidelog.spark.sinks.partition_work import work_on_parts
from tidelog.spark.sinks.record_sink import RecordSink, micro_batch
from tidelog_rewards import events
from tidelog_rewards.jobs.collect.schema import TABLES
from tidelog_rewards.jobs.collect.task_work import (
    COLUMNS,
    collecting,
    files_of,
    report_of,
    told_quality,
    writing_letters,
)
from tidelog_rewards.jobs.collect.transform import events_of, in_range, letters_of, rows, with_tokens
from tidelog_rewards.phones.phone_tokens import PhonesOfSettings
from tidelog_rewards.pipelines import COLLECT
from tidelog_rewards.topics import ensure_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog_rewards.phones.phone_tokens import PhonesWritten


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    _prepare(settings)
    stream = read_stream(session, settings, COLLECT, COLLECT.inputs).select(*COLUMNS)
    return start_query(stream.writeStream.foreachBatch(_collecting(settings)), settings, COLLECT.name)


def _prepare(settings: PipelineSettings) -> None:
    """A source does not start without its topics."""
    ensure_topics(settings, (*COLLECT.inputs, events.DEAD_LETTERS))


def _collecting(settings: PipelineSettings) -> Callable[[DataFrame, int], None]:
    """What is done with each micro-batch. The stores are opened, and unreachable ones told, at once."""
    lake = open_lake(settings)
    tables = open_event_tables(settings)
    for table in TABLES:
        lake.ensure(table)
        if tables is not None:
            tables.ensure(table)

    phones = PhonesOfSettings(settings)

    def collect(records: DataFrame, batch_id: int) -> None:
        batch = micro_batch(records.sparkSession, COLLECT.group, batch_id)
        sink = RecordSink(settings, batch)
        write = lake.begin(TABLES)
        work = collecting(write, tables, COLLECT.name, phones.now())
        answers = work_on_parts(records, work, 1, writing_letters(sink))
        lake.commit(write, files_of(answers), batch.batch)
        sink.finish(report_of(answers))
        count_quality(settings.directory, COLLECT.name, quality_of(told_quality(answers)))

    return collect


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Load a range of time into the lake and the tables."""
    _prepare(settings)
    phones = PhonesOfSettings(settings).now()
    raw = read_range(session, settings, COLLECT.inputs, time_range)
    # A range may be many times the memory: its rows, which several passes read, wait on disk.
    found = in_range(rows(raw), time_range).persist(StorageLevel.DISK_ONLY)
    try:
        return BackfillReport(
            read=found.count(),
            written=_load(found, phones, settings),
            dead_letters=write_missing(letters_of(found, COLLECT.name, phones), settings, COLLECT.group),
        )
    finally:
        found.unpersist()


def _load(found: DataFrame, phones: PhonesWritten, settings: PipelineSettings) -> dict[str, int]:
    """Bring the events of a range into the lake and the tables; rows by output."""
    batch = Batch(f"{COLLECT.group}-backfill-{uuid.uuid4().hex}", 0)
    wanted = events_of(found)
    lake = open_lake(settings)
    written = {}
    for table in TABLES:
        of_table = wanted.where(wanted.kind == table.name)
        # Only what has numbers goes to Python for them: that costs more than all else.
        rows = with_tokens(of_table, phones) if "phone" in table.names else of_table
        written[f"lake {table.name}"] = lake.merge(table, rows, batch)
    tables = open_event_tables(settings)
    if tables is not None:
        with tables:
            counts = tables.upsert_each(TABLES, with_tokens(wanted, phones), "kind", batch)
        written |= {f"table {name}": count for name, count in counts.items()}
    return written
