"""The part that the offset index and the time index share: a memory-mapped file of fixed-size entries.

While its segment is active the file has the full size of ``segment.index.bytes``, sparse, and entries are
written through the map. When the segment is rolled or closed the file is cut to its entries. A crash
leaves the full-size file with zeros behind the last entry; recovery rebuilds every index at or after the
recovery point from the log, so zeros are never read as entries.

Two things keep the map harmless. A write to a hole of a sparse file on a full disk would kill the process
with SIGBUS, so each page is first written with ``pwrite``, which fails with an ``OSError`` instead
(:meth:`MappedIndex.reserve`). And files are mapped on first use only: a partition that nobody touches holds
neither map nor descriptor.

Invariant: entries ascend in both fields; ``entries`` counts those that exist. Called by ``segment`` alone.
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.storage.disk import Disk

_PAGE = 4096
_ZEROS = bytes(_PAGE)
# A map otherwise keeps a descriptor of its own, for a resize that never comes.
_MAP_OPTIONS = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class CorruptIndexError(StorageError):
    """An index that does not fit its segment; the segment's owner rebuilds it from the log."""


class MappedIndex:
    """Fixed-size entries in a file; subclasses say what an entry is."""

    __slots__ = (
        "_disk",
        "_map",
        "_name",
        "_reserved",
        "_synced_changes",
        "_writable",
        "base_offset",
        "changes",
        "directory",
        "entries",
        "max_bytes",
    )

    ENTRY_SIZE = 1

    def __init__(self, path: Path, base_offset: int, max_bytes: int, disk: Disk) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_bytes = self.max_entries_in(max_bytes) * self.ENTRY_SIZE
        self._disk = disk
        self._map: mmap.mmap | None = None
        self._writable = False
        self._reserved = 0
        self.changes = 0
        """Counts what was done to the file, each time after it was done: a thread may be syncing."""
        # Nobody knows whether what it held when it was opened is on the disk.
        self._synced_changes = -1
        self.entries = self._count_entries()

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / self._name

    @path.setter
    def path(self, path: Path) -> None:
        # In two parts, because a directory with ten thousand segments is renamed at once.
        self.directory, self._name = path.parent, path.name

    @classmethod
    def max_entries_in(cls, max_bytes: int) -> int:
        """How many entries a file of ``max_bytes`` takes.

        ``segment.index.bytes`` may be as small as 4; with room for less than two entries, one of them kept
        for the roll, a time index would be full before its first append.
        """
        return max(max_bytes // cls.ENTRY_SIZE, 2)

    def _count_entries(self) -> int:
        size = self.path.stat().st_size
        if size % self.ENTRY_SIZE:
            raise CorruptIndexError(
                f"{self.path} has {size} bytes, which is no multiple of its entries' {self.ENTRY_SIZE}"
            )
        return size // self.ENTRY_SIZE

    @classmethod
    def create(cls, path: Path, disk: Disk) -> None:
        """Make the empty file; it takes its full size when its first entry comes."""
        disk.close(disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644))

    @property
    def max_entries(self) -> int:
        return self.max_bytes // self.ENTRY_SIZE

    @property
    def size_bytes(self) -> int:
        return self.entries * self.ENTRY_SIZE

    @property
    def raw(self) -> mmap.mmap | None:
        """The bytes of the entries, if there are any."""
        return self._mapped() if self.entries else None

    def _mapped(self) -> mmap.mmap:
        """The map to read from; there is at least one entry."""
        found = self._map
        if found is None:
            with self.path.open("rb") as file:
                found = mmap.mmap(file.fileno(), self.size_bytes, access=mmap.ACCESS_READ, **_MAP_OPTIONS)
            self._map = found
        return found

    def _raw_entry(self, slot: int) -> bytes:
        """The bytes of one entry; maps nothing, so that looking at the last one stays cheap."""
        at = slot * self.ENTRY_SIZE
        if self._map is not None:
            return self._map[at : at + self.ENTRY_SIZE]
        fd = self._disk.open(self.path, os.O_RDONLY)
        try:
            return self._disk.pread(fd, self.ENTRY_SIZE, at)
        finally:
            self._disk.close(fd)

    def reserve(self, count: int) -> None:
        """Make room for ``count`` more entries on disk; raises ``OSError`` where there is none."""
        needed = (self.entries + count) * self.ENTRY_SIZE
        if needed <= self._reserved:
            return
        fd = self._disk.open(self.path, os.O_RDWR)
        try:
            if not self._writable:
                self._unmap()
                self._disk.ftruncate(fd, self.max_bytes)
                self._map = mmap.mmap(fd, self.max_bytes, **_MAP_OPTIONS)
                self._writable = True
                self._reserved = self.size_bytes
            # Entries up to `_reserved` may share a page with the new ones: zero only what lies behind.
            end = min(-(-needed // _PAGE) * _PAGE, self.max_bytes)
            while self._reserved < end:
                step = min(end - self._reserved, _PAGE)
                self._disk.write_all(fd, memoryview(_ZEROS)[:step], self._reserved)
                self._reserved += step
        finally:
            self.changes += 1
            self._disk.close(fd)

    @property
    def reserved_entries(self) -> int:
        """How many more entries there is room for on disk, up to the file's full size."""
        return self._reserved // self.ENTRY_SIZE - self.entries

    def truncate_entries(self, entries: int) -> None:
        """Forget all but the first ``entries``."""
        self.entries = entries

    def reset(self) -> None:
        """Forget every entry, on disk as well."""
        self.truncate_entries(0)
        self.trim()

    def trim(self) -> None:
        """Cut the file to its entries, as a segment that takes no more appends has it."""
        self.close()
        if self.path.stat().st_size != self.size_bytes:
            self._disk.truncate(self.path, self.size_bytes)
            self.changes += 1

    def sync(self) -> None:
        """Bring the file to the disk if it has changed since that was done; may run in a thread."""
        changes = self.changes
        if changes != self._synced_changes:
            self._disk.sync_path(self.path)
            self._synced_changes = changes

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    def close(self) -> None:
        """Let go of the map, leaving the file as it is."""
        self._unmap()
        self._writable = False
        self._reserved = 0
