"""The time index: up to which offset a segment's records are no younger than a timestamp.

File ``<base offset>.timeindex``, entries of 12 bytes, big-endian::

    0  timestamp        int64   the highest in the segment so far
    8  relative offset  int32   last offset of the first batch that has it, minus the base offset

Written with every entry of the offset index if the highest timestamp has grown since, and once more when
the segment is rolled or closed: the last entry of a finished segment holds its highest timestamp, which
is what retention looks at. What a crash leaves: see ``mapped_index``. Called by ``segment``.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from tidelog.ids import NO_TIMESTAMP
from tidelog.storage.disk import Disk
from tidelog.storage.segment.mapped_index import CorruptIndexError, MappedIndex

_ENTRY = struct.Struct(">qi")
_unpack_entry = _ENTRY.unpack_from


class TimestampOffset(NamedTuple):
    """A timestamp and an offset that has it."""

    timestamp: int
    offset: int


class TimeIndex(MappedIndex):
    """Timestamps → offsets of one segment."""

    __slots__ = ("last",)

    ENTRY_SIZE = 12

    def __init__(self, path: Path, base_offset: int, max_bytes: int, disk: Disk) -> None:
        super().__init__(path, base_offset, max_bytes, disk)
        self.last = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._load_last()

    def _load_last(self) -> None:
        if self.entries == 0:
            self.last = TimestampOffset(NO_TIMESTAMP, self.base_offset)
            return
        timestamp, relative = _unpack_entry(self._raw_entry(self.entries - 1))
        self.last = TimestampOffset(timestamp, self.base_offset + relative)

    def check(self) -> None:
        """Raise ``CorruptIndexError`` where the last entry cannot follow the first, or was never written.

        Zeros at the end are what a file has that was never cut to its entries; taken for a timestamp, they
        would have retention delete the segment.
        """
        if self.entries == 0:
            return
        first_timestamp, first_offset = _unpack_entry(self._raw_entry(0))
        last_timestamp, last_offset = self.last.timestamp, self.last.offset - self.base_offset
        unwritten = last_timestamp == last_offset == 0
        if unwritten or not 0 <= first_timestamp <= last_timestamp or not 0 <= first_offset <= last_offset:
            raise CorruptIndexError(
                f"{self.path} ends with timestamp {last_timestamp} at offset {self.last.offset}, which "
                f"cannot follow timestamp {first_timestamp} at its beginning, offset {self.base_offset}"
            )

    @property
    def is_full(self) -> bool:
        """Whether only the slot is left that is kept for the entry written when the segment is rolled."""
        return self.entries >= self.max_bytes // 12 - 1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if ``timestamp`` is higher than the last; room was made with :meth:`reserve`."""
        if timestamp <= self.last.timestamp:
            return
        if self.entries and offset < self.last.offset:
            raise CorruptIndexError(f"{self.path} ends at {self.last.offset}, so {offset} cannot follow")
        _ENTRY.pack_into(self._mapped(), self.entries * 12, timestamp, offset - self.base_offset)
        self.entries += 1
        self.changes += 1
        self.last = TimestampOffset(timestamp, offset)

    def entry(self, slot: int) -> TimestampOffset:
        """The entry number ``slot``."""
        if not 0 <= slot < self.entries:
            raise IndexError(f"{self.path} has no entry {slot}")
        timestamp, relative = _unpack_entry(self._mapped(), slot * 12)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below ``timestamp``; ``(-1, base offset)`` if there is none."""
        slot = self._floor_slot(timestamp, 0)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries that point at ``offset`` or later."""
        slot = self._floor_slot(offset, 1)
        if slot >= 0 and self.entry(slot).offset == offset:
            slot -= 1
        self.truncate_entries(slot + 1)

    def truncate_entries(self, entries: int) -> None:
        self.entries = entries
        self._load_last()

    def _floor_slot(self, target: int, field: int) -> int:
        low, high = 0, self.entries - 1
        if high < 0 or self.entry(0)[field] > target:
            return -1
        while low < high:
            middle = (low + high + 1) >> 1
            if self.entry(middle)[field] <= target:
                low = middle
            else:
                high = middle - 1
        return low
