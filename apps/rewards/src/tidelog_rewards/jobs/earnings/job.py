"""earnings as a job: credits and task steps into the ledger, what follows from it into tables and a topic.

A micro-batch is one Spark job of two stages: tasks read and parse records and make parcels of them for the
parts of the ledger; the task of each part merges, and writes states and dead letters (``part_work`` says in
which order, and what a crash leaves). To the driver come the tasks' answers, one for each part.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.spark.dead_letters.dead_letter import dead_letters, write_missing
from tidelog.spark.pipelines.figures import count_quality
from tidelog.spark.pipelines.pipeline import BackfillReport, TimeRange
from tidelog.spark.pipelines.query import require_state, start_query
from tidelog.spark.pipelines.source import read_range, read_stream
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.partition_work import work_on_partitions, work_on_parts
from tidelog.spark.sinks.record_sink import RecordSink, micro_batch
from tidelog_rewards import events
from tidelog_rewards.jobs.earnings.ledger import prepare_ledger
from tidelog_rewards.jobs.earnings.packing import COLUMNS, pack, pack_range
from tidelog_rewards.jobs.earnings.part_work import (
    BatchWork,
    merge_entries,
    pack_touched,
    publish_parts,
    publish_touched,
)
from tidelog_rewards.jobs.earnings.parts import ledger_parts, note_path
from tidelog_rewards.jobs.earnings.publisher import SoleCopy
from tidelog_rewards.jobs.earnings.schema import TOPIC
from tidelog_rewards.jobs.earnings.transform import malformed
from tidelog_rewards.phones.phone_tokens import PhonesOfSettings
from tidelog_rewards.pipelines import EARNINGS
from tidelog_rewards.topics import ensure_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog_rewards.jobs.earnings.parts import LedgerParts


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    require_state(
        settings.checkpoint(EARNINGS.name),
        note_path(settings),
        "move the checkpoint away and start with --starting-offsets earliest, or have `tidelog pipeline "
        "backfill earnings` make a ledger of what the log holds",
    )
    batches = MicroBatches(settings, _prepare(settings))
    stream = read_stream(session, settings, EARNINGS, EARNINGS.inputs).select(*COLUMNS)
    return start_query(stream.writeStream.foreachBatch(batches.take), settings, EARNINGS.name)


def _prepare(settings: PipelineSettings) -> LedgerParts:
    """A source does not start without its topics, nor a task without its tables."""
    _check(settings)
    ensure_topics(settings, (*EARNINGS.inputs, TOPIC, events.DEAD_LETTERS))
    prepare_ledger(settings)
    return ledger_parts(settings)


def _check(settings: PipelineSettings) -> None:
    """What follows from the ledger is computed by reading what was just written."""
    if settings.cassandra is not None:
        settings.cassandra_options.require_reading_own_writes("the ledger of earnings")


class MicroBatches:
    """Takes the stream's micro-batches, one after the other."""

    def __init__(self, settings: PipelineSettings, parts: LedgerParts) -> None:
        self._settings = settings
        self._parts = parts
        self._copy = SoleCopy(settings, EARNINGS.group)
        self._phones = PhonesOfSettings(settings)

    def take(self, records: DataFrame, batch_id: int) -> None:
        """Work off a batch of records; done when tables and topics are."""
        self._copy.check()
        batch = micro_batch(records.sparkSession, f"{EARNINGS.group}-parts", batch_id)
        # A backfill may have come between a batch and its return: states are others then, not more.
        sink = RecordSink(self._settings, batch, same_content=False)
        work = BatchWork(self._settings, self._parts, sink, EARNINGS.group)
        answers = work_on_parts(
            records, pack(self._parts, EARNINGS.name, self._phones.now()), self._parts.count, work
        )
        count_quality(self._settings.directory, EARNINGS.name, work.finish(answers))


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Merge the events of a range of time into the ledger, and publish the states that depend on them."""
    parts = _prepare(settings)
    start, end = _text(time_range.start), _text(time_range.end)
    raw = read_range(session, settings, EARNINGS.inputs, time_range).select(*COLUMNS)
    answers = work_on_parts(raw, pack_range(parts, start, end), parts.count, merge_entries(settings, parts))
    merged = sum(map(int, answers))
    states = _publish_anew(session, settings, parts, (start, end))
    found, letters = _write_missing_letters(raw, settings, (start, end))
    return BackfillReport(
        read=merged + found,
        written={"events in the ledger": merged, "table user_earnings": states, f"topic {TOPIC}": states},
        dead_letters=letters,
    )


def _publish_anew(
    session: SparkSession, settings: PipelineSettings, parts: LedgerParts, days: tuple[str, str]
) -> int:
    """Derive and publish anew what a range bears on, in tasks: by files, or by slices of Cassandra's ring."""
    numbers = session.range(0, parts.count, 1, parts.count)
    if settings.cassandra is None:
        answers = work_on_partitions(numbers, publish_parts(settings, parts, EARNINGS.group, *days))
    else:
        slices = pack_touched(settings, parts, *days)
        answers = work_on_parts(numbers, slices, parts.count, publish_touched(settings, EARNINGS.group))
    return sum(map(int, answers))


def _write_missing_letters(
    raw: DataFrame, settings: PipelineSettings, days: tuple[str, str]
) -> tuple[int, int]:
    """Dead letters found and written: the stream may have written letters for these records before."""
    phones = PhonesOfSettings(settings).now()
    letters = dead_letters(malformed(raw, *days), EARNINGS.name, phones).persist()
    try:
        return letters.count(), write_missing(letters, settings, EARNINGS.group)
    finally:
        letters.unpersist()


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
