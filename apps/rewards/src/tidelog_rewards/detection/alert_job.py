"""How the detecting pipelines run: micro-batches of a stream exactly once, and a range of time as a backfill.

What is done with events is done in tasks (``alert_tasks``). The driver's part is here: it settles by which
rules a batch is judged, has it worked off, one Spark job and sometimes a second, small one, keeps the
watermark and the table of incidents, and counts.

A backfill computes the incidents of a range of time anew. It writes those whose evidence the topic does not
hold yet, or which are over meanwhile, in one transaction, so that running it twice leaves what running it
once leaves, and an incident that late events have changed replaces the old one. Nobody but a later backfill
closes what only a backfill has found. A later episode of the same subject is never replaced by an earlier
one: the range knows nothing of it. Nor is what came into the topics since the backfill began: a stream may
have made it of events that the backfill has not read. Where retention has deleted some of what the range is
judged by, a backfill refuses, or adds incidents of new subjects alone (``allow_cut_log``).
Called by ``account_switch.job`` and ``invite_fraud.job``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Generic

import msgspec
from pyspark.sql import functions as F

from tidelog.spark.pipelines.figures import count_detections, count_quality
from tidelog.spark.pipelines.pipeline import BackfillReport, Pipeline, TimeRange
from tidelog.spark.pipelines.quality import NOTHING
from tidelog.spark.pipelines.query import require_state, start_query
from tidelog.spark.pipelines.source import read_range, read_stream
from tidelog.spark.runtime.active_session import make_active
from tidelog.spark.runtime.private_directory import make_private
from tidelog.spark.runtime.scratch_directory import remove_leftovers, scratch_directory
from tidelog.spark.settings import PipelineSettings, client_options, connector_options
from tidelog.spark.sinks import open_tables
from tidelog.spark.sinks.record_sink import RECORD
from tidelog_rewards.detection.alert_evidence import Window, time_text
from tidelog_rewards.detection.alert_state import WAY_OUT, layout_path, newest_event_us, open_layout
from tidelog_rewards.detection.alert_tasks import (
    AlertSink,
    Answer,
    Batch,
    BatchTask,
    answers_of,
    followed_up,
    merged,
)
from tidelog_rewards.detection.batch_terms import BatchTerms, RuledDetector, RulesT
from tidelog_rewards.detection.incident_table import TABLE
from tidelog_rewards.detection.incidents import IncidentRow
from tidelog_rewards.detection.log_reach import ends, is_cut
from tidelog_rewards.events import (
    ACCOUNT_SWITCH_ALERTS,
    ALERT_VERDICTS,
    DEAD_LETTERS,
    INCIDENTS,
    INVITE_FRAUD_ALERTS,
)
from tidelog_rewards.phones.phone_tokens import PhonesOfSettings
from tidelog_rewards.settings import RewardsSettings
from tidelog_rewards.topics import ensure_topics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.ids import TopicPartition
    from tidelog.spark.sinks.table import ChangingTableSink

ALERT_TOPICS = {"account-switch": ACCOUNT_SWITCH_ALERTS, "invite-fraud": INVITE_FRAUD_ALERTS}

_BACKFILL_BUCKETS = 32
"""A backfill is one batch, and a task holds the rows of a bucket in memory."""
_NOTHING_IS_LATE = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def prepare(settings: PipelineSettings, pipeline: Pipeline) -> None:
    """Create the topics that are missing: a source does not start without them."""
    outputs = (ALERT_TOPICS[pipeline.name], INCIDENTS, ALERT_VERDICTS, DEAD_LETTERS)
    ensure_topics(settings, (*pipeline.inputs, *outputs))


def one_task(records: DataFrame) -> DataFrame:
    """Alerts are few: one task writes a batch in one transaction, and a replay is cut the same way."""
    return records.select(*RECORD).repartition(1)


class KeyedBatches(Generic[RulesT]):
    """Has the micro-batches of a streaming query worked off; the driver's part of ``alert_tasks``.

    Python data sources take no output mode ``update``, so alerts are written from ``foreachBatch``, by tasks
    that name the batch. A batch that is replayed adds nothing.
    """

    def __init__(self, settings: PipelineSettings, detector: RuledDetector[RulesT]) -> None:
        self._settings = settings
        self._usual = detector
        self._name = detector.name
        self._run_id = uuid.uuid4().hex
        self._state = state_directory(settings, detector.name)
        self._layout = open_layout(self._state, detector.schema, settings.state_partitions)
        self._terms = BatchTerms(settings, detector, self._state)
        self._phones = PhonesOfSettings(settings)
        self._tables: ChangingTableSink | None = None
        self._newest_us: int | None = None
        self._closes_us = 0

    def work_off(self, batch: DataFrame, batch_id: int) -> None:
        """Work off a micro-batch; what it found is written when this returns."""
        session = batch.sparkSession
        task = self._task(batch_id)
        tasks = min(self._layout.buckets, session.sparkContext.defaultParallelism)
        answers = self._run(merged(batch, task, tasks), task)
        is_due = self._closes_us <= task.batch.watermark_us or bool(task.terms.changed)
        if is_due or any(answer.follow_ups for answer in answers):
            judged = self._run(followed_up(session, task), task)
            self._closes_us = judged[0].closes_us
            self._keep(judged[0].incidents)
            answers += judged
        self._newest_us = max([self._newest_us or 0, *(answer.newest_us for answer in answers)])
        latest_us = self._newest_us - task.detector.watermark_delay_us
        watermark_us = max(task.batch.watermark_us, latest_us)
        count_detections(self._settings.directory, self._name, answers, watermark_us)
        counted = sum((each.quality for each in answers if each.quality is not None), NOTHING)
        count_quality(self._settings.directory, self._name, counted)

    def _task(self, batch_id: int) -> BatchTask:
        if self._newest_us is None:
            self._newest_us = newest_event_us(self._state, self._layout.buckets, batch_id)
        terms = self._terms.of(batch_id, self._newest_us)
        detector = self._usual.ruled(terms.rules)
        batch = Batch(batch_id, terms.watermark_us, terms.watermark_us - detector.memory_us)
        told = terms.told(detector, batch.watermark_us)
        phones, sink = self._phones.now(), self.sink(batch_id)
        return BatchTask(detector, self._state, self._layout.buckets, batch, told, phones, sink)

    def _keep(self, rows: Sequence[IncidentRow]) -> None:
        """Bring the table of incidents up to date; it has subjects, and no events."""
        if not rows:
            return
        if self._tables is None:
            self._tables = open_tables(self._settings)
            self._tables.ensure(TABLE)
        _write_rows(self._tables, rows)

    def sink(self, batch_id: int) -> AlertSink | None:
        """What the tasks of a batch write through; None where Spark's own connector writes."""
        if self._settings.format != "tidelog":
            return None
        from tidelog.spark.write.write_options import write_options

        app_id = self._application()
        options = write_options(_sink_options(self._settings, app_id, batch_id), streaming=False)
        options.login.for_tasks()
        return AlertSink(options, app_id, self._run_id)

    def _run(self, results: DataFrame, task: BatchTask) -> list[Answer]:
        if task.sink is not None:
            return answers_of(results)
        kept = results.persist()
        try:
            answers = answers_of(kept)
            if any(answer.alerts or answer.letters for answer in answers):
                found = kept.where(F.col("topic").isNotNull())
                write_batch(found, self._settings, self._application(), task.batch.batch_id)
            return answers
        finally:
            kept.unpersist()

    def _application(self) -> str:
        """The name under which the sink remembers what a checkpoint has written: its query's id."""
        path = self._settings.checkpoint(self._name) / "metadata"
        return f"{self._name}-{msgspec.json.decode(path.read_bytes())['id']}"


def _write_rows(tables: ChangingTableSink, rows: Iterable[IncidentRow]) -> None:
    tables.write(TABLE, map(msgspec.structs.astuple, rows))


def state_directory(settings: PipelineSettings, name: str) -> Path:
    """Where tasks keep the state of a checkpoint: beside what Spark keeps, on a disk that all of them see."""
    return settings.checkpoint(name).absolute() / "keyed"


def start_detecting(
    session: SparkSession, settings: PipelineSettings, pipeline: Pipeline, detector: RuledDetector[RulesT]
) -> StreamingQuery:
    """Start the streaming query of a detecting pipeline."""
    state = state_directory(settings, detector.name)
    require_state(settings.checkpoint(detector.name), layout_path(state), WAY_OUT)
    prepare(settings, pipeline)
    make_private(settings.directory)
    remove_leftovers(settings.directory, f"backfill-{detector.name}")
    raw = read_stream(session, settings, pipeline, pipeline.inputs)
    batches = KeyedBatches(settings, detector)
    return start_query(raw.writeStream.foreachBatch(batches.work_off), settings, detector.name)


def backfill_range(
    session: SparkSession,
    settings: PipelineSettings,
    pipeline: Pipeline,
    detector: RuledDetector[RulesT],
    time_range: TimeRange,
) -> BackfillReport:
    """Detect in a range of time, as one batch with a state that is thrown away.

    Records are read with what they are judged by (``Window.with_context``); incidents are told that have
    evidence of the range, and differ in it from what the topic holds.
    """
    prepare(settings, pipeline)
    make_private(settings.directory)
    with scratch_directory(settings.directory, f"backfill-{detector.name}") as directory:
        terms = BatchTerms(settings, detector, directory).of(0)
        ruled = detector.ruled(terms.rules)
        window = window_of(time_range)
        context = window.with_context(ruled.memory_us)
        client = client_options(settings)
        cut = is_cut(
            client,
            pipeline.inputs,
            window,
            ruled.memory_us,
            allowed=settings.extension(RewardsSettings).allow_cut_log,
        )
        # Before it is settled how far the inputs are read: what is held until here knows no more than these.
        known = {} if cut else ends(client, _outputs(detector.name))
        raw = read_range(session, settings, pipeline.inputs, time_range_of(context))
        batch = Batch(0, _NOTHING_IS_LATE, window.start_us - ruled.memory_us)
        state = directory.absolute()
        told = terms.told(ruled, _NOTHING_IS_LATE)
        phones = PhonesOfSettings(settings).now()
        task = BatchTask(ruled, state, _BACKFILL_BUCKETS, batch, told, phones, None, window)
        tasks = min(_BACKFILL_BUCKETS, session.sparkContext.defaultParallelism)
        results = merged(raw, task, tasks).persist()
        judged: DataFrame | None = None
        rows: Sequence[IncidentRow] = ()
        dropped = 0
        try:
            answers = answers_of(results)
            found = results
            if any(answer.follow_ups for answer in answers):
                newest_us = max(answer.newest_us for answer in answers)
                late_us = newest_us - ruled.watermark_delay_us
                judging = replace(task, terms=terms.told(ruled, late_us))
                judged = followed_up(session, judging).persist()
                answer = answers_of(judged)[0]
                found, rows, dropped = results.unionByName(judged), answer.incidents, answer.dropped
            records = found.where(F.col("topic").isNotNull()).select(*RECORD)
            read = sum(answer.events for answer in answers)
            held = _held(session, settings, detector.name, known)
            fresh = lacking(records, held, time_text(context.end_us))
            report = backfill_records(settings, detector.name, fresh, rows, read)
            return replace(report, dropped=dropped)
        finally:
            results.unpersist()
            if judged is not None:
                judged.unpersist()


def window_of(time_range: TimeRange) -> Window:
    """A range of time in microseconds."""
    start, end = (round(moment.timestamp() * 1_000_000) for moment in (time_range.start, time_range.end))
    return Window(start, end)


def time_range_of(window: Window) -> TimeRange:
    """The same as moments."""
    start, end = (_EPOCH + timedelta(microseconds=moment_us) for moment_us in window)
    return TimeRange(start, end)


def write_batch(records: DataFrame, settings: PipelineSettings, app_id: str, version: int) -> None:
    """Write records as version ``version`` of ``app_id``: a second time nothing is added."""
    make_active(records.sparkSession)
    options = _sink_options(settings, app_id, version)
    one_task(records).write.format(settings.format).options(**options).mode("append").save()


def _sink_options(settings: PipelineSettings, app_id: str, version: int) -> dict[str, str]:
    options = connector_options(settings)
    if settings.format == "tidelog":
        options |= {"txnAppId": app_id, "txnVersion": str(version)}
    return options


def backfill_records(
    settings: PipelineSettings, name: str, fresh: DataFrame, rows: Sequence[IncidentRow], read: int
) -> BackfillReport:
    """Write records that their topics lack, with the rows that go with them, and count them by topic."""
    fresh = fresh.persist()
    try:
        written = {row["topic"]: row["count"] for row in fresh.groupBy("topic").count().collect()}
        if INCIDENTS in written:
            keys = fresh.where(F.col("topic") == INCIDENTS).select("key").collect()
            names = {bytes(row["key"]).decode() for row in keys}
            # Rows first: what a backfill lacks that was killed in between, the next one still finds lacking.
            with open_tables(settings) as tables:
                tables.ensure(TABLE)
                _write_rows(tables, (row for row in rows if row.incident_id in names))
        if written:
            write_batch(fresh, settings, f"{name}-backfill-{uuid.uuid4().hex}", 0)
    finally:
        fresh.unpersist()
    dead = written.pop(DEAD_LETTERS, 0)
    return BackfillReport(read, {f"topic {topic}": count for topic, count in written.items()}, dead)


def _outputs(name: str) -> tuple[str, ...]:
    return ALERT_TOPICS[name], INCIDENTS, DEAD_LETTERS


def _held(
    session: SparkSession, settings: PipelineSettings, name: str, known: Mapping[TopicPartition, int]
) -> DataFrame:
    """What is in the topics that a backfill writes to; ``knows_more`` is what is not before ``known``."""
    options = {
        **connector_options(settings),
        "subscribe": ",".join(_outputs(name)),
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    held = session.read.format(settings.format).options(**options).load()
    return held.withColumn("knows_more", ~_is_before(known))


def _is_before(known: Mapping[TopicPartition, int]) -> Column:
    """Whether a record has an offset before that of its partition."""
    if not known:
        return F.lit(False)
    pairs = [
        column
        for (topic, partition), end in known.items()
        for column in (F.lit(f"{topic}-{partition}"), F.lit(end).cast("long"))
    ]
    end_of = F.create_map(*pairs)
    end = end_of[F.concat_ws("-", "topic", F.col("partition").cast("string"))]
    return F.coalesce(F.col("offset") < end, F.lit(False))


def lacking(records: DataFrame, held: DataFrame, known_until: str) -> DataFrame:
    """Of records those that topics do not hold: as the newest of its key, or as any of the dead letters.

    An incident that is held as open, and is closed by now, counts as lacking. One is left out, too, where the
    newest of its key has evidence from ``known_until`` on, of which these records know nothing, or may have
    (``knows_more``). Other evidence that they lack is evidence no more.
    """
    dead = F.col("topic") == DEAD_LETTERS
    newest = (
        held.where(~dead)
        .groupBy("topic", "key")
        .agg(
            F.max_by("value", "offset").alias("value"),
            F.max_by("headers", "offset").alias("headers"),
            F.max("knows_more").alias("held_knows_more"),
        )
        .select(
            F.col("topic").alias("held_topic"),
            F.col("key").alias("held_key"),
            _identity().alias("held_identity"),
            _field("updated").alias("held_updated"),
            _field("state").alias("held_state"),
            "held_knows_more",
        )
    )
    # A text: comparisons with null, of which records without a value have some, are no answer.
    is_over = F.concat_ws(" ", "held_state", "state").isin("open closed", "updated closed")
    is_held = (
        (F.col("topic") == F.col("held_topic"))
        & (F.col("key") == F.col("held_key"))
        & (
            ((F.col("identity") == F.col("held_identity")) & ~is_over)
            | (F.col("held_updated") >= F.lit(known_until))
            | F.col("held_knows_more")
        )
    )
    identified = records.select(*RECORD, _identity().alias("identity"), _field("state").alias("state"))
    letters = held.where(dead).select(_identity().alias("identity"))
    return (
        identified.where(~dead)
        .join(newest, is_held, "left_anti")
        .unionByName(identified.where(dead).join(letters, "identity", "left_anti").select(identified.columns))
        .select(*RECORD)
    )


def _field(name: str) -> Column:
    """A field of an incident, as text; null of other records. Times are ordered as their texts are."""
    return F.get_json_object(F.col("value").cast("string"), f"$.{name}")


def _identity() -> Column:
    """A hash over what is written of a record; of an incident over its evidence, whatever its state is."""
    headers = F.transform("headers", lambda header: F.concat_ws("=", header["key"], F.hex(header["value"])))
    evidence = _field("evidence")
    is_letter = F.col("topic") == DEAD_LETTERS
    parts = [
        F.col("topic"),
        F.coalesce(F.hex("key"), F.lit("-")),
        F.coalesce(F.when(is_letter, F.hex("value")).otherwise(evidence), F.lit("-")),
        F.coalesce(F.concat_ws(",", headers), F.lit("")),
    ]
    return F.sha2(F.concat_ws("/", *parts), 256)
