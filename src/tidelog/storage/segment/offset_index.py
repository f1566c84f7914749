"""The offset index: where in a segment's file a batch lies.

File ``<base offset>.index``, entries of 8 bytes, big-endian::

    0  relative offset  int32   last offset of a batch, minus the segment's base offset
    4  position         int32   where that batch starts in the ``.log`` file

Sparse: one entry every ``index.interval.bytes`` of log. A lookup gives a place at or before the batch
sought; the reader scans on from there. What a crash leaves: see ``mapped_index``. Called by ``segment``.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from tidelog.storage.disk import Disk
from tidelog.storage.segment.mapped_index import CorruptIndexError, MappedIndex

_ENTRY = struct.Struct(">ii")
_INT32 = struct.Struct(">i")
_pack_entry = _ENTRY.pack_into
_unpack_entry = _ENTRY.unpack_from
_unpack_int = _INT32.unpack_from
_new_tuple = tuple.__new__


class OffsetPosition(NamedTuple):
    """An offset and the file position of its batch."""

    offset: int
    position: int


class OffsetIndex(MappedIndex):
    """Offsets → positions of one segment."""

    __slots__ = ("last_offset", "last_position")

    ENTRY_SIZE = 8

    def __init__(self, path: Path, base_offset: int, max_bytes: int, disk: Disk) -> None:
        super().__init__(path, base_offset, max_bytes, disk)
        self.last_offset = base_offset
        self.last_position = 0
        self._load_last()

    def _load_last(self) -> None:
        if self.entries == 0:
            self.last_offset, self.last_position = self.base_offset, 0
            return
        relative, position = _unpack_entry(self._raw_entry(self.entries - 1))
        self.last_offset, self.last_position = self.base_offset + relative, position

    def check(self, log_bytes: int) -> None:
        """Raise ``CorruptIndexError`` where the last entry cannot belong to a log of ``log_bytes``.

        Zeros at the end are what a file has that was never cut to its entries.
        """
        if self.entries == 0:
            return
        unwritten = self.entries > 1 and self.last_offset == self.base_offset
        if self.last_offset < self.base_offset or unwritten or not 0 <= self.last_position < log_bytes:
            raise CorruptIndexError(
                f"{self.path} ends with offset {self.last_offset} at position {self.last_position}, which "
                f"a log of {log_bytes} bytes from offset {self.base_offset} cannot have"
            )

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_bytes // 8

    def append(self, offset: int, position: int) -> None:
        """Add an entry; room for it was made with :meth:`reserve`."""
        entries = self.entries
        if offset <= self.last_offset and entries:
            raise CorruptIndexError(f"{self.path} ends at {self.last_offset}, so {offset} cannot follow")
        _pack_entry(self._mapped(), entries * 8, offset - self.base_offset, position)
        self.entries = entries + 1
        self.changes += 1
        self.last_offset = offset
        self.last_position = position

    def entry(self, slot: int) -> OffsetPosition:
        """The entry number ``slot``."""
        if not 0 <= slot < self.entries:
            raise IndexError(f"{self.path} has no entry {slot}")
        relative, position = _unpack_entry(self._mapped(), slot * 8)
        return OffsetPosition(self.base_offset + relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the largest offset at or below ``offset``; the segment's start if there is none."""
        slot = self._floor_slot(offset - self.base_offset, 0)
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = _unpack_entry(self._mapped(), slot * 8)
        return _new_tuple(OffsetPosition, (self.base_offset + relative, position))

    def around(self, offset: int) -> tuple[int, int]:
        """The position that :meth:`lookup` gives, and that of the entry behind it; -1 if there is none."""
        slot = self._floor_slot(offset - self.base_offset, 0)
        found = self._mapped() if self.entries else b""
        position: int = _unpack_entry(found, slot * 8)[1] if slot >= 0 else 0
        behind: int = _unpack_entry(found, slot * 8 + 8)[1] if slot + 1 < self.entries else -1
        return position, behind

    def upper_bound(self, position: int) -> int | None:
        """The offset of the first entry that lies at ``position`` or behind it, if there is one."""
        slot = self._floor_slot(position, 4)
        if slot >= 0 and self.entry(slot).position == position:
            return self.entry(slot).offset
        return self.entry(slot + 1).offset if slot + 1 < self.entries else None

    def _floor_slot(self, target: int, field_at: int) -> int:
        """The last slot whose field at ``field_at`` is at most ``target``; -1 where all are larger.

        Entries come at even distances, so the first guess is nearly right whatever the size of the index;
        from there the search doubles its steps and then halves them.
        """
        entries = self.entries
        if entries == 0:
            return -1
        found = self._mapped()
        low, high = 0, entries - 1
        first: int = _unpack_int(found, field_at)[0]
        if target < first:
            return -1
        last: int = _unpack_int(found, high * 8 + field_at)[0]
        if target >= last:
            return high
        guess = (target - first) * high // (last - first)
        step = 1
        if _unpack_int(found, guess * 8 + field_at)[0] <= target:
            low = guess
            while (ahead := low + step) < high and _unpack_int(found, ahead * 8 + field_at)[0] <= target:
                low = ahead
                step *= 2
            high = min(ahead, high) - 1
        else:
            high = guess - 1
            while (behind := high - step) > 0 and _unpack_int(found, behind * 8 + field_at)[0] > target:
                high = behind - 1
                step *= 2
            low = max(behind, 0)
        while low < high:
            middle = (low + high + 1) >> 1
            if _unpack_int(found, middle * 8 + field_at)[0] <= target:
                low = middle
            else:
                high = middle - 1
        return low

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of batches that hold ``offset`` or later ones."""
        slot = self._floor_slot(offset - self.base_offset, 0)
        if slot >= 0 and self.entry(slot).offset == offset:
            slot -= 1
        self.truncate_entries(slot + 1)

    def truncate_entries(self, entries: int) -> None:
        self.entries = entries
        self._load_last()
