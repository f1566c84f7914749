"""earnings as a job: credits and task steps into the ledger, what follows from it into tables and a topic.

A micro-batch is three steps, each of which may be repeated: dead letters to their topic (exactly once, by the
batch's number), entries into the ledger (what is there stays), states to the compacted topic (absolute
values). A crash anywhere replays the batch from its first step, and the end is the same. The driver does all
three: the work of a batch is some hundred bytes for each user that it names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.pipelines import events
from tidelog.pipelines.earnings.ledger import Ledger, open_ledger
from tidelog.pipelines.earnings.publisher import StatePublisher
from tidelog.pipelines.earnings.schema import TABLES, TOPIC
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "earnings"
BACKFILL_ROWS = 50_000
"""A backfill merges so many events at a time."""


def _start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    from tidelog.pipelines.earnings.transform import entries
    from tidelog.pipelines.query import start_query
    from tidelog.pipelines.source import read_stream

    _prepare(settings)
    batches = MicroBatches(settings, open_ledger(settings), StatePublisher(settings, PIPELINE.group))
    stream = entries(read_stream(session, settings, PIPELINE, PIPELINE.inputs))
    return start_query(stream.writeStream.foreachBatch(batches.take), settings, NAME)


def _prepare(settings: PipelineSettings) -> None:
    """A source does not start without its topics."""
    from tidelog.pipelines.topics import ensure_topics

    ensure_topics(settings, (*PIPELINE.inputs, TOPIC, events.DEAD_LETTERS))


class MicroBatches:
    """Takes the stream's micro-batches, one after the other."""

    def __init__(self, settings: PipelineSettings, ledger: Ledger, publisher: StatePublisher) -> None:
        self._settings = settings
        self._ledger = ledger
        self._publisher = publisher

    def take(self, frame: DataFrame, batch_id: int) -> None:
        """Work off a batch of entries; done when tables and topics are."""
        from tidelog.pipelines.dead_letter import write_dead_letters
        from tidelog.pipelines.earnings.transform import letters, sort_entries

        credits, steps, malformed = sort_entries(_collected(frame))
        if malformed:
            session = frame.sparkSession
            # The id in the checkpoint: a fresh checkpoint numbers its batches from 0 again.
            query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
            application = f"{PIPELINE.group}-{query_id}"
            write_dead_letters(letters(session, malformed, NAME), self._settings, application, batch_id)
        with self._ledger.turn():
            states = self._ledger.merge(credits, steps)
            while states:
                self._publisher.publish(states)
                states = self._ledger.newer_than(states)


def _collected(frame: DataFrame) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in frame.toArrow().columns), strict=True)


def _backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    from tidelog.pipelines.earnings.transform import entries, in_range
    from tidelog.pipelines.source import read_range

    _prepare(settings)
    start, end = _text(time_range.start), _text(time_range.end)
    found = in_range(
        entries(read_range(session, settings, PIPELINE.inputs, time_range)), start, end
    ).persist()
    ledger = open_ledger(settings)
    try:
        read = _merge_all(ledger, found)
        states = _publish_anew(ledger, settings, start, end)
        return BackfillReport(
            read=found.count(),
            written={"events in the ledger": read, "table user_earnings": states, f"topic {TOPIC}": states},
            dead_letters=_write_missing_letters(found, settings),
        )
    finally:
        ledger.close()
        found.unpersist()


def _merge_all(ledger: Ledger, found: DataFrame) -> int:
    from tidelog.pipelines.earnings.transform import sort_entries

    merged = 0
    rows = found.where(found.reason.isNull()).toLocalIterator(prefetchPartitions=True)
    while chunk := list(islice(rows, BACKFILL_ROWS)):
        credits, steps, _ = sort_entries(chunk)
        ledger.merge(credits, steps)
        merged += len(chunk)
    return merged


def _publish_anew(ledger: Ledger, settings: PipelineSettings, start: str, end: str) -> int:
    published = 0
    with StatePublisher(settings, f"{PIPELINE.group}-backfill") as publisher, ledger.turn():
        for states in ledger.recompute(start, end):
            published += len(states)
            while states:
                publisher.publish(states)
                states = ledger.newer_than(states)
    return published


def _write_missing_letters(found: DataFrame, settings: PipelineSettings) -> int:
    """The stream may have written letters for these records before."""
    from tidelog.pipelines.dead_letter import dead_letters, not_yet_written, write_dead_letters

    malformed = dead_letters(found.where(found.reason.isNotNull()), NAME)
    missing = not_yet_written(malformed, settings).persist()
    try:
        count = missing.count()
        if count:
            write_dead_letters(missing, settings, f"{PIPELINE.group}-backfill-{uuid.uuid4().hex}", 0)
    finally:
        missing.unpersist()
    return count


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


PIPELINE = Pipeline(
    name=NAME,
    summary="Income and task progress of each user, exact to the cent, as events come.",
    inputs=(events.CREDIT.topic, events.TASK.topic),
    outputs=(*(f"table {table}" for table in TABLES), f"topic {TOPIC}"),
    start=_start,
    backfill=_backfill,
)
