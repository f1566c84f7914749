"""Walking over the batches of a ``.log`` file by their headers.

Headers are read in small pieces; the records between them are skipped, not read. What lies at a position is
believed only as far as it makes sense: a length that no batch can have, or that leads past the end of the
segment, raises ``CorruptRecordError``. Messages of formats 0 and 1 are batches as well
(``records/batch``). Checksums are the business of ``recovery``. Called by ``segment`` and ``log_reads``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V0,
    MAGIC_V2,
    SMALLEST_BATCH,
    BatchHeader,
    header_at,
    is_known_format,
    parse_header,
)

Pread = Callable[[int, int, int], bytes]
PathOf = Callable[[], Path]
"""Gives the path for an error message; building one on every read would cost more than the read."""

_CHUNK = 4096
_unpack_head = struct.Struct(">qiibIhi").unpack_from
_HEAD_SIZE = 27
_OLD_ATTRIBUTES_AT = 17
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
                # It may be a message of format 0, whatever follows its attributes.
                if len(chunk) <= _OLD_ATTRIBUTES_AT or chunk[MAGIC_AT] != MAGIC_V0:
                    raise _torn(path(), position)
                chunk = chunk.ljust(_HEAD_SIZE, b"\0")
        base_offset, length, _, magic, _, _, last_offset_delta = _unpack_head(chunk, at)
        size = length + LOG_OVERHEAD
        if magic == MAGIC_V2 and size >= HEADER_SIZE:
            last_offset = base_offset + last_offset_delta
        elif MAGIC_V0 <= magic < MAGIC_V2 and size >= SMALLEST_BATCH[magic]:
            last_offset = base_offset
            if chunk[at + _OLD_ATTRIBUTES_AT] & CODEC_MASK:
                # Its first offset is known only once it is unpacked.
                base_offset = 0
        else:
            raise _unreadable(path(), position)
        if last_offset >= offset:
            if position == start > 0 and base_offset > offset:
                raise CorruptRecordError(f"the index of {path()} leads behind offset {offset}")
            return FoundBatch(position, size)
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
        if len(chunk) - at >= HEADER_SIZE and chunk[at + MAGIC_AT] == MAGIC_V2:
            header = parse_header(chunk, at)
            if not HEADER_SIZE <= header.size_bytes <= end - position:
                read_header(chunk, at, position, end, path)
        else:
            header = read_header(chunk, at, position, end, path)
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


def read_header(chunk: bytes, at: int, position: int, end: int, path: PathOf) -> BatchHeader:
    """The header at ``at`` in ``chunk``, which is at ``position`` in a file that is used up to ``end``.

    Raises ``CorruptRecordError`` if there is no whole batch. ``chunk`` has :data:`HEADER_SIZE` bytes from
    there on, or all that there are.
    """
    try:
        header = header_at(chunk, at)
    except CorruptRecordError as error:
        raise (_torn if end - position < HEADER_SIZE else _unreadable)(path(), position) from error
    if not is_known_format(header.magic):
        raise _unreadable(path(), position)
    if position + header.size_bytes > end:
        raise _torn(path(), position)
    return header


def _torn(path: Path, position: int) -> CorruptRecordError:
    return CorruptRecordError(f"{path} ends in the middle of the batch at byte {position}")


def _unreadable(path: Path, position: int) -> CorruptRecordError:
    return CorruptRecordError(f"{path} holds no record batch at byte {position}")
