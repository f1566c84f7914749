"""The transaction index: which transactions were aborted in a segment.

File ``<base offset>.txnindex``, made when the first abort marker is written, entries of 34 bytes::

     0  version             int16   0
     2  producer id         int64
    10  first offset        int64   of the transaction
    18  last offset         int64   of the abort marker, which lies in this segment
    26  last stable offset  int64   of the log just after the marker

Fetches with read_committed get the entries that overlap what they read. Entries ascend by last offset. A
crash may leave half an entry or miss one; recovery rebuilds the file from the log like the other indexes.
Called by ``segment`` and, for the cleaner, through it.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tidelog.storage.disk import Disk
from tidelog.storage.mapped_index import CorruptIndexError

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

    __slots__ = ("_disk", "_entries", "_name", "base_offset", "directory")

    def __init__(self, path: Path, base_offset: int, disk: Disk, *, exists: bool | None = None) -> None:
        self.path = path
        self.base_offset = base_offset
        self._disk = disk
        there = path.exists() if exists is None else exists
        self._entries: list[AbortedTxn] | None = None if there else []

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
        """All entries, oldest first; not to be changed."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    @property
    def exists(self) -> bool:
        """Whether there is, or may be, an entry; asking reads nothing."""
        return self._entries is None or bool(self._entries)

    def _load(self) -> list[AbortedTxn]:
        raw = self.path.read_bytes()
        entries: list[AbortedTxn] = []
        for position in range(0, len(raw) - ENTRY_SIZE + 1, ENTRY_SIZE):
            version, *fields = _ENTRY.unpack_from(raw, position)
            if version > _VERSION:
                raise CorruptIndexError(f"{self.path} has an entry of the unknown version {version}")
            entries.append(AbortedTxn(*fields))
        return entries

    def check(self) -> None:
        """Raise ``CorruptIndexError`` where an entry cannot belong to this segment."""
        for entry in self.entries:
            if entry.last_offset < self.base_offset:
                raise CorruptIndexError(f"{self.path} holds {entry}, which ends before the segment begins")

    def append(self, aborted: list[AbortedTxn]) -> None:
        """Write entries behind the others; on an error the file keeps what it had."""
        entries = self.entries
        previous = entries[-1].last_offset if entries else self.base_offset - 1
        for entry in aborted:
            if entry.last_offset <= previous:
                raise CorruptIndexError(f"{self.path} ends at offset {previous}, so {entry} cannot follow")
            previous = entry.last_offset
        position = len(entries) * ENTRY_SIZE
        fd = self._disk.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._disk.write_all(fd, b"".join(entry.encode() for entry in aborted), position)
        except OSError:
            self._disk.ftruncate(fd, position)
            raise
        finally:
            self._disk.close(fd)
        entries.extend(aborted)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """What overlaps ``[fetch_offset, upper_bound)``, and whether later segments can add nothing."""
        found: list[AbortedTxn] = []
        entries = self.entries
        # They ascend by their markers: those that ended before the fetch need not be looked at.
        for entry in islice(entries, bisect_left(entries, fetch_offset, key=_last_offset_of), None):
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at ``offset`` or later."""
        if not self.exists:
            return
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) < len(self.entries):
            self._disk.truncate(self.path, len(kept) * ENTRY_SIZE)
            self._entries = kept

    def reset(self) -> None:
        """Forget everything, on disk as well."""
        if self._entries is None or self._entries:
            self._disk.truncate(self.path, 0)
            self._entries = []


def _last_offset_of(entry: AbortedTxn) -> int:
    return entry.last_offset
