"""phone-region as a job: events with phone numbers → enriched events in a topic, and the table of users.

A micro-batch is one Spark job of one stage. The tasks that read records parse and enrich them, and write what
comes out, dead letters too, exactly once by the batch's number; then they write the rows of users, of which
the newest by event time stays in the table. To the driver come answers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tidelog.spark.dead_letters.dead_letter import dead_letters, write_missing
from tidelog.spark.pipelines.figures import count_quality
from tidelog.spark.pipelines.pipeline import BackfillReport, TimeRange
from tidelog.spark.pipelines.quality import NOTHING
from tidelog.spark.pipelines.query import start_query
from tidelog.spark.pipelines.source import read_range, read_stream
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks import open_tables
from tidelog.spark.sinks.partition_work import work_on_partitions
from tidelog.spark.sinks.record_sink import RecordSink, micro_batch
from tidelog_rewards import events
from tidelog_rewards.jobs.phone_region.enriching import COLUMNS, Reading
from tidelog_rewards.jobs.phone_region.schema import KINDS, TABLE
from tidelog_rewards.jobs.phone_region.task_work import Enriched, LookedUp, enriching, looking_up
from tidelog_rewards.parsing import malformed_in, parse_all
from tidelog_rewards.phones.phone_tokens import PhonesOfSettings
from tidelog_rewards.pipelines import PHONE_REGION
from tidelog_rewards.settings import RewardsSettings
from tidelog_rewards.topics import ensure_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog_rewards.jobs.phone_region.enriching import Reading

_INPUTS = (events.LOGIN.topic, events.MESSAGE_VERIFICATION.topic, events.INVITE.topic)


def start(session: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Start the streaming query."""
    _prepare(settings)
    stream = read_stream(session, settings, PHONE_REGION, PHONE_REGION.inputs).select(*COLUMNS)
    return start_query(stream.writeStream.foreachBatch(_taking(settings)), settings, PHONE_REGION.name)


def _prepare(settings: PipelineSettings) -> None:
    """A source does not start without its topics."""
    ensure_topics(settings, (*PHONE_REGION.inputs, events.USER_REGIONS, events.DEAD_LETTERS))


def _taking(settings: PipelineSettings) -> Callable[[DataFrame, int], None]:
    """What is done with each micro-batch of records. The table is made, or its store told of, at once."""
    tables = open_tables(settings)
    tables.ensure(TABLE)
    read = _reader(settings)
    decode = msgspec.json.Decoder(Enriched).decode

    def take(records: DataFrame, batch_id: int) -> None:
        sink = RecordSink(settings, micro_batch(records.sparkSession, PHONE_REGION.group, batch_id))
        work = enriching(sink, tables, PHONE_REGION.name, read())
        answers = [decode(answer) for answer in work_on_partitions(records, work)]
        sink.finish([answer.told for answer in answers])
        count_quality(
            settings.directory, PHONE_REGION.name, sum((answer.quality for answer in answers), NOTHING)
        )

    return take


def _reader(settings: PipelineSettings) -> Callable[[], Reading]:
    """What says, before each batch, how numbers are read and written."""
    phones = PhonesOfSettings(settings)
    given = settings.extension(RewardsSettings).phones
    return lambda: Reading(phones.now(), given.country, given.language)


def backfill(session: SparkSession, settings: PipelineSettings, time_range: TimeRange) -> BackfillReport:
    """Bring the table up to date; the topic is a history, and what the stream wrote is not repeated."""
    _prepare(settings)
    decode = msgspec.json.Decoder(LookedUp).decode
    found = read_range(session, settings, PHONE_REGION.inputs, time_range).select(*COLUMNS)
    with open_tables(settings) as tables:
        tables.ensure(TABLE)
        reading = _reader(settings)()
        work = looking_up(tables, time_range, reading)
        answers = [decode(answer) for answer in work_on_partitions(found, work)]
    malformed = malformed_in(parse_all(found, KINDS).rows, time_range)
    letters = write_missing(
        dead_letters(malformed, PHONE_REGION.name, reading.phones), settings, PHONE_REGION.group
    )
    written = {f"table {TABLE.name}": sum(answer.users for answer in answers)}
    return BackfillReport(read=sum(answer.read for answer in answers), written=written, dead_letters=letters)
