"""The transaction index: which transactions were aborted in a segment.

File ``<base offset>.txnindex``, made when the first abort marker is written, entries of 34 bytes::

     0  version             int16   0
     2  producer id         int64
    10  first offset        int64   of the transaction
    18  last offset         int64   of the abort marker, which lies in this segment
    26  last stable offset  int64   of the log just after the marker

Fetches with read_committed get the entries that overlap what they read. Entries ascend by last offset. A
crash may leave half an entry or miss one; recovery rebuilds the file from the log like the other indexes.
In memory it is the bytes of the file: a segment can have a hundred thousand aborted transactions, and a fetch
that is the first to ask unpacks those that it is about.
Called by ``segment`` and, for the cleaner, through it.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from tidelog.storage.disk import Disk
from tidelog.storage.segment.mapped_index import CorruptIndexError

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_VERSION = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction of one producer in one partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        """The 34 bytes of the entry."""
        return _ENTRY.pack(_VERSION, *self)


class TransactionIndex:
    """The aborted transactions of one segment, read from disk when somebody asks."""

    __slots__ = ("_disk", "_name", "_packed", "base_offset", "directory")

    def __init__(self, path: Path, base_offset: int, disk: Disk, *, exists: bool | None = None) -> None:
        self.path = path
        self.base_offset = base_offset
        self._disk = disk
        there = path.exists() if exists is None else exists
        self._packed: bytearray | None = None if there else bytearray()

    @property
    def path(self) -> Path:
        """The file, which there need not be."""
        return self.directory / self._name

    @path.setter
    def path(self, path: Path) -> None:
        # In two parts: a directory with ten thousand segments is renamed at once, and few have such a file.
        self.directory, self._name = path.parent, path.name

    @property
    def entries(self) -> list[AbortedTxn]:
        """All entries, oldest first."""
        return [self._entry(slot) for slot in range(self._count)]

    @property
    def exists(self) -> bool:
        """Whether there is, or may be, an entry; asking reads nothing."""
        return self._packed is None or bool(self._packed)

    @property
    def _bytes(self) -> bytearray:
        if self._packed is None:
            self._packed = self._load()
        return self._packed

    @property
    def _count(self) -> int:
        return len(self._bytes) // ENTRY_SIZE

    def _load(self) -> bytearray:
        packed = bytearray(self.path.read_bytes())
        del packed[len(packed) // ENTRY_SIZE * ENTRY_SIZE :]
        if any(packed[::ENTRY_SIZE]) or any(packed[1::ENTRY_SIZE]):
            version = max(fields[0] for fields in _ENTRY.iter_unpack(packed))
            if version > _VERSION:
                raise CorruptIndexError(f"{self.path} has an entry of the unknown version {version}")
        return packed

    def _entry(self, slot: int) -> AbortedTxn:
        return AbortedTxn._make(_ENTRY.unpack_from(self._bytes, slot * ENTRY_SIZE)[1:])

    def _last_offset(self, slot: int) -> int:
        offset: int = _ENTRY.unpack_from(self._bytes, slot * ENTRY_SIZE)[3]
        return offset

    def _slot_of(self, offset: int) -> int:
        """The first whose marker is at ``offset`` or later; they ascend by their markers."""
        return bisect_left(range(self._count), offset, key=self._last_offset)

    def check(self) -> None:
        """Raise ``CorruptIndexError`` where an entry cannot belong to this segment."""
        for entry in self.entries:
            if entry.last_offset < self.base_offset:
                raise CorruptIndexError(f"{self.path} holds {entry}, which ends before the segment begins")

    def append(self, aborted: list[AbortedTxn]) -> None:
        """Write entries behind the others; on an error the file keeps what it had."""
        packed = self._bytes
        previous = self._last_offset(self._count - 1) if packed else self.base_offset - 1
        for entry in aborted:
            if entry.last_offset <= previous:
                raise CorruptIndexError(f"{self.path} ends at offset {previous}, so {entry} cannot follow")
            previous = entry.last_offset
        position = len(packed)
        added = b"".join(entry.encode() for entry in aborted)
        fd = self._disk.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._disk.write_all(fd, added, position)
        except OSError:
            self._disk.ftruncate(fd, position)
            raise
        finally:
            self._disk.close(fd)
        packed += added

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """What overlaps ``[fetch_offset, upper_bound)``, and whether later segments can add nothing."""
        found: list[AbortedTxn] = []
        for slot in range(self._slot_of(fetch_offset), self._count):
            entry = self._entry(slot)
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at ``offset`` or later."""
        if not self.exists:
            return
        end = self._slot_of(offset) * ENTRY_SIZE
        if end < len(self._bytes):
            self._disk.truncate(self.path, end)
            del self._bytes[end:]

    def reset(self) -> None:
        """Forget everything, on disk as well."""
        if self.exists:
            self._disk.truncate(self.path, 0)
            self._packed = bytearray()
