"""Reads a segment's batches one after the other and says where it is damaged; opens files read-only.

Used by ``log dump`` and ``log verify``. Damage is judged as recovery judges it: what follows the first
batch that fails its length, magic, checksum or order is lost when the broker recovers this segment.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidelog.cli.failure import Failure
from tidelog.errors import CorruptRecordError
from tidelog.records.batch import (
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
    batch_size,
    check_crc,
    parse_header,
    smallest_batch,
)
from tidelog.records.legacy import LegacyMessage, messages_in, parse_legacy
from tidelog.records.record import Record, assemble_batch, decode_batch
from tidelog.storage.segment.batch_records import BatchRecords, scan_sound

_BYTES_TO_MAGIC = MAGIC_AT + 1


@dataclass(frozen=True, slots=True)
class ScannedBatch:
    """A batch (or a message of an old format) whose length can be trusted.

    ``problem`` says what else is wrong with it.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    record_count: int
    header: BatchHeader | LegacyMessage
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TornTail:
    """Bytes from ``position`` to the end of the file that are no batch."""

    position: int
    size_bytes: int
    problem: str


def base_offset_of(path: Path) -> int:
    """The offset in a segment file's name, ``00000000000000000042.log``."""
    digits = path.name.partition(".")[0]
    if not digits.isdigit():
        raise Failure(f"{path}: the name must start with the base offset, as in 00000000000000000000.log")
    return int(digits)


@contextmanager
def map_file(path: Path) -> Iterator[memoryview]:
    """The bytes of ``path`` without reading them all; empty files give an empty view."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield memoryview(b"")
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield view


def scan(data: memoryview, expected: int, position: int = 0) -> Iterator[ScannedBatch | TornTail]:
    """Every batch from ``position`` on, where offset ``expected`` is due; a ``TornTail`` is the last item."""
    while position < len(data):
        problem = _length_problem(data, position)
        if problem is not None:
            yield TornTail(position, len(data) - position, problem)
            return
        legacy = data[position + MAGIC_AT] < MAGIC_V2
        batch = (_scan_legacy if legacy else _scan_batch)(data, position, expected)
        yield batch
        expected = max(expected, batch.last_offset + 1)
        position += batch.size_bytes


def records_of(data: memoryview, batch: ScannedBatch) -> Iterator[Record]:
    """The records of ``batch``, a few of them in memory at a time, however much it unpacks to.

    Raises ``CorruptRecordError`` before the first if they cannot be read.
    """
    header = batch.header
    if isinstance(header, BatchHeader):
        records = BatchRecords(data, batch.position, header)
        records.check()
        return _decoded(header, records)
    for _ in messages_in(header):
        pass
    return (Record(each.offset, each.timestamp, each.key, each.value) for each in messages_in(header))


def _decoded(header: BatchHeader, records: BatchRecords) -> Iterator[Record]:
    for piece in records.pieces():
        count = sum(1 for _ in scan_sound(piece))
        plain = header._replace(attributes=header.attributes & ~CODEC_MASK, record_count=count)
        yield from decode_batch(assemble_batch(plain, piece), verify_crc=False)


def _length_problem(data: memoryview, position: int) -> str | None:
    left = len(data) - position
    if not any(data[position : position + _BYTES_TO_MAGIC]):
        return f"{left} bytes that start with zeros, not a batch"
    if left < _BYTES_TO_MAGIC:
        return f"{left} bytes, too few for a batch header"
    magic = data[position + MAGIC_AT]
    if magic > MAGIC_V2:
        return f"unknown batch format: magic {magic}"
    size = batch_size(data, position)
    if size < smallest_batch(magic):
        return f"a batch length of {size - LOG_OVERHEAD} is impossible"
    if size > left:
        return f"the batch needs {size} bytes, but only {left} are left"
    return None


def _scan_batch(data: memoryview, position: int, expected: int) -> ScannedBatch:
    header = parse_header(data, position)
    problem = None
    if not check_crc(data, position, header.size_bytes):
        problem = "bad CRC"
    elif header.base_offset < expected:
        problem = f"offset {header.base_offset}, expected at least {expected}"
    elif header.record_count < 0 or header.last_offset_delta < header.record_count - 1:
        problem = f"{header.record_count} records do not fit offsets up to +{header.last_offset_delta}"
    return ScannedBatch(
        position,
        header.size_bytes,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.record_count,
        header,
        problem,
    )


def _scan_legacy(data: memoryview, position: int, expected: int) -> ScannedBatch:
    size = batch_size(data, position)
    entry = data[position : position + size]
    try:
        message = parse_legacy(entry)
    except CorruptRecordError as error:
        unreadable = LegacyMessage(expected, size, 0, False, data[position + MAGIC_AT], 0, -1, None, None)
        return ScannedBatch(position, size, expected, expected, -1, 0, unreadable, str(error))
    base_offset, count, problem = message.offset, 1, None
    if not message.crc_valid:
        problem = "bad CRC"
    elif message.codec:
        try:
            count = 0
            for inner in messages_in(message):
                base_offset = inner.offset if not count else base_offset
                count += 1
        except CorruptRecordError as error:
            problem = str(error)
    if problem is None and base_offset < expected:
        problem = f"offset {base_offset}, expected at least {expected}"
    return ScannedBatch(
        position, size, base_offset, message.offset, message.timestamp, count, message, problem
    )
