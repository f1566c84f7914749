"""The checksum of a batch in a file, without the batch in memory.

A length that rot has made may be that of the whole segment, a gigabyte; what it claims is read piece by piece
before anything believes it. Called by ``recovery`` and ``batch_reader``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from tidelog.checksum import crc32c
from tidelog.records.batch import ATTRIBUTES_AT, MAGIC_AT, MAGIC_V2, BatchHeader

LARGE_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Larger batches are checked before they are read."""

_CHUNK: Final = 1024 * 1024


def passes_crc(read: Callable[[int, int], bytes], position: int, header: BatchHeader) -> bool:
    """Whether the batch at ``position`` carries its own checksum; ``read(position, size)`` reads the file."""
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
