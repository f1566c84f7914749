"""The segment that a cleaning pass writes: ``<base offset>.log.cleaned`` with its indexes.

Nobody reads these files before the broker swaps them in, so they are written straight through, whole
indexes last, and synced once at the end. A crash leaves some of them, without meaning: loading the log
deletes every ``.cleaned`` file, and so does the next pass. Used by ``compaction``, in its own process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from tidelog.errors import StorageError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import MAX_INT32, Buffer, header_at
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from tidelog.storage.segment.transaction_index import AbortedTxn

_WRITE_BUFFER_BYTES: Final = 1024 * 1024
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class CleanedSegment:
    """A segment in the making, in the directory of the log that it will join."""

    def __init__(
        self, directory: Path, base_offset: int, index_interval_bytes: int, disk: Disk = REAL_DISK
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = 0
        self._disk = disk
        self._index_interval_bytes = index_interval_bytes
        self._indexed_bytes = 0
        self._offset_index = bytearray()
        self._time_index = bytearray()
        self._aborted = bytearray()
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._indexed_timestamp = NO_TIMESTAMP
        remove_cleaned_files(directory, base_offset)
        self._log: BinaryIO = self._path(LOG_SUFFIX).open("wb", buffering=_WRITE_BUFFER_BYTES)

    def append(self, batch: Buffer) -> None:
        """Write one batch behind the others."""
        header = header_at(batch)
        if self.size_bytes + len(batch) > MAX_INT32 or header.last_offset - self.base_offset > MAX_INT32:
            raise StorageError(
                f"the cleaned segment {self.base_offset} in {self.directory} would pass what its index can "
                "address; lower the topic's segment.bytes"
            )
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        if self.size_bytes - self._indexed_bytes > self._index_interval_bytes:
            self._offset_index += _OFFSET_ENTRY.pack(header.last_offset - self.base_offset, self.size_bytes)
            self._index_time()
            self._indexed_bytes = self.size_bytes
        self._log.write(batch)
        self.size_bytes += len(batch)

    def add_aborted(self, aborted: Sequence[AbortedTxn]) -> None:
        """Keep aborted transactions whose marker lies in this segment."""
        for transaction in aborted:
            self._aborted += transaction.encode()

    def finish(self, modified_ns: int) -> None:
        """Bring everything to disk, dated like the newest of the segments it was made from."""
        self._index_time()
        self._log.flush()
        self._disk.fsync(self._log.fileno())
        self._log.close()
        files = {OFFSET_INDEX_SUFFIX: self._offset_index, TIME_INDEX_SUFFIX: self._time_index}
        if self._aborted:
            files[TXN_INDEX_SUFFIX] = self._aborted
        for suffix, data in files.items():
            with self._path(suffix).open("wb") as file:
                file.write(data)
                file.flush()
                self._disk.fsync(file.fileno())
        for suffix in (LOG_SUFFIX, *files):
            os.utime(self._path(suffix), ns=(modified_ns, modified_ns))

    def discard(self) -> None:
        """Give up: close and remove the files."""
        self._log.close()
        remove_cleaned_files(self.directory, self.base_offset)

    def _index_time(self) -> None:
        if self._max_timestamp > self._indexed_timestamp:
            self._time_index += _TIME_ENTRY.pack(
                self._max_timestamp, self._max_timestamp_offset - self.base_offset
            )
            self._indexed_timestamp = self._max_timestamp

    def _path(self, suffix: str) -> Path:
        return segment_path(self.directory, self.base_offset, suffix, CLEANED_SUFFIX)


def remove_cleaned_files(directory: Path, base_offset: int) -> None:
    """Remove what a pass that was cut short has left for this segment."""
    for suffix in SEGMENT_SUFFIXES:
        segment_path(directory, base_offset, suffix, CLEANED_SUFFIX).unlink(missing_ok=True)
