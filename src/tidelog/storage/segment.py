"""One segment of a log: a ``.log`` file of record batches and its three indexes.

The ``.log`` file holds batches back to back (layout in ``records/batch``), nothing else, except that with
``preallocate`` an active segment's file is as long as ``segment.bytes`` and zeros follow the last batch.

Invariant: ``size`` is the end of the last whole batch that was written; nobody reads behind it. A write that
fails or falls short is cut off again before the error leaves, so memory and file agree. A crash can leave a
torn batch or zeros behind the last whole one: ``recovery`` cuts them off.

Called by ``log`` and, for segments still named ``.cleaned``, by the cleaner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.errors import StorageError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import HEADER_SIZE, Buffer, parse_header
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_path,
)
from tidelog.storage.index_rebuild import (
    INLINE_BYTES,
    REBUILT_SUFFIX,
    IndexBounds,
    IndexesNotReady,
    RebuiltIndexes,
    read_headers,
)
from tidelog.storage.log_config import LogConfig
from tidelog.storage.mapped_index import CorruptIndexError
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.segment_reads import REMEMBERED_POSITIONS, SegmentReads
from tidelog.storage.time_index import TimeIndex, TimestampOffset

logger = logging.getLogger(__name__)
_MAX_BUFFERS = 1024
_UNREAD = -2


class WrittenBatch(NamedTuple):
    """What a segment must know of a batch that it is given to write."""

    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int


class SegmentMark(NamedTuple):
    """How a segment was before an append, to take the append back."""

    size: int
    max_timestamp: TimestampOffset
    first_timestamp: int | None
    bytes_since_index: int
    offset_entries: int
    time_entries: int


class Segment(SegmentReads):
    """The batches from ``base_offset`` on, up to the next segment."""

    __slots__ = (
        "_changes",
        "_damage",
        "_fd",
        "_first_timestamp",
        "_highest",
        "_highest_offset",
        "_pwrite",
        "_rebuilding",
        "_reserved_entries",
        "bytes_since_index",
        "created_ms",
        "jitter_ms",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        clock: Clock,
        disk: Disk = REAL_DISK,
        state_suffix: str = "",
        has_txn_index: bool | None = None,
    ) -> None:
        super().__init__(
            directory,
            base_offset,
            config.segment_index_bytes,
            size=size,
            index_interval=config.index_interval_bytes,
            disk=disk,
            state_suffix=state_suffix,
            has_txn_index=has_txn_index,
        )
        self.jitter_ms = config.random_segment_jitter_ms()
        self.created_ms = clock.time_ms()
        self.bytes_since_index = 0
        self._pwrite = disk.pwrite
        self._fd = -1
        self._reserved_entries = 0
        self._highest = _UNREAD
        self._highest_offset = base_offset
        self._first_timestamp: int | None = None
        self._rebuilding: asyncio.Future[None] | None = None
        self._damage: StorageError | None = None
        # How often it was cut or closed: indexes that were rebuilt meanwhile are of something else.
        self._changes = 0

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        clock: Clock,
        disk: Disk = REAL_DISK,
        state_suffix: str = "",
    ) -> Segment:
        """A new, empty segment; files of that name that are there are emptied."""
        preallocated = config.segment_bytes if config.preallocate else 0
        cls.make(directory, base_offset, disk, state_suffix=state_suffix, preallocated_bytes=preallocated)
        segment = cls(
            directory,
            base_offset,
            config,
            size=0,
            clock=clock,
            disk=disk,
            state_suffix=state_suffix,
            has_txn_index=False,
        )
        segment._highest = NO_TIMESTAMP
        return segment

    @classmethod
    def open(
        cls,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        clock: Clock,
        disk: Disk = REAL_DISK,
        state_suffix: str = "",
    ) -> Segment:
        """An existing segment; nothing but the size of its ``.log`` file is looked at."""
        size = segment_path(directory, base_offset, LOG_SUFFIX, state_suffix).stat().st_size
        return cls(
            directory, base_offset, config, size=size, clock=clock, disk=disk, state_suffix=state_suffix
        )

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)}, {self.size} bytes)"

    # -- timestamps -----------------------------------------------------------------------------------

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether the highest timestamp is in memory already."""
        return self._highest != _UNREAD

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The highest timestamp and the last offset of the first batch that has it; ``(-1, …)``: none."""
        if self._highest == _UNREAD:
            self._highest, self._highest_offset = self.time_index.last
        return TimestampOffset(self._highest, self._highest_offset)

    @property
    def largest_timestamp(self) -> int:
        """What retention goes by: the highest timestamp, or when the file changed if records have none."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.last_modified_ms

    @property
    def first_timestamp(self) -> int:
        """The highest timestamp of the first batch, which starts the clock of ``segment.ms``; -1: none."""
        if self._first_timestamp is None:
            if self.size == 0:
                return NO_TIMESTAMP
            head = self._disk.pread(self.file.fd, HEADER_SIZE, 0)
            self._first_timestamp = parse_header(head).max_timestamp
        return self._first_timestamp

    # -- appending ------------------------------------------------------------------------------------

    @property
    def index_room(self) -> int:
        """How many more batches can be indexed before the segment must be rolled."""
        offsets, times = self.offset_index, self.time_index
        # The last slot of the time index is kept for the entry that finishes the segment.
        return min(offsets.max_entries - offsets.entries, times.max_entries - times.entries - 1)

    def append_one(
        self, buffer: Buffer, size: int, base_offset: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Write one batch that is checked and numbered; on an ``OSError`` file and memory are as before."""
        fd = self._fd
        if fd < 0:
            fd = self._prepare()
        if self.bytes_since_index > self.index_interval and not self._reserved_entries:
            self._reserve_entries(1)
        position = self.size
        try:
            written = self._pwrite(fd, buffer, position)
            if written != size:
                self._disk.write_all(fd, memoryview(buffer)[written:], position + written)
        except OSError:
            self._disk.ftruncate(fd, position)
            raise
        self._note(position, size, base_offset, last_offset, max_timestamp)

    def append(self, buffers: Sequence[Buffer], batches: Sequence[WrittenBatch]) -> None:
        """Write several batches with as few calls as can be; on an ``OSError`` all is as before."""
        fd = self._fd
        if fd < 0:
            fd = self._prepare()
        entries = 0
        since = self.bytes_since_index
        for batch in batches:
            if since > self.index_interval:
                entries += 1
                since = 0
            since += batch.size
        if entries > self._reserved_entries:
            self._reserve_entries(entries)
        position = self.size
        try:
            for start in range(0, len(buffers), _MAX_BUFFERS):
                position += self._write(fd, buffers[start : start + _MAX_BUFFERS], position)
        except OSError:
            self._disk.ftruncate(fd, self.size)
            raise
        for size, base_offset, last_offset, max_timestamp in batches:
            self._note(self.size, size, base_offset, last_offset, max_timestamp)

    def _write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        total = sum(map(len, buffers))
        written = self._disk.pwritev(fd, buffers, position)
        if written != total:
            self._disk.write_all(fd, b"".join(buffers)[written:], position + written)
        return total

    def _prepare(self) -> int:
        """Open what appends need."""
        if self._highest == _UNREAD:
            self._highest, self._highest_offset = self.time_index.last
        self._fd = self.file.fd
        return self._fd

    def _reserve_entries(self, entries: int) -> None:
        """Make room in both indexes, at least for ``entries``; what is reserved is paid for on disk."""
        offsets, times = self.offset_index, self.time_index
        offsets.reserve(entries)
        # One more than needed now, so that finishing the segment later does not fail for space.
        times.reserve(entries + 1)
        self._reserved_entries = min(offsets.reserved_entries, times.reserved_entries - 1)

    def _note(self, position: int, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Take a batch that has been written into the indexes and into memory; cannot fail."""
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self._highest:
            self._highest = max_timestamp
            self._highest_offset = last_offset
        since = self.bytes_since_index
        if since > self.index_interval:
            self._reserved_entries -= 1
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._highest, self._highest_offset)
            since = 0
        self.bytes_since_index = since + size
        self.size = position + size
        positions = self._positions
        positions[base_offset] = position
        if len(positions) > REMEMBERED_POSITIONS:
            self._older_positions = positions
            self._positions = {}

    def mark(self) -> SegmentMark:
        """How it is now, for :meth:`restore`."""
        return SegmentMark(
            self.size,
            self.max_timestamp,
            self._first_timestamp,
            self.bytes_since_index,
            self.offset_index.entries,
            self.time_index.entries,
        )

    def restore(self, mark: SegmentMark) -> None:
        """Take back an append because something that belongs to it could not be written."""
        self._disk.ftruncate(self.file.fd, mark.size)
        self.offset_index.truncate_entries(mark.offset_entries)
        self.time_index.truncate_entries(mark.time_entries)
        self.size = mark.size
        self._highest, self._highest_offset = mark.max_timestamp
        self._first_timestamp = mark.first_timestamp
        self.bytes_since_index = mark.bytes_since_index
        self._reserved_entries = 0
        self.forget_positions()

    def become_inactive(self) -> None:
        """Finish the segment: note its highest timestamp and cut all its files to what they hold."""
        self._note_highest()
        self.offset_index.trim()
        self.time_index.trim()
        self._reserved_entries = 0
        self.trim_log(self.size)

    def _note_highest(self) -> None:
        highest = self.max_timestamp
        index = self.time_index
        if highest.timestamp > index.last.timestamp:
            index.reserve(1)
            index.maybe_append(*highest)

    # -- indexes --------------------------------------------------------------------------------------

    def _open_indexes(self) -> None:
        if self._rebuilding is not None:
            raise IndexesNotReady(self.path(), self._rebuilding)
        try:
            super()._open_indexes()
            self.offset_index.check(self.size)
            self.time_index.check()
        except CorruptIndexError as error:
            self.close_indexes()
            logger.warning("%s; both indexes are rebuilt from the log", error)
            self._rebuild_indexes()
        except FileNotFoundError as error:
            self.close_indexes()
            if not self.path().exists():
                raise
            logger.warning("%s is missing; both indexes are rebuilt from the log", error.filename)
            self._rebuild_indexes()

    def _rebuild_indexes(self) -> None:
        """Read the headers of all batches and index them anew; on the loop of a broker only if they are few.

        Otherwise a thread does, and :class:`IndexesNotReady` is raised. Indexes that are open stay so until
        then: appends go on writing to them.
        """
        if self._rebuilding is not None:
            raise IndexesNotReady(self.path(), self._rebuilding)
        if self._damage is not None:
            raise self._damage
        loop = running_loop()
        bounds = IndexBounds(
            self.base_offset,
            self.index_interval,
            OffsetIndex.max_entries_in(self.index_bytes),
            TimeIndex.max_entries_in(self.index_bytes),
        )
        paths = self.path(OFFSET_INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)
        file, size, path = self.file, self.size, self.path()

        def build() -> RebuiltIndexes:
            rebuilt = read_headers(self._disk.pread, file.fd, size, bounds, path)
            rebuilt.write(self._disk, *paths)
            return rebuilt

        if loop is None or size <= INLINE_BYTES:
            self._take_rebuilt(build())
            return
        ready = self._rebuilding = loop.create_future()
        changes = self._changes

        def finish(built: asyncio.Future[RebuiltIndexes]) -> None:
            is_same = self._changes == changes and self.path() == path
            self._finish_rebuilding(built, ready, paths, is_same=is_same)

        loop.run_in_executor(None, build).add_done_callback(finish)
        raise IndexesNotReady(path, ready)

    def _finish_rebuilding(
        self,
        built: asyncio.Future[RebuiltIndexes],
        ready: asyncio.Future[None],
        paths: tuple[Path, Path],
        *,
        is_same: bool,
    ) -> None:
        """Take rebuilt indexes, or throw them away if the segment is not what it was when that began."""
        self._rebuilding = None
        try:
            if is_same:
                self._take_rebuilt(built.result())
            else:
                self._discard_rebuilt(built, paths)
        except (OSError, StorageError) as error:
            # Whoever needs them next is told that the log is damaged, or tries again.
            logger.error("the indexes of %s cannot be rebuilt: %s", self.path(), error)
            self._damage = error if isinstance(error, StorageError) else None
        finally:
            if not ready.done():
                ready.set_result(None)

    def _discard_rebuilt(self, built: asyncio.Future[RebuiltIndexes], paths: tuple[Path, Path]) -> None:
        """Whoever needs the indexes next has them rebuilt again, if that is still to be done."""
        error = None if built.cancelled() else built.exception()
        logger.info("indexes that were rebuilt of %s are not used: it has changed (%s)", self.path(), error)
        for path in paths:
            path.with_name(path.name + REBUILT_SUFFIX).unlink(missing_ok=True)

    def _take_rebuilt(self, rebuilt: RebuiltIndexes) -> None:
        """Put rebuilt indexes in the place of the old ones, and add what has been appended since."""
        self.close_indexes()
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = self.path(suffix)
            self._disk.replace(path.with_name(path.name + REBUILT_SUFFIX), path)
        super()._open_indexes()
        highest = rebuilt.highest
        last_entry_at = self.offset_index.last_position
        for position, header in self.scan(rebuilt.size):
            if header.max_timestamp > highest.timestamp:
                highest = TimestampOffset(header.max_timestamp, header.last_offset)
            if position - last_entry_at > self.index_interval and self.index_room > 0:
                self.add_index_entry(header.last_offset, position, highest)
                last_entry_at = position
        self._highest, self._highest_offset = highest
        self._note_highest()
        self.offset_index.trim()
        self.time_index.trim()
        self._reserved_entries = 0

    def add_index_entry(self, last_offset: int, position: int, highest: TimestampOffset) -> None:
        """Index one batch while rebuilding."""
        self._reserve_entries(1)
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(*highest)

    def finish_recovery(self, size: int, highest: TimestampOffset) -> None:
        """Keep the first ``size`` bytes, whose highest timestamp is known, and finish the rebuilt indexes."""
        self.size = size
        self._highest, self._highest_offset = highest
        self._first_timestamp = None
        self.bytes_since_index = 0
        self.forget_positions()
        self.become_inactive()

    # -- cutting and closing --------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Drop the batches that hold ``offset`` or later ones; gives back how many bytes went."""
        position = self.position_of(offset)
        self._changes += 1
        self.forget_positions()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        before = self.size
        if position is not None:
            self._disk.ftruncate(self.file.fd, position)
            self.size = position
            self._damage = None
        if self.size == 0:
            self._first_timestamp = None
        self.bytes_since_index = 0
        self._highest, self._highest_offset = self._read_highest()
        return before - self.size

    def _read_highest(self) -> TimestampOffset:
        highest = self.time_index.last
        for _, header in self.scan(self.position_near(highest.offset)):
            if header.max_timestamp > highest.timestamp:
                highest = TimestampOffset(header.max_timestamp, header.last_offset)
        return highest

    def flush(self) -> None:
        """Bring everything written to the disk; may run in a thread."""
        file = self.file
        self._disk.fsync(file.fd)
        self.sync_indexes()

    def close(self) -> None:
        """Note the highest timestamp, cut the files to what they hold, and let go of them."""
        if self._highest >= 0:
            self._note_highest()
        if self._offset_index is not None:
            self._offset_index.trim()
        if self._time_index is not None:
            self._time_index.trim()
        if self._file is not None:
            self.trim_log(self.size)
        self.close_handles()

    def close_handles(self) -> None:
        """Let go of files and maps without writing, as when the disk has failed."""
        super().close_handles()
        self._changes += 1
        self._fd = -1

    def close_indexes(self) -> None:
        """Let go of the indexes' maps; what was reserved in them is reserved anew before the next write."""
        super().close_indexes()
        self._reserved_entries = 0


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
