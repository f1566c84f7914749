"""earnings as a job: credits and task steps into the ledger, what follows from it into tables and a topic.

A micro-batch is one Spark job of two stages: tasks read and parse records and make parcels of them for the
parts of the ledger; the task of each part merges, and writes states and dead letters (``part_work`` says in
which order, and what a crash leaves). To the driver come the tasks' answers, one for each part.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelog.spark.pipelines.pipeline import BackfillReport, Pipeline, TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards import events
from tidelog_rewards.jobs.earnings.schema import TABLES, TOPIC
from tidelog_rewards.topics import ALL as TOPICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog_rewards.jobs.earnings.parts import LedgerParts

NAME = "earnings"


def _start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    from tidelog.spark.pipelines.query import require_state, start_query
    from tidelog.spark.pipelines.source import read_stream
    from tidelog_rewards.jobs.earnings.packing import COLUMNS
    from tidelog_rewards.jobs.earnings.parts import note_path

    require_state(
        settings.checkpoint(NAME),
        note_path(settings),
        "move the checkpoint away and start with --starting-offsets earliest, or have `tidelog pipeline "
        "backfill earnings` make a ledger of what the log holds",
    )
    batches = MicroBatches(settings, _prepare(settings))
    stream = read_stream(session, settings, PIPELINE, PIPELINE.inputs).select(*COLUMNS)
    return start_query(stream.writeStream.foreachBatch(batches.take), settings, NAME)


def _prepare(settings: PipelineSettings) -> LedgerParts:
    """A source does not start without its topics, nor a task without its tables."""
    from tidelog_rewards.jobs.earnings.ledger import prepare_ledger
    from tidelog_rewards.jobs.earnings.parts import ledger_parts
    from tidelog_rewards.topics import ensure_topics

    _check(settings)
    ensure_topics(settings, (*PIPELINE.inputs, TOPIC, events.DEAD_LETTERS))
    prepare_ledger(settings)
    return ledger_parts(settings)


def _check(settings: PipelineSettings) -> None:
    """What follows from the ledger is computed by reading what was just written."""
    if settings.cassandra is not None:
        settings.cassandra_options.require_reading_own_writes("the ledger of earnings")


class MicroBatches:
    """Takes the stream's micro-batches, one after the other."""

    def __init__(self, settings: PipelineSettings, parts: LedgerParts) -> None:
        from tidelog_rewards.jobs.earnings.publisher import SoleCopy
        from tidelog_rewards.phones.phone_tokens import PhonesOfSettings

        self._settings = settings
        self._parts = parts
        self._copy = SoleCopy(settings, PIPELINE.group)
        self._phones = PhonesOfSettings(settings)

    def take(self, records: DataFrame, batch_id: int) -> None:
        """Work off a batch of records; done when tables and topics are."""
        from tidelog.spark.pipelines.figures import count_quality
        from tidelog.spark.sinks.partition_work import work_on_parts
        from tidelog.spark.sinks.record_sink import RecordSink, micro_batch
        from tidelog_rewards.jobs.earnings.packing import pack
        from tidelog_rewards.jobs.earnings.part_work import BatchWork

        self._copy.check()
        batch = micro_batch(records.sparkSession, f"{PIPELINE.group}-parts", batch_id)
        # A backfill may have come between a batch and its return: states are others then, not more.
        sink = RecordSink(self._settings, batch, same_content=False)
        work = BatchWork(self._settings, self._parts, sink, PIPELINE.group)
        answers = work_on_parts(records, pack(self._parts, NAME, self._phones.now()), self._parts.count, work)
        count_quality(self._settings.directory, NAME, work.finish(answers))


def _backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    from tidelog.spark.pipelines.source import read_range
    from tidelog.spark.sinks.partition_work import work_on_parts
    from tidelog_rewards.jobs.earnings.packing import COLUMNS, pack_range
    from tidelog_rewards.jobs.earnings.part_work import merge_entries

    parts = _prepare(settings)
    start, end = _text(time_range.start), _text(time_range.end)
    raw = read_range(session, settings, PIPELINE.inputs, time_range).select(*COLUMNS)
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
    from tidelog.spark.sinks.partition_work import work_on_partitions, work_on_parts
    from tidelog_rewards.jobs.earnings.part_work import pack_touched, publish_parts, publish_touched

    numbers = session.range(0, parts.count, 1, parts.count)
    if settings.cassandra is None:
        answers = work_on_partitions(numbers, publish_parts(settings, parts, PIPELINE.group, *days))
    else:
        slices = pack_touched(settings, parts, *days)
        answers = work_on_parts(numbers, slices, parts.count, publish_touched(settings, PIPELINE.group))
    return sum(map(int, answers))


def _write_missing_letters(
    raw: DataFrame, settings: PipelineSettings, days: tuple[str, str]
) -> tuple[int, int]:
    """Dead letters found and written: the stream may have written letters for these records before."""
    from tidelog.spark.dead_letters.dead_letter import dead_letters, write_missing
    from tidelog_rewards.jobs.earnings.transform import malformed
    from tidelog_rewards.phones.phone_tokens import PhonesOfSettings

    phones = PhonesOfSettings(settings).now()
    letters = dead_letters(malformed(raw, *days), NAME, phones).persist()
    try:
        return letters.count(), write_missing(letters, settings, PIPELINE.group)
    finally:
        letters.unpersist()


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


PIPELINE = Pipeline(
    name=NAME,
    summary="Income and task progress of each user, exact to the cent, as events come.",
    inputs=(events.CREDIT.topic, events.TASK.topic),
    outputs=(*(f"table {table}" for table in TABLES), f"topic {TOPIC}"),
    start=_start,
    backfill=_backfill,
    check=_check,
    preload=("tidelog_rewards.jobs.earnings.part_work",),
    topics=TOPICS,
)
