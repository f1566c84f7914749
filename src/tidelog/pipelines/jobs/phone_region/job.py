"""phone-region as a job: events with phone numbers → enriched events in a topic, and the table of users.

A micro-batch is one Spark job. The tasks that read records parse and enrich them, and write what comes out,
dead letters too, exactly once by the batch's number. What they find out about users goes to one more task,
which writes the table's rows, of which the newest by event time stays. To the driver come answers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.pipelines.framework import events
from tidelog.pipelines.pipeline import BackfillReport, Pipeline, PipelineSettings, TimeRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.pipelines.jobs.phone_region.enriching import Reading

NAME = "phone-region"
_INPUTS = (events.LOGIN.topic, events.MESSAGE_VERIFICATION.topic, events.INVITE.topic)


def _start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    from tidelog.pipelines.framework.query import start_query
    from tidelog.pipelines.framework.source import read_stream
    from tidelog.pipelines.jobs.phone_region.enriching import COLUMNS

    _prepare(settings)
    stream = read_stream(session, settings, PIPELINE, PIPELINE.inputs).select(*COLUMNS)
    return start_query(stream.writeStream.foreachBatch(_taking(settings)), settings, NAME)


def _prepare(settings: PipelineSettings) -> None:
    """A source does not start without its topics."""
    from tidelog.pipelines.framework.topics import ensure_topics

    ensure_topics(settings, (*PIPELINE.inputs, events.USER_REGIONS, events.DEAD_LETTERS))


def _taking(settings: PipelineSettings) -> Callable[[DataFrame, int], None]:
    """What is done with each micro-batch of records. The table is made, or its store told of, at once."""
    from tidelog.pipelines.framework.figures import count_quality
    from tidelog.pipelines.framework.quality import quality_of
    from tidelog.pipelines.framework.record_sink import RecordSink, micro_batch
    from tidelog.pipelines.framework.sinks import open_tables
    from tidelog.pipelines.framework.sinks.partition_work import work_on_parts
    from tidelog.pipelines.jobs.phone_region.schema import TABLE
    from tidelog.pipelines.jobs.phone_region.task_work import (
        QUALITY,
        TOLD,
        Answers,
        enriching,
        writing_users,
    )

    tables = open_tables(settings)
    tables.ensure(TABLE)
    read = _reader(settings)

    def take(records: DataFrame, batch_id: int) -> None:
        sink = RecordSink(settings, micro_batch(records.sparkSession, PIPELINE.group, batch_id))
        reading = read()
        users = writing_users(tables, reading)
        answers = Answers(work_on_parts(records, enriching(sink, tables, NAME, reading), 1, users))
        sink.finish(answers.of(TOLD))
        count_quality(settings.directory, NAME, quality_of(answers.of(QUALITY)))

    return take


def _reader(settings: PipelineSettings) -> Callable[[], Reading]:
    """What says, before each batch, how numbers are read and written."""
    from tidelog.pipelines.framework.phone_tokens import PhonesOfSettings
    from tidelog.pipelines.jobs.phone_region.enriching import Reading

    phones = PhonesOfSettings(settings)
    return lambda: Reading(phones.now(), settings.phones.country, settings.phones.language)


def _backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Bring the table up to date; the topic is a history, and what the stream wrote is not repeated."""
    from tidelog.pipelines.framework.dead_letter import dead_letters, write_missing
    from tidelog.pipelines.framework.parsing import malformed_in, parse_all
    from tidelog.pipelines.framework.sinks import open_tables
    from tidelog.pipelines.framework.sinks.partition_work import work_on_parts
    from tidelog.pipelines.framework.source import read_range
    from tidelog.pipelines.jobs.phone_region.enriching import COLUMNS
    from tidelog.pipelines.jobs.phone_region.schema import KINDS, TABLE
    from tidelog.pipelines.jobs.phone_region.task_work import (
        READ,
        WRITTEN,
        Answers,
        looking_up,
        writing_users,
    )

    _prepare(settings)
    found = read_range(session, settings, PIPELINE.inputs, time_range).select(*COLUMNS)
    with open_tables(settings) as tables:
        tables.ensure(TABLE)
        reading = _reader(settings)()
        users = writing_users(tables, reading)
        answers = Answers(work_on_parts(found, looking_up(time_range, reading), 1, users))
    malformed = malformed_in(parse_all(found, KINDS).rows, time_range)
    letters = write_missing(dead_letters(malformed, NAME, reading.phones), settings, PIPELINE.group)
    written = {f"table {TABLE.name}": answers.total(WRITTEN)}
    return BackfillReport(read=answers.total(READ), written=written, dead_letters=letters)


PIPELINE = Pipeline(
    name=NAME,
    summary="Region, carrier and validity of phone numbers, added to the events that carry one.",
    inputs=_INPUTS,
    outputs=(f"topic {events.USER_REGIONS}", "table user_regions"),
    start=_start,
    backfill=_backfill,
)
