"""Walking through the batches of a segment file, of whatever format, a bounded piece at a time.

Every batch is checked: length, format, CRC. What fails raises :class:`CorruptRecordError`: the log is not
cleaned as long as that is there. Used by ``compaction``, and :func:`passes_crc` by ``recovery``; knows
nothing of indexes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tidelog.checksum import crc32c
from tidelog.errors import CorruptRecordError
from tidelog.records.batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    BatchHeader,
    batch_size,
    check_crc,
    header_at,
    is_known_format,
    iter_batches,
)

LARGE_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Larger batches are checked before they are read: a corrupt length may be that of the whole segment."""

_CHUNK: Final = 1024 * 1024


def passes_crc(read: Callable[[int, int], bytes], position: int, header: BatchHeader) -> bool:
    """Whether the batch at ``position`` passes its checksum; ``read(position, size)`` reads the file."""
    begin, checksum = (ATTRIBUTES_AT, crc32c) if header.magic == MAGIC_V2 else (MAGIC_AT, zlib.crc32)
    at, end = position + begin, position + header.size_bytes
    crc = 0
    while at < end:
        chunk = read(at, min(_CHUNK, end - at))
        if not chunk:
            return False
        crc = checksum(chunk, crc)
        at += len(chunk)
    return crc == header.crc


def read_batches(
    path: Path, size_bytes: int, buffer_bytes: int, pace: Callable[[int], None]
) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """``(buffer, position in it, header)`` of each batch in the first ``size_bytes`` of the file."""
    fd = os.open(path, os.O_RDONLY)

    def read(at: int, size: int) -> bytes:
        return os.pread(fd, size, at)

    try:
        position = 0
        wanted = buffer_bytes
        while position < size_bytes:
            data = os.pread(fd, min(wanted, size_bytes - position), position)
            pace(len(data))
            consumed = 0
            for pos, header in iter_batches(data):
                consumed = pos + header.size_bytes
                _check(path, data, position, pos, header)
                yield data, pos, header
            wanted = buffer_bytes
            if not consumed:
                wanted = batch_size(data) if len(data) >= HEADER_SIZE else HEADER_SIZE
                if wanted <= len(data) or wanted > size_bytes - position:
                    raise CorruptRecordError(f"{path} ends in the middle of the batch at {position}")
                if wanted > LARGE_BATCH_BYTES and not passes_crc(read, position, header_at(data)):
                    raise CorruptRecordError(f"{path} has a batch that fails its CRC at {position}")
            position += consumed
    finally:
        os.close(fd)


def _check(path: Path, data: bytes, position: int, pos: int, header: BatchHeader) -> None:
    if not is_known_format(header.magic):
        raise CorruptRecordError(f"{path} has a batch of format {header.magic} at {position + pos}")
    if not check_crc(data, pos, header.size_bytes):
        raise CorruptRecordError(f"{path} has a batch that fails its CRC at {position + pos}")
