"""Walking over the batches of a ``.log`` file by their headers.

Headers are read in small pieces; the records between them are skipped, not read. What lies at a position is
believed only as far as it makes sense: a length that no batch can have, or that leads past the end of the
segment, raises ``CorruptRecordError``, a batch of an old format ``StorageError``. Checksums are the business
of ``recovery``. Called by ``segment`` and ``log_reads``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import CorruptRecordError, StorageError
from tidelog.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, BatchHeader, parse_header

Pread = Callable[[int, int, int], bytes]
PathOf = Callable[[], Path]
"""Gives the path for an error message; building one on every read would cost more than the read."""

_CHUNK = 4096
_unpack_head = struct.Struct(">qiibIhi").unpack_from
_HEAD_SIZE = 27
# The shortest message of format 0: checksum, magic, attributes, and the lengths of a null key and value.
_LEGACY_MIN_LENGTH = 14
_unpack_length = struct.Struct(">i").unpack_from


class ScannedBatch(NamedTuple):
    """A batch by its header, and where it lies in its segment."""

    position: int
    header: BatchHeader


Scan = Iterator[ScannedBatch]


class FoundBatch(NamedTuple):
    """Where a batch lies in its segment."""

    position: int
    size: int


def find_offset(
    pread: Pread, fd: int, position: int, end: int, offset: int, path: PathOf
) -> FoundBatch | None:
    """The first batch from ``position`` on that ends at ``offset`` or later, if any.

    A ``position`` inside the file comes from an index, which must not point behind the batch it is asked for.
    """
    chunk = b""
    at = 0
    start = position
    while position < end:
        if at + _HEAD_SIZE > len(chunk):
            chunk = pread(fd, min(_CHUNK, end - position), position)
            at = 0
            if len(chunk) < _HEAD_SIZE:
                raise _torn(path(), position)
        base_offset, length, _, magic, _, _, last_offset_delta = _unpack_head(chunk, at)
        if magic != MAGIC_V2 or length < HEADER_SIZE - LOG_OVERHEAD:
            raise _unreadable(path(), position, magic, length)
        if base_offset + last_offset_delta >= offset:
            if position == start > 0 and base_offset > offset:
                raise CorruptRecordError(f"the index of {path()} leads behind offset {offset}")
            return FoundBatch(position, length + LOG_OVERHEAD)
        size = length + LOG_OVERHEAD
        at += size
        position += size
    return None


def size_if_holding(pread: Pread, fd: int, position: int, end: int, offset: int) -> int:
    """The size of the batch at ``position`` if it holds ``offset``; 0 if it does not, or if none is there."""
    head = pread(fd, _HEAD_SIZE, position)
    if len(head) < _HEAD_SIZE:
        return 0
    base_offset, length, _, magic, _, _, last_offset_delta = _unpack_head(head)
    size: int = length + LOG_OVERHEAD
    if magic != MAGIC_V2 or size < HEADER_SIZE or position + size > end:
        return 0
    return size if base_offset <= offset <= base_offset + last_offset_delta else 0


def headers(pread: Pread, fd: int, position: int, end: int, path: PathOf) -> Scan:
    """Every batch in ``[position, end)``."""
    chunk = b""
    at = 0
    while position < end:
        if at + HEADER_SIZE > len(chunk):
            chunk = pread(fd, min(_CHUNK, end - position), position)
            at = 0
            if len(chunk) < HEADER_SIZE:
                raise _torn(path(), position)
        header = parse_header(chunk, at)
        if header.magic != MAGIC_V2 or header.size_bytes < HEADER_SIZE:
            raise _unreadable(path(), position, header.magic, header.batch_length)
        if position + header.size_bytes > end:
            raise _torn(path(), position)
        yield ScannedBatch(position, header)
        at += header.size_bytes
        position += header.size_bytes


def size_at(pread: Pread, fd: int, position: int, path: PathOf) -> int:
    """The size of the batch at ``position``."""
    head = pread(fd, LOG_OVERHEAD, position)
    if len(head) < LOG_OVERHEAD:
        raise _torn(path(), position)
    length: int = _unpack_length(head, 8)[0]
    return length + LOG_OVERHEAD


def _torn(path: Path, position: int) -> CorruptRecordError:
    return CorruptRecordError(f"{path} ends in the middle of the batch at byte {position}")


def _unreadable(path: Path, position: int, magic: int, length: int) -> StorageError:
    # Zeros have magic 0 too, and are no messages: a preallocated or torn tail, not an old format.
    if 0 <= magic < MAGIC_V2 and length >= _LEGACY_MIN_LENGTH:
        return legacy_format(path, position, magic)
    return CorruptRecordError(f"{path} holds no record batch at byte {position}")


def legacy_format(path: Path, position: int, magic: int) -> StorageError:
    """The refusal of a segment that was written before Kafka 0.11."""
    return StorageError(
        f"{path} holds records of message format {magic} at byte {position}, which Kafka wrote before 0.11 "
        "and which cannot be served; copy the topic through a Kafka 3.x broker, or move the partition's "
        "directory away"
    )
