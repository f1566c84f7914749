"""What the tasks of phone-region do: enrich and write, and bring the table of users up to date.

A task that reads records does all of it by itself: when its events are written, in this attempt or in an
earlier one, it writes the rows of the users that it has come across. Which of two rows of a user stays does
not depend on who writes first, so tasks need not meet, and need not hold all users until their end.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec
import pyarrow as pa

from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.pipelines.quality import Quality
from tidelog.spark.sinks.partition_work import Work, task_number
from tidelog.spark.sinks.record_sink import RecordSink
from tidelog.spark.sinks.table import ChangingTableSink
from tidelog_rewards.jobs.phone_region.enriching import Reading, UserRegions, enrich, parse, show
from tidelog_rewards.jobs.phone_region.schema import TABLE
from tidelog_rewards.task_quality import TaskQuality

MOST_USERS = 200_000
"""So many are held before they are written, some 80 MB."""


class Enriched(msgspec.Struct, frozen=True):
    """What a task answers that has written its events."""

    told: str
    """For the sink."""
    quality: Quality


class LookedUp(msgspec.Struct, frozen=True):
    """What a task answers of a range of time."""

    read: int
    """Events."""
    users: int
    """Rows that were written; a user may have several."""


def enriching(sink: RecordSink, tables: ChangingTableSink, pipeline: str, reading: Reading) -> Work:
    """Write the enriched events of a partition of records, and what they show about users.

    Nothing is written from a machine from which the users' rows could not be.
    """

    def work(records: Iterator[pa.Table]) -> str:
        tables.check_host()
        users, quality = UserRegions(reading), TaskQuality()

        def made() -> Iterator[pa.RecordBatch]:
            for batch in enrich(_batches(records), users, pipeline, quality):
                if batch.num_rows:
                    yield batch
                if len(users) >= MOST_USERS:
                    _write(users, tables)

        told = sink.told(sink.write(task_number(), made()))
        _write(users, tables)
        return _encoded(Enriched(told, quality.counted()))

    return work


def looking_up(tables: ChangingTableSink, time_range: TimeRange, reading: Reading) -> Work:
    """Write what the events of a range of time show about users."""
    first_us, end_us = (_micros(moment) for moment in (time_range.start, time_range.end))

    def work(records: Iterator[pa.Table]) -> str:
        tables.check_host()
        users = UserRegions(reading)
        read = written = 0
        for batch in _batches(records):
            read += show(parse(batch), users, first_us, end_us)
            if len(users) >= MOST_USERS:
                written += _write(users, tables)
        return _encoded(LookedUp(read, written + _write(users, tables)))

    return work


def _write(users: UserRegions, tables: ChangingTableSink) -> int:
    """Write the rows of users, and forget them; returns how many there were."""
    written = tables.write(TABLE, users.rows) if users else 0
    users.clear()
    return written


def _encoded(answer: msgspec.Struct) -> str:
    return msgspec.json.encode(answer).decode()


def _batches(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    return (batch for table in tables for batch in table.to_batches())


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
