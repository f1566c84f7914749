"""Building both indexes of a segment anew from its batch headers, beside the loop where that takes long.

An index that does not fit its segment is found out when it is first used, and a segment has up to a gigabyte
of batches to be looked at: small segments, and those of a log that is being loaded, are done on the spot,
others in a thread. Whoever needs the index meanwhile is told :class:`IndexesNotReady`: a request is answered
with an error at which clients ask again, or waits (:meth:`IndexesNotReady.wait`) and looks anew.

The new files are written beside the old ones (``.rebuilt``) and put in their place when they are whole; a
crash leaves the old ones, which are found out again, and perhaps a ``.rebuilt`` that nobody reads. Called by
``segment``.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_AT, MAGIC_V2, MAX_INT32
from tidelog.storage.disk import Disk
from tidelog.storage.segment import batch_scan
from tidelog.storage.segment.time_index import TimestampOffset

REBUILT_SUFFIX: Final = ".rebuilt"
INLINE_BYTES: Final = 256 * 1024
"""A segment of this size holds few enough batches to be looked at on the loop."""

# Some hundred small batches: between two reads, which let go of the interpreter lock, little time goes by.
_CHUNK: Final = 64 * 1024
# Base offset, length, last offset delta, highest timestamp.
_unpack_head: Final = struct.Struct(">qi11xi8xq").unpack_from
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class IndexesNotReady(KafkaError):
    """The indexes of a segment are being rebuilt; ``ready`` is done when they are there or cannot be."""

    def __init__(self, path: Path, ready: asyncio.Future[None]) -> None:
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The indexes of {path} are being rebuilt: ask again in a moment"
        )
        self.ready = ready

    async def wait(self) -> None:
        """Wait until they are there or cannot be; others wait on if this one is cancelled."""
        await asyncio.shield(self.ready)


class IndexBounds(NamedTuple):
    """What a segment's indexes may hold, and how densely."""

    base_offset: int
    interval_bytes: int
    max_offset_entries: int
    max_time_entries: int


class RebuiltIndexes(NamedTuple):
    """The entries of both indexes for the first ``size`` bytes of a log, and its highest timestamp."""

    offset_entries: bytes
    time_entries: bytes
    highest: TimestampOffset
    size: int

    def write(self, disk: Disk, offset_path: Path, time_path: Path) -> None:
        """Write both files beside the ones that they are to replace."""
        for path, entries in ((offset_path, self.offset_entries), (time_path, self.time_entries)):
            disk.write_atomically(path.with_name(path.name + REBUILT_SUFFIX), entries, sync=False)


def read_headers(
    pread: Callable[[int, int, int], bytes], fd: int, size: int, bounds: IndexBounds, path: Path
) -> RebuiltIndexes:
    """Index the first ``size`` bytes of a log; raises as ``batch_scan.headers`` where they are damaged."""
    base_offset = bounds.base_offset
    room = min(bounds.max_offset_entries, bounds.max_time_entries - 1)
    offsets, times = bytearray(), bytearray()
    highest, highest_offset = NO_TIMESTAMP, base_offset
    indexed_timestamp = NO_TIMESTAMP
    position = last_entry_at = at = entries = 0
    chunk = b""
    while position < size:
        if at + HEADER_SIZE > len(chunk):
            chunk = pread(fd, min(_CHUNK, size - position), position)
            at = 0
        is_current = len(chunk) - at >= HEADER_SIZE and chunk[at + MAGIC_AT] == MAGIC_V2
        if is_current:
            first_offset, length, last_delta, timestamp = _unpack_head(chunk, at)
            step = length + LOG_OVERHEAD
            last_offset = first_offset + last_delta
        if not is_current or step < HEADER_SIZE or position + step > size:
            # A message of format 0 or 1, or damage.
            header = batch_scan.read_header(chunk, at, position, size, lambda: path)
            step, last_offset, timestamp = header.size_bytes, header.last_offset, header.max_timestamp
        if not 0 <= last_offset - base_offset <= MAX_INT32:
            raise CorruptRecordError(
                f"{path}: the batch at byte {position} ends with offset {last_offset}, which cannot be in a "
                f"segment that begins with {base_offset}"
            )
        if timestamp > highest:
            highest, highest_offset = timestamp, last_offset
        if position - last_entry_at > bounds.interval_bytes and entries < room:
            offsets += _OFFSET_ENTRY.pack(last_offset - base_offset, position)
            if highest > indexed_timestamp:
                times += _TIME_ENTRY.pack(highest, highest_offset - base_offset)
                indexed_timestamp = highest
            entries += 1
            last_entry_at = position
        at += step
        position += step
    if highest > indexed_timestamp:
        times += _TIME_ENTRY.pack(highest, highest_offset - base_offset)
    return RebuiltIndexes(bytes(offsets), bytes(times), TimestampOffset(highest, highest_offset), size)
