"""Whether a segment's indexes say the truth about its log, for ``log dump`` and ``log verify``.

An offset index entry must point at the start of a batch and name the last offset of that batch, or of a
later one: Kafka 3 makes one entry for several batches that a follower or the cleaner writes at once, and
such an entry only makes a lookup scan further. A time index entry must name an offset of a batch that has
its timestamp. Zeros behind the entries are the unwritten rest of a file
that a running or crashed broker has not cut to size, and no damage.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidelog.cli.log.segment_scan import ScannedBatch, base_offset_of
from tidelog.storage.disk import REAL_DISK
from tidelog.storage.segment.mapped_index import MappedIndex
from tidelog.storage.segment.offset_index import OffsetIndex, OffsetPosition
from tidelog.storage.segment.time_index import TimeIndex, TimestampOffset
from tidelog.storage.segment.transaction_index import AbortedTxn, TransactionIndex

_ANY_SIZE = 1 << 31
_ZEROS = bytes(1 << 16)


def offset_entries(path: Path) -> Iterator[OffsetPosition]:
    """The entries of an offset index up to the unwritten rest."""
    index = OffsetIndex(path, base_offset_of(path), _ANY_SIZE, REAL_DISK)
    try:
        for slot in range(_written(index, path)):
            yield index.entry(slot)
    finally:
        index.close()


def time_entries(path: Path) -> Iterator[TimestampOffset]:
    """The entries of a time index up to the unwritten rest."""
    index = TimeIndex(path, base_offset_of(path), _ANY_SIZE, REAL_DISK)
    try:
        for slot in range(_written(index, path)):
            yield index.entry(slot)
    finally:
        index.close()


def aborted_transactions(path: Path) -> list[AbortedTxn]:
    """The entries of a transaction index."""
    return TransactionIndex(path, base_offset_of(path), REAL_DISK, exists=True).entries


def _written(index: MappedIndex, path: Path) -> int:
    """How many entries there are before the file turns to zeros; the first entry may well be all zeros."""
    with path.open("rb") as file:
        written = _written_bytes(file.fileno(), index.entries * index.ENTRY_SIZE)
    entries = -(-written // index.ENTRY_SIZE)
    return max(entries, 1) if index.entries == 1 else entries


def _written_bytes(fd: int, size: int) -> int:
    """Where the zeros at the end of a file begin; ten megabytes of them are common, so holes are skipped."""
    end = 0
    try:
        while end < size:
            end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:
            end = size
    while end > 0:
        start = max(end - len(_ZEROS), 0)
        chunk = os.pread(fd, end - start, start)
        if chunk != _ZEROS[: len(chunk)]:
            return start + len(chunk.rstrip(b"\0"))
        end = start
    return 0


class SegmentMap:
    """Where the batches of one segment lie, for checking indexes against."""

    def __init__(self, batches: Iterable[ScannedBatch] = ()) -> None:
        self._positions: list[int] = []
        self._last_offsets: list[int] = []
        self._base_offsets: list[int] = []
        self._max_timestamps: list[int] = []
        for batch in batches:
            self.add(batch)

    def add(self, batch: ScannedBatch) -> None:
        """Take in the next batch."""
        self._positions.append(batch.position)
        self._base_offsets.append(batch.base_offset)
        self._last_offsets.append(batch.last_offset)
        self._max_timestamps.append(batch.max_timestamp)

    def offset_entry_problem(self, entry: OffsetPosition) -> str | None:
        """What is wrong with an entry of the offset index, if anything."""
        slot = bisect_left(self._positions, entry.position)
        if slot == len(self._positions) or self._positions[slot] != entry.position:
            return f"no batch starts at position {entry.position}"
        named = bisect_left(self._last_offsets, entry.offset)
        if named == len(self._last_offsets) or self._last_offsets[named] != entry.offset or named < slot:
            return f"the batch at position {entry.position} ends at offset {self._last_offsets[slot]}"
        return None

    def time_entry_problem(self, entry: TimestampOffset) -> str | None:
        """What is wrong with an entry of the time index, if anything."""
        slot = bisect_left(self._last_offsets, entry.offset)
        if slot == len(self._last_offsets) or entry.offset < self._base_offsets[slot]:
            return f"no batch contains offset {entry.offset}"
        if self._max_timestamps[slot] != entry.timestamp:
            return f"the batch with offset {entry.offset} has max timestamp {self._max_timestamps[slot]}"
        return None


def check_offset_entries(
    entries: Iterable[OffsetPosition], segment: SegmentMap
) -> Iterator[tuple[OffsetPosition, str | None]]:
    """Every entry of an offset index with what is wrong with it."""
    previous: OffsetPosition | None = None
    for entry in entries:
        problem = segment.offset_entry_problem(entry)
        if previous is not None and (entry.offset <= previous.offset or entry.position <= previous.position):
            problem = f"it does not follow {previous.offset} at position {previous.position}"
        yield entry, problem
        previous = entry


def check_time_entries(
    entries: Iterable[TimestampOffset], segment: SegmentMap
) -> Iterator[tuple[TimestampOffset, str | None]]:
    """Every entry of a time index with what is wrong with it."""
    previous: TimestampOffset | None = None
    for entry in entries:
        problem = segment.time_entry_problem(entry)
        if previous is not None and (entry.timestamp <= previous.timestamp or entry.offset < previous.offset):
            problem = f"it does not follow timestamp {previous.timestamp} at offset {previous.offset}"
        yield entry, problem
        previous = entry
