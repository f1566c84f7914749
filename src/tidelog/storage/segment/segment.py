"""One segment of a log: a ``.log`` file of record batches and its three indexes.

The ``.log`` file holds batches of format 2 and messages of formats 0 and 1 back to back (layout in
``records/batch``), nothing else, except that with
``preallocate`` an active segment's file is as long as ``segment.bytes`` and zeros follow the last batch.

Invariant: ``size`` is the end of the last whole batch that was written; nobody reads behind it. A write that
fails or falls short is cut off again before the error leaves, so memory and file agree. A crash can leave a
torn batch or zeros behind the last whole one: ``recovery`` cuts them off.

To find a batch the offset index gives a place to begin, and a look at batch headers from there gives the
batch; where it was compiled ``batch_search`` does both in one step, and the way here is for what it leaves.
Positions found or written lately are remembered, so that readers at the end of the log need neither.

The files, their names and their handles are ``segment.files``. Called by ``log_files``, ``log_appender`` and
``log_reads`` and, for segments still named ``.cleaned``, by the cleaner.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.errors import CorruptRecordError, StorageError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import HEADER_SIZE, Buffer, header_at
from tidelog.storage.disk import REAL_DISK, Disk, LogFile
from tidelog.storage.files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment import batch_scan, batch_search
from tidelog.storage.segment.index_rebuild import (
    INLINE_BYTES,
    REBUILT_SUFFIX,
    IndexBounds,
    IndexesNotReady,
    RebuiltIndexes,
    read_headers,
)
from tidelog.storage.segment.mapped_index import CorruptIndexError
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.segment_files import OpenIndexes, SegmentFiles
from tidelog.storage.segment.time_index import TimeIndex, TimestampOffset

logger = logging.getLogger(__name__)
_MAX_BUFFERS = 1024
_UNREAD = -2
# How many batch positions are remembered, twice: readers at the end of the log then need no index.
_REMEMBERED_POSITIONS = 64
_NOWHERE = -1
_compiled_find = batch_search.find if batch_search.COMPILED else None
_own_pread = os.pread


class NumberedBatch(NamedTuple):
    """A batch that is checked and numbered, and what a segment must know of it to write it."""

    buffer: Buffer
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


class Segment:
    """The batches from ``base_offset`` on, up to the next segment."""

    __slots__ = (
        "_appended",
        "_changes",
        "_damage",
        "_disk",
        "_fd",
        "_first_timestamp",
        "_found_position",
        "_found_size",
        "_highest",
        "_highest_offset",
        "_older_positions",
        "_positions",
        "_pwrite",
        "_rebuilding",
        "_reserved_entries",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "files",
        "index_interval",
        "is_loading",
        "jitter_ms",
        "size",
        "txn_index",
    )

    def __init__(self, files: SegmentFiles, config: LogConfig, *, size: int, clock: Clock) -> None:
        self.files = files
        self.base_offset = files.base_offset
        self.txn_index = files.txn_index
        self.size = size
        self.index_interval = config.index_interval_bytes
        self.jitter_ms = config.random_segment_jitter_ms()
        self.created_ms = clock.time_ms()
        self.bytes_since_index = 0
        self.is_loading = False
        """Whether its log is being loaded: then nobody is served yet, and indexes are rebuilt at once."""
        self._disk = files.disk
        self._pwrite = files.disk.pwrite
        # The file that is appended to, held for as long as its descriptor is: appends have no time to ask it.
        self._appended: LogFile | None = None
        self._fd = -1
        self._reserved_entries = 0
        self._highest = _UNREAD
        self._highest_offset = files.base_offset
        self._first_timestamp: int | None = None
        self._positions: dict[int, int] = {}
        self._older_positions: dict[int, int] = {}
        # Position and size of the batch that a search came to last.
        self._found_position = _NOWHERE
        self._found_size = 0
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
        files = SegmentFiles(
            directory,
            base_offset,
            config.segment_index_bytes,
            disk=disk,
            state_suffix=state_suffix,
            has_txn_index=False,
        )
        files.make(preallocated_bytes=config.segment_bytes if config.preallocate else 0)
        segment = cls(files, config, size=0, clock=clock)
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
        index_bytes = config.segment_index_bytes
        files = SegmentFiles(directory, base_offset, index_bytes, disk=disk, state_suffix=state_suffix)
        return cls(files, config, size=files.path().stat().st_size, clock=clock)

    def __repr__(self) -> str:
        return f"Segment({self.path()}, {self.size} bytes)"

    def path(self, suffix: str = LOG_SUFFIX) -> Path:
        """The path of one of its files."""
        return self.files.path(suffix)

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
        return timestamp if timestamp >= 0 else self.files.last_modified_ms

    @property
    def first_timestamp(self) -> int:
        """The highest timestamp of the first batch, which starts the clock of ``segment.ms``; -1: none."""
        if self._first_timestamp is None:
            if self.size == 0:
                return NO_TIMESTAMP
            head = self._disk.pread(self.files.log_file.fd, HEADER_SIZE, 0)
            self._first_timestamp = header_at(head).max_timestamp
        return self._first_timestamp

    # -- finding batches ------------------------------------------------------------------------------

    def position_of(self, offset: int) -> int | None:
        """Where the first batch lies that ends at ``offset`` or later; None if no batch does."""
        position = self._positions.get(offset)
        if position is None:
            position = self._older_positions.get(offset)
            if position is None:
                return self._search(offset)
        return position

    def _search(self, offset: int) -> int | None:
        if _compiled_find is not None and self._disk.pread is _own_pread:
            index = self.offset_index
            batch = _compiled_find(
                self.files.log_file.fd,
                index.raw,
                index.entries,
                offset - self.base_offset,
                offset,
                self.size,
                self.index_interval,
            )
            if batch is not None:
                return self._remember(offset, *batch)
        return self._search_closely(offset)

    def _search_closely(self, offset: int) -> int | None:
        start, behind = self.offset_index.around(offset)
        if not 0 <= start < self.size:
            start = 0
        elif behind - start > 2 * self.index_interval:
            # Batches so large have an entry each, by their ends: the one behind is the one to be read next.
            size = batch_scan.size_if_holding(
                self._disk.pread, self.files.log_file.fd, behind, self.size, offset
            )
            if size:
                return self._remember(offset, behind, size)
        try:
            found = self._find(offset, start)
        except CorruptRecordError as error:
            if start == 0:
                raise
            # Only if the log is sound from its beginning, which rebuilding finds out, is it the index that is
            # not. In a large segment that takes a while, and whoever asks is told so.
            logger.warning("%s; both indexes are rebuilt from the log", error)
            self._rebuild_indexes()
            found = self._find(offset, self.position_near(offset))
        return None if found is None else self._remember(offset, *found)

    def _remember(self, offset: int, position: int, size: int) -> int:
        if len(self._positions) > _REMEMBERED_POSITIONS:
            self.forget_positions()
        self._found_position, self._found_size = position, size
        self._positions[offset] = position
        return position

    def _find(self, offset: int, start: int) -> batch_scan.FoundBatch | None:
        return batch_scan.find_offset(
            self._disk.pread, self.files.log_file.fd, start, self.size, offset, self.path
        )

    def position_near(self, offset: int) -> int:
        """Where to begin looking for ``offset``, by the index: the batch there is not behind it."""
        position = self.offset_index.lookup(offset).position
        return position if 0 <= position < self.size else 0

    def forget_positions(self) -> None:
        """Drop remembered positions."""
        self._positions = {}
        self._older_positions = {}
        self._found_position = _NOWHERE

    def batch_size_at(self, position: int) -> int:
        """The size of the batch at ``position``."""
        if position == self._found_position:
            return self._found_size
        return batch_scan.size_at(self._disk.pread, self.files.log_file.fd, position, self.path)

    def next_offset(self) -> int:
        """The offset behind the last batch, found by scanning on from the last index entry."""
        end = self.base_offset
        for _, header in self.scan(self.offset_index.last_position):
            end = header.next_offset
        return end

    def scan(self, position: int = 0) -> batch_scan.Scan:
        """Every batch from ``position`` on; reads headers only."""
        return batch_scan.headers(self._disk.pread, self.files.log_file.fd, position, self.size, self.path)

    def read_bytes(self, position: int, size: int) -> bytes:
        """The bytes at ``position``, as many as there are up to ``size``."""
        return self._disk.pread(self.files.log_file.fd, min(size, self.size - position), position)

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

    def append(self, batches: Sequence[NumberedBatch]) -> None:
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
        buffers = [batch.buffer for batch in batches]
        try:
            for start in range(0, len(buffers), _MAX_BUFFERS):
                position += self._write(fd, buffers[start : start + _MAX_BUFFERS], position)
        except OSError:
            self._disk.ftruncate(fd, self.size)
            raise
        for _, size, base_offset, last_offset, max_timestamp in batches:
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
        file = self._appended = self.files.log_file
        self._fd = file.fd
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
        if len(positions) > _REMEMBERED_POSITIONS:
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
        self._disk.ftruncate(self.files.log_file.fd, mark.size)
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
        self.files.trim_log(self.size)

    def _note_highest(self) -> None:
        highest = self.max_timestamp
        index = self.time_index
        if highest.timestamp > index.last.timestamp:
            index.reserve(1)
            index.maybe_append(*highest)

    # -- indexes --------------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        """The index from offsets to positions, open."""
        index = self.files.offset_index
        return self._open_indexes().offset_index if index is None else index

    @property
    def time_index(self) -> TimeIndex:
        """The index from timestamps to offsets, open."""
        index = self.files.time_index
        return self._open_indexes().time_index if index is None else index

    def _open_indexes(self) -> OpenIndexes:
        """Open both and look whether they can be right; if not, rebuild them."""
        if self._rebuilding is not None:
            raise IndexesNotReady(self.path(), self._rebuilding)
        try:
            indexes = self.files.open_indexes()
            indexes.offset_index.check(self.size)
            indexes.time_index.check()
            return indexes
        except CorruptIndexError as error:
            self.close_indexes()
            logger.warning("%s; both indexes are rebuilt from the log", error)
        except FileNotFoundError as error:
            self.close_indexes()
            if not self.path().exists():
                raise
            logger.warning("%s is missing; both indexes are rebuilt from the log", error.filename)
        self._rebuild_indexes()
        return OpenIndexes(self.offset_index, self.time_index)

    def _rebuild_indexes(self) -> None:
        """Read the headers of all batches and index them anew; on a loop that serves only if they are few.

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
            OffsetIndex.max_entries_in(self.files.index_bytes),
            TimeIndex.max_entries_in(self.files.index_bytes),
        )
        paths = self.path(OFFSET_INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)
        file, size, path = self.files.log_file, self.size, self.path()

        def build() -> RebuiltIndexes:
            rebuilt = read_headers(self._disk.pread, file.fd, size, bounds, path)
            rebuilt.write(self._disk, *paths)
            return rebuilt

        if loop is None or self.is_loading or size <= INLINE_BYTES:
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
        self.files.open_indexes()
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
            self._disk.ftruncate(self.files.log_file.fd, position)
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
        self.files.sync_log()
        self.files.sync_indexes()

    def close(self) -> None:
        """Note the highest timestamp, cut the files to what they hold, and let go of them."""
        if self._highest >= 0:
            self._note_highest()
        files = self.files
        if files.offset_index is not None:
            files.offset_index.trim()
        if files.time_index is not None:
            files.time_index.trim()
        if files.has_log_file_open:
            files.trim_log(self.size)
        self.close_handles()

    def close_handles(self) -> None:
        """Let go of files and maps without writing, as when the disk has failed."""
        self.close_indexes()
        self._fd = -1
        self._appended = None
        self.files.close_handles()
        self._changes += 1

    def close_indexes(self) -> None:
        """Let go of the indexes' maps; what was reserved in them is reserved anew before the next write."""
        self.files.close_indexes()
        self._reserved_entries = 0


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
