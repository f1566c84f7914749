"""Prints the batches of a segment, and their records where wanted: one row, or one JSON object, per batch.

FLAGS: T transactional, C control, A the broker's append time, H delete horizon set by the cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog.cli.log.dump_internal import internal_json, internal_text
from tidelog.cli.log.segment_scan import ScannedBatch, TornTail, base_offset_of, map_file, records_of, scan
from tidelog.cli.output import RowStream, print_json, print_json_stream, printable, time_text
from tidelog.cli.records.record_text import bytes_to_json, headers_to_json, readable
from tidelog.errors import CorruptRecordError
from tidelog.records.batch import BatchHeader
from tidelog.records.compression import Codec
from tidelog.records.control import parse_control_type
from tidelog.records.record import Record
from tidelog.wire.internal_topics.decode import RecordSchemas

_BATCH_COLUMNS = (
    ("OFFSETS", 17),
    ("POSITION", -10),
    ("SIZE", -9),
    ("RECORDS", -7),
    ("MAX TIMESTAMP", 24),
    ("CODEC", 6),
    ("EPOCH", -5),
    ("PRODUCER", 12),
    ("SEQUENCE", 10),
    ("FLAGS", 8),
    ("STATE", 2),
)


def dump_segment(path: Path, *, with_records: bool, json: bool, schemas: RecordSchemas | None = None) -> int:
    """Print the segment at ``path``; returns how many of its batches are damaged, a torn tail included.

    With ``schemas`` its records are read as those of an internal topic.
    """
    base_offset = base_offset_of(path)
    rows = None if json else RowStream(_BATCH_COLUMNS)
    damaged = 0
    with map_file(path) as data:
        for item in scan(data, base_offset):
            damaged += item.problem is not None
            if isinstance(item, TornTail):
                _print_tail(item, rows)
            elif rows is None:
                _print_batch_json(data, item, with_records, schemas)
            else:
                _print_batch(data, item, rows, with_records, schemas)
    return damaged


def _print_tail(tail: TornTail, rows: RowStream | None) -> None:
    if rows is None:
        fields = {"type": "torn_tail", "position": tail.position, "size_bytes": tail.size_bytes}
        print_json({**fields, "problem": tail.problem}, indent=None)
    else:
        rows.line(
            f"BAD from byte {tail.position} to the end ({tail.size_bytes} bytes): {tail.problem}", bad=True
        )


def _print_batch(
    data: memoryview,
    batch: ScannedBatch,
    rows: RowStream,
    with_records: bool,
    schemas: RecordSchemas | None,
) -> None:
    rows.row(_batch_row(batch), bad=batch.problem is not None)
    if not with_records:
        return
    try:
        for record in records_of(data, batch):
            rows.line(f"  {_record_text(record, _is_control(batch), schemas)}")
    except CorruptRecordError as error:
        rows.line(f"  BAD records: {error}", bad=True)


def _batch_row(batch: ScannedBatch) -> tuple[object, ...]:
    header = batch.header
    offsets = f"{batch.base_offset}..{batch.last_offset}"
    state = "ok" if batch.problem is None else f"BAD {batch.problem}"
    time = time_text(batch.max_timestamp)
    codec = _codec_name(header.codec)
    if not isinstance(header, BatchHeader):
        old = f"magic {header.magic}"
        return (offsets, batch.position, batch.size_bytes, None, time, codec, None, None, None, old, state)
    producer = f"{header.producer_id}/{header.producer_epoch}" if header.has_producer_id else None
    sequence = f"{header.base_sequence}..{header.last_sequence}" if header.base_sequence >= 0 else None
    flags = "".join(
        letter
        for letter, on in (
            ("T", header.is_transactional),
            ("C", header.is_control),
            ("A", header.timestamp_type),
            ("H", header.delete_horizon_ms is not None),
        )
        if on
    )
    return (
        offsets,
        batch.position,
        batch.size_bytes,
        header.record_count,
        time,
        codec,
        header.partition_leader_epoch,
        producer,
        sequence,
        flags or None,
        state,
    )


def _is_control(batch: ScannedBatch) -> bool:
    return isinstance(batch.header, BatchHeader) and batch.header.is_control


def _codec_name(number: int) -> str:
    return Codec(number).name.lower() if number in Codec.__members__.values() else f"unknown {number}"


def _record_text(record: Record, control: bool, schemas: RecordSchemas | None) -> str:
    if control:
        return f"{record.offset}  {time_text(record.timestamp)}  {parse_control_type(record.key).name}"
    if schemas is not None:
        return f"{record.offset}  {time_text(record.timestamp)}  {internal_text(record, schemas)}"
    headers = " ".join(f"{printable(name)}={readable(value)}" for name, value in record.headers)
    text = (
        f"{record.offset}  {time_text(record.timestamp)}  {readable(record.key)} → {readable(record.value)}"
    )
    return f"{text}  [{headers}]" if headers else text


def _print_batch_json(
    data: memoryview, batch: ScannedBatch, with_records: bool, schemas: RecordSchemas | None
) -> None:
    """Print a batch on one line; its records are written as they are read, which may be many."""
    fields = _batch_fields(batch)
    records: Iterator[Record] | None = None
    if with_records:
        try:
            records = records_of(data, batch)
        except CorruptRecordError as error:
            fields["records_problem"] = str(error)
    if records is None:
        print_json(fields, indent=None)
        return
    readable_as = None if _is_control(batch) else schemas
    print_json_stream(fields, "records", (_record_json(record, readable_as) for record in records))


def _batch_fields(batch: ScannedBatch) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "type": "batch",
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "position": batch.position,
        "size_bytes": batch.size_bytes,
        "max_timestamp": batch.max_timestamp,
        "magic": batch.header.magic,
        "codec": _codec_name(batch.header.codec),
        "crc": batch.header.crc,
        "valid": batch.problem is None,
        "problem": batch.problem,
    }
    header = batch.header
    if isinstance(header, BatchHeader):
        fields |= {
            "record_count": header.record_count,
            "partition_leader_epoch": header.partition_leader_epoch,
            "base_timestamp": header.base_timestamp,
            "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "delete_horizon_ms": header.delete_horizon_ms,
        }
    return fields


def _record_json(record: Record, schemas: RecordSchemas | None) -> dict[str, Any]:
    contents = (
        {**bytes_to_json("key", record.key), **bytes_to_json("value", record.value)}
        if schemas is None
        else internal_json(record, schemas)
    )
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        **contents,
        "headers": headers_to_json(record.headers),
    }
