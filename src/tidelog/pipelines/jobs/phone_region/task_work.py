"""What the tasks of phone-region do: enrich and write, and bring the table of users up to date.

A task that reads records writes the enriched events by itself and sends on what it has found out about users,
a row for each. One task takes these from all, keeps the newest of each user, and writes them: before the
batch is over for the driver, and whether or not the events were written by an earlier attempt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec
import pyarrow as pa

from tidelog.pipelines.framework.record_sink import RecordSink
from tidelog.pipelines.framework.sinks.partition_work import Batches, Parcel, task_number, with_rows
from tidelog.pipelines.framework.sinks.table import ChangingTableSink
from tidelog.pipelines.framework.task_quality import TaskQuality
from tidelog.pipelines.jobs.phone_region.enriching import Found, Reading, UserRegions, enrich, parse, show
from tidelog.pipelines.jobs.phone_region.schema import TABLE
from tidelog.pipelines.pipeline import TimeRange

Pack = Callable[[Batches], Iterator[Parcel]]
USERS, TOLD, READ, WRITTEN, QUALITY = "users", "told", "read", "written", "quality"
"""Parcels: rows of users. Parcels that become answers: what the sink is told, and counts."""


def enriching(sink: RecordSink, tables: ChangingTableSink, pipeline: str, reading: Reading) -> Pack:
    """Write the enriched events of a partition of records, and send on what they show about users.

    Nothing is written from a machine from which the users' rows could not be.
    """

    def packed(batches: Batches) -> Iterator[Parcel]:
        if (filled := with_rows(batches)) is None:
            return
        tables.check_host()
        users, quality = UserRegions(reading), TaskQuality()
        written = sink.write(task_number(), _filled(enrich(filled, users, pipeline, quality)))
        yield Parcel(0, TOLD, sink.told(written).encode())
        yield Parcel(0, QUALITY, quality.told())
        yield Parcel(0, USERS, msgspec.msgpack.encode(users.found))

    return packed


def looking_up(time_range: TimeRange, reading: Reading) -> Pack:
    """Send on what the events of a range of time show about users, and how many events there are."""
    first_us, end_us = (_micros(moment) for moment in (time_range.start, time_range.end))

    def packed(batches: Batches) -> Iterator[Parcel]:
        users = UserRegions(reading)
        read = sum(show(parse(batch), users, first_us, end_us) for batch in batches)
        yield Parcel(0, READ, str(read).encode())
        yield Parcel(0, USERS, msgspec.msgpack.encode(users.found))

    return packed


def writing_users(
    tables: ChangingTableSink, reading: Reading
) -> Callable[[int, Iterator[Parcel]], Iterator[str]]:
    """Write the newest rows of all users; answers with what else was sent, and the number of rows."""

    def unpacked(part: int, parcels: Iterator[Parcel]) -> Iterator[str]:
        users = UserRegions(reading)
        for parcel in parcels:
            if parcel.kind == USERS:
                users.take(msgspec.msgpack.decode(parcel.data, type=Found))
            else:
                yield json.dumps([parcel.kind, parcel.data.decode()])
        yield json.dumps([WRITTEN, str(tables.write(TABLE, users.rows) if users else 0)])

    return unpacked


class Answers:
    """What the tasks have answered, by its kind."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._told = [(str(kind), str(text)) for kind, text in map(json.loads, answers)]

    def of(self, kind: str) -> list[str]:
        """The answers of one kind."""
        return [text for each, text in self._told if each == kind]

    def total(self, kind: str) -> int:
        """The sum of the counts of one kind."""
        return sum(map(int, self.of(kind)))


def _filled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)
