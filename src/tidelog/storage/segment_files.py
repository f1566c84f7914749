"""The files of one segment: their names, and opening them no earlier than needed.

A segment that nobody touches holds no descriptor and no map, only this object; what is opened stays open
until the segment is closed or dropped. Owns no content: ``segment`` builds on it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from tidelog.storage.disk import Disk, LogFile
from tidelog.storage.files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.time_index import TimeIndex
from tidelog.storage.transaction_index import TransactionIndex


class SegmentFiles:
    """The ``.log`` file and the indexes of the segment from ``base_offset`` on."""

    __slots__ = (
        "_disk",
        "_file",
        "_offset_index",
        "_time_index",
        "base_offset",
        "directory",
        "index_bytes",
        "state_suffix",
        "txn_index",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        index_bytes: int,
        *,
        disk: Disk,
        state_suffix: str = "",
        has_txn_index: bool | None = None,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.index_bytes = index_bytes
        self.state_suffix = state_suffix
        self._disk = disk
        self._file: LogFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        txn_path = self.path(TXN_INDEX_SUFFIX)
        self.txn_index = TransactionIndex(txn_path, base_offset, disk, exists=has_txn_index)

    @staticmethod
    def make(
        directory: Path, base_offset: int, disk: Disk, *, state_suffix: str = "", preallocated_bytes: int = 0
    ) -> None:
        """Make the files of an empty segment; files of that name that are there are emptied."""
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = segment_path(directory, base_offset, suffix, state_suffix)
            fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                if suffix == LOG_SUFFIX and preallocated_bytes:
                    disk.ftruncate(fd, preallocated_bytes)
            finally:
                disk.close(fd)
        segment_path(directory, base_offset, TXN_INDEX_SUFFIX, state_suffix).unlink(missing_ok=True)

    def make_indexes(self) -> None:
        """Make both indexes anew and empty, whatever their files held."""
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
            self._disk.close(self._disk.open(self.path(suffix), flags, 0o644))

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        """The path of one of its files."""
        return segment_path(self.directory, self.base_offset, suffix, self.state_suffix)

    @property
    def file(self) -> LogFile:
        """The open ``.log`` file."""
        if self._file is None:
            self._file = LogFile(self._disk.open(self.path(), os.O_RDWR), self._disk)
        return self._file

    @property
    def is_open(self) -> bool:
        """Whether any of its files is."""
        return self._file is not None or self._offset_index is not None or self._time_index is not None

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._open_indexes()
        return cast("OffsetIndex", self._offset_index)

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._open_indexes()
        return cast("TimeIndex", self._time_index)

    def _open_indexes(self) -> None:
        """Open both; raises ``CorruptIndexError`` where a file's size gives it away."""
        place = self.base_offset, self.index_bytes, self._disk
        self._offset_index = OffsetIndex(self.path(OFFSET_INDEX_SUFFIX), *place)
        self._time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), *place)

    @property
    def last_modified_ms(self) -> int:
        return self.path().stat().st_mtime_ns // 1_000_000

    def existing_paths(self) -> list[Path]:
        """The files that it has."""
        return [path for path in map(self.path, SEGMENT_SUFFIXES) if path.exists()]

    def rename(self, state_suffix: str) -> list[Path]:
        """Give all its files another second suffix (``.swap``, ``.deleted``, none); their new paths.

        The ``.log`` file goes first: whatever a crash leaves unrenamed is an index, which loading either
        renames after it (``.swap``) or removes as an orphan.
        """
        renamed: list[Path] = []
        for suffix in SEGMENT_SUFFIXES:
            source = self.path(suffix)
            target = segment_path(self.directory, self.base_offset, suffix, state_suffix)
            try:
                self._disk.rename(source, target)
            except FileNotFoundError:
                if suffix == LOG_SUFFIX:
                    raise
            else:
                renamed.append(target)
        self.state_suffix = state_suffix
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)
        if self._offset_index is not None:
            self._offset_index.path = self.path(OFFSET_INDEX_SUFFIX)
        if self._time_index is not None:
            self._time_index.path = self.path(TIME_INDEX_SUFFIX)
        return renamed

    def move_to(self, directory: Path) -> None:
        """Follow the partition's directory, which has been renamed."""
        self.directory = self.txn_index.directory = directory
        if self._offset_index is not None:
            self._offset_index.directory = directory
        if self._time_index is not None:
            self._time_index.directory = directory

    def trim_log(self, size: int) -> None:
        """Cut what ``preallocate`` has left behind the last batch.

        Only if there is something: cutting nothing would still make the file look changed just now, and
        retention goes by that where records have no timestamps.
        """
        fd = self.file.fd
        if os.fstat(fd).st_size > size:
            self._disk.ftruncate(fd, size)

    def sync_indexes(self) -> None:
        """Bring the indexes to the disk; may run in a thread."""
        for suffix in SEGMENT_SUFFIXES[1:]:
            try:
                self._disk.sync_path(self.path(suffix))
            except FileNotFoundError:
                # No transaction was aborted here, or the segment has just been renamed for deletion.
                continue

    def close_handles(self) -> None:
        """Let go of files and maps without writing, as when the disk has failed."""
        self.close_indexes()
        self._file = None

    def close_indexes(self) -> None:
        """Let go of the indexes' maps; the next use opens the files again."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()
        self._offset_index = None
        self._time_index = None
