"""The files of one segment: their names, and opening them no earlier than needed.

A segment that nobody touches holds no descriptor and no map, only this object; what is opened stays open
until the segment is closed or dropped. What is in the files is the business of ``segment``, which owns this
and checks the indexes when it opens them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tidelog.storage.disk import Disk, LogFile
from tidelog.storage.files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.segment.transaction_index import TransactionIndex


class OpenIndexes(NamedTuple):
    """The indexes that find a batch, open."""

    offset_index: OffsetIndex
    time_index: TimeIndex


class SegmentFiles:
    """The ``.log`` file and the indexes of the segment from ``base_offset`` on."""

    __slots__ = (
        "_log_file",
        "base_offset",
        "directory",
        "disk",
        "index_bytes",
        "offset_index",
        "state_suffix",
        "time_index",
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
        self.disk = disk
        self.offset_index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        """Both None unless they are open."""
        self._log_file: LogFile | None = None
        txn_path = self.path(TXN_INDEX_SUFFIX)
        self.txn_index = TransactionIndex(txn_path, base_offset, disk, exists=has_txn_index)

    def make(self, *, preallocated_bytes: int = 0) -> None:
        """Make the files of an empty segment; files of that name that are there are emptied."""
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            fd = self.disk.open(self.path(suffix), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                if suffix == LOG_SUFFIX and preallocated_bytes:
                    self.disk.ftruncate(fd, preallocated_bytes)
            finally:
                self.disk.close(fd)
        self.path(TXN_INDEX_SUFFIX).unlink(missing_ok=True)

    def make_indexes(self) -> None:
        """Make both indexes anew and empty, whatever their files held."""
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
            self.disk.close(self.disk.open(self.path(suffix), flags, 0o644))

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        """The path of one of its files."""
        return segment_path(self.directory, self.base_offset, suffix, self.state_suffix)

    @property
    def log_file(self) -> LogFile:
        """The ``.log`` file, open; on the loop only, lest two open it and one closes what the other uses."""
        file = self._log_file
        if file is None:
            file = self._log_file = LogFile(self.disk.open(self.path(), os.O_RDWR), self.disk)
        return file

    @property
    def has_log_file_open(self) -> bool:
        return self._log_file is not None

    @property
    def is_open(self) -> bool:
        """Whether any of its files is."""
        return self._log_file is not None or self.offset_index is not None or self.time_index is not None

    def open_indexes(self) -> OpenIndexes:
        """Open both; raises ``CorruptIndexError`` where a file's size gives it away."""
        place = self.base_offset, self.index_bytes, self.disk
        offset_index = self.offset_index = OffsetIndex(self.path(OFFSET_INDEX_SUFFIX), *place)
        time_index = self.time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), *place)
        return OpenIndexes(offset_index, time_index)

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
                self.disk.rename(source, target)
            except FileNotFoundError:
                if suffix == LOG_SUFFIX:
                    raise
            else:
                renamed.append(target)
        self.state_suffix = state_suffix
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)
        if self.offset_index is not None:
            self.offset_index.path = self.path(OFFSET_INDEX_SUFFIX)
        if self.time_index is not None:
            self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        return renamed

    def move_to(self, directory: Path) -> None:
        """Follow the partition's directory, which has been renamed."""
        self.directory = self.txn_index.directory = directory
        if self.offset_index is not None:
            self.offset_index.directory = directory
        if self.time_index is not None:
            self.time_index.directory = directory

    def trim_log(self, size: int) -> None:
        """Cut what ``preallocate`` has left behind the last batch.

        Only if there is something: cutting nothing would still make the file look changed just now, and
        retention goes by that where records have no timestamps.
        """
        fd = self.log_file.fd
        if os.fstat(fd).st_size > size:
            self.disk.ftruncate(fd, size)

    def sync_log(self) -> None:
        """Bring the ``.log`` file to the disk; may run in a thread, which opens it for itself if need be."""
        file = self._log_file
        if file is None:
            self.disk.sync_path(self.path())
        else:
            self.disk.fsync(file.fd)

    def sync_indexes(self) -> None:
        """Bring the indexes to the disk where they have changed; may run in a thread."""
        for suffix, index in (
            (OFFSET_INDEX_SUFFIX, self.offset_index),
            (TIME_INDEX_SUFFIX, self.time_index),
            (TXN_INDEX_SUFFIX, None),
        ):
            try:
                if index is not None:
                    index.sync()
                else:
                    self.disk.sync_path(self.path(suffix))
            except FileNotFoundError:
                # No transaction was aborted here, or the segment has just been renamed for deletion.
                continue

    def close_handles(self) -> None:
        """Let go of files and maps without writing, as when the disk has failed."""
        self.close_indexes()
        self._log_file = None

    def close_indexes(self) -> None:
        """Let go of the indexes' maps; the next use opens the files again."""
        for index in (self.offset_index, self.time_index):
            if index is not None:
                index.close()
        self.offset_index = None
        self.time_index = None
