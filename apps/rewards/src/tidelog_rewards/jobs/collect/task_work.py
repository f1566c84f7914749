"""What the tasks of collect do with a micro-batch: events into files and tables, dead letters to one task.

A record is parsed once, by the parser of its own kind, and its fields go as columns of Arrow into the files
that the task writes; none of them passes through Spark's JVM. With Cassandra the task sends the same rows
there. Letters go to one more task, whatever the number of cores is, which writes them as the batch's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.dead_letters.dead_letter import letter_batch
from tidelog.spark.sinks.lake import LakeWrite, answer_of
from tidelog.spark.sinks.partition_work import Batches, Parcel, from_bytes, to_bytes, with_rows
from tidelog.spark.sinks.record_sink import RecordSink
from tidelog.spark.sinks.table import ChangingTableSink
from tidelog_rewards import events
from tidelog_rewards.event_parser import parser_of
from tidelog_rewards.jobs.collect.schema import TABLES
from tidelog_rewards.phones.phone_tokens import PhonesWritten
from tidelog_rewards.task_quality import TaskQuality

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What is needed of a record."""

LETTERS, FILES, TOLD, QUALITY = "letters", "files", "told", "quality"
"""Parcels with letters; parcels that become answers: files that were written, what the sink is told,
figures."""

_PHONE = "phone"
_TABLE_OF = {table.name: table for table in TABLES}


def collecting(
    write: LakeWrite, tables: ChangingTableSink | None, pipeline: str, phones: PhonesWritten
) -> Callable[[Batches], Iterator[Parcel]]:
    """Write the events of a partition of records into files, and send on which there are, and the letters."""

    def packed(batches: Batches) -> Iterator[Parcel]:
        files = write.open()
        quality = TaskQuality()
        for batch in batches:
            for kind, records in _by_topic(batch):
                rows, letters = parse(records, kind, pipeline, quality, phones)
                if rows.num_rows:
                    assert kind is not None
                    files.add_to(kind.name, rows)
                    if tables is not None:
                        _send(tables, kind, rows)
                if letters.num_rows:
                    yield Parcel(0, LETTERS, to_bytes(letters))
        yield Parcel(0, QUALITY, quality.told())
        yield Parcel(0, FILES, answer_of(files).encode())

    return packed


def writing_letters(sink: RecordSink) -> Callable[[int, Iterator[Parcel]], Iterator[str]]:
    """Write the letters of a batch, if there are any; answers with what the sink is told, and the files.

    Letters are written as they come: those of a batch without a single event are more than memory holds.
    """

    def unpacked(part: int, parcels: Iterator[Parcel]) -> Iterator[str]:
        others: list[Parcel] = []
        if (letters := with_rows(_letters(parcels, others))) is not None:
            yield json.dumps([TOLD, sink.told(sink.write(part, letters))])
        for parcel in others:
            yield json.dumps([parcel.kind, parcel.data.decode()])

    return unpacked


def _letters(parcels: Iterator[Parcel], others: list[Parcel]) -> Batches:
    """The letters; all other parcels, which are few and small, are put aside."""
    for parcel in parcels:
        if parcel.kind == LETTERS:
            yield from from_bytes(parcel.data)
        else:
            others.append(parcel)


def files_of(answers: Sequence[str]) -> list[str]:
    """What tasks tell of the files that they have written."""
    return [text for kind, text in map(json.loads, answers) if kind == FILES]


def report_of(answers: Sequence[str]) -> list[str]:
    """What the sink is to be told."""
    return [text for kind, text in map(json.loads, answers) if kind == TOLD]


def told_quality(answers: Sequence[str]) -> list[str]:
    """What tasks have counted."""
    return [text for kind, text in map(json.loads, answers) if kind == QUALITY]


def parse(
    records: pa.RecordBatch,
    kind: events.EventKind | None,
    pipeline: str,
    quality: TaskQuality,
    phones: PhonesWritten,
) -> tuple[pa.Table, pa.RecordBatch]:
    """Records of one topic as rows of their table, and the letters of those that are no events."""
    parser = parser_of(events.LOGS) if kind is None else parser_of((kind,), kind)
    parsed = parser.columns(*(records.column(name) for name in ("topic", "value", "timestamp")))
    quality.add(kind, parsed)
    codes = parsed.field("code")
    letters = letter_batch(records, codes, parsed.field("reason"), pipeline, phones)
    if letters.num_rows:
        good = pc.is_null(codes)
        parsed, records = parsed.filter(good), records.filter(good)
    # The day is UTC's.
    day = parsed.field("event_time").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    columns = {field.name: parsed.field(field.name) for field in kind.fields} if kind is not None else {}
    if _PHONE in columns:
        columns[_PHONE] = with_tokens(columns[_PHONE], columns["event_time"], phones)
    columns |= {
        "date": day.cast(pa.string()),
        "topic": records.column("topic"),
        "partition": records.column("partition").cast(pa.int64()),
        "offset": records.column("offset"),
    }
    return pa.table(columns), letters


def with_tokens(numbers: pa.Array, times: pa.Array, phones: PhonesWritten) -> pa.Array:
    """What stands for the numbers of events."""
    times_us = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    pairs = zip(numbers.to_pylist(), times_us, strict=True)
    return pa.array([None if phone is None else phones.of(phone, time) for phone, time in pairs], pa.string())


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[events.EventKind | None, pa.RecordBatch]]:
    """The records of each topic, in their order."""
    topics = pc.unique(batch.column("topic")).to_pylist()
    for topic in topics:
        chosen = batch if len(topics) == 1 else batch.filter(pc.equal(batch.column("topic"), topic))
        kind = events.BY_TOPIC.get(topic)
        yield kind if kind in events.LOGS else None, chosen


def _send(tables: ChangingTableSink, kind: events.EventKind, rows: pa.Table) -> None:
    table = _TABLE_OF[kind.name]
    columns = (_sent(rows[name]).to_pylist() for name in table.names)
    tables.write(table, zip(*columns, strict=True))


def _sent(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times go as milliseconds."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return column
