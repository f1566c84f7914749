"""Finding a record by its time, in steps: what may take long is done beside the loop.

A search goes through the segments whose highest timestamp is high enough, begins where the time index says,
looks at batch headers, and walks over the records of each batch that may hold what is sought. None of that
has a bound that a client could not stretch: ten thousand segments, a gigabyte of headers, a batch that
unpacks to a gigabyte. So the first few headers and small batches are looked at where the request is handled;
everything else goes on in a thread, in which the decoders and the walker let go of the interpreter lock.
Memory holds one batch as it is stored and one piece of its records. Compressed messages of format 1 always
go to the thread; those of format 0 have no timestamps and are never found.

Records that cannot be read are stepped over, and their batch is named once in the log. Whatever becomes of
the segments meanwhile, a search reads the file that it has open to the end; before it opens another, in a
later turn, it looks whether the segment is still in the log, and the log where it was. A partition that has
been deleted or moved meanwhile ends it with NOT_LEADER_OR_FOLLOWER, at which clients ask again.
Made by ``log``, awaited by ``handlers/list_offsets``.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import MAGIC_V2, BatchHeader, check_crc
from tidelog.records.batch_walk import BatchWalk, WalkLimits, search_walk
from tidelog.records.legacy import BROKER_LIMITS, messages_in, parse_legacy
from tidelog.storage.disk import offline_on_error
from tidelog.storage.log.log_files import LogFiles
from tidelog.storage.segment import batch_scan
from tidelog.storage.segment.index_rebuild import IndexesNotReady
from tidelog.storage.segment.segment import Segment

# What one turn of the loop may see: small files to be opened, segments to be looked at, headers, and the
# bytes of a batch.
_TIMESTAMPS_AT_A_TIME: Final = 32
_SEGMENTS_AT_A_TIME: Final = 1000
_HEADERS_AT_A_TIME: Final = 64
_BATCH_BYTES_AT_ONCE: Final = 64 * 1024
_BATCHES_AT_A_TIME: Final = 2
_STEPS_AT_ONCE: Final = 8
# Memory does not grow with what a batch unpacks to, so only what cannot be a batch at all is not looked into.
_LIMITS: Final = WalkLimits(1 << 31, (1 << 31) - 1)
_THREADS: Final = 2
_MAX_NAMED: Final = 1000

logger = logging.getLogger(__name__)


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimestampSearch:
    """The search for the first record that is not older than ``timestamp``; with None, for the youngest."""

    def __init__(self, files: LogFiles, timestamp: int | None) -> None:
        self._files = files
        self._directory = files.directory
        self._timestamp = timestamp
        self._start_offset = files.log_start_offset if timestamp is not None else 0
        self._segment: Segment | None = files.segments.first
        self._highest: Segment | None = None
        self._range: _RangeSearch | None = None
        self.done = False
        self.result: TimestampAndOffset | None = None
        """What was found, None if nothing is young enough."""

    def advance(self) -> bool:
        """Go on for as long as a turn of the loop allows; whether the search is at its end."""
        with offline_on_error(self._directory, "reading"):
            if self._range is None:
                self._check_place()
                self._choose_range()
            if self._range is not None and self._range.advance(at_most=_HEADERS_AT_A_TIME):
                self._take_range()
        return self.done

    def finish(self) -> TimestampAndOffset | None:
        """Go on to the end, here and now."""
        while not self.done:
            self.advance()
            if self._range is not None:
                with offline_on_error(self._directory, "reading"):
                    self._range.advance()
                    self._take_range()
        return self.result

    async def run(self) -> TimestampAndOffset | None:
        """Go on to the end, the long parts in a thread."""
        loop = asyncio.get_running_loop()
        while not self.done:
            if self._range is None:
                try:
                    if self.advance():
                        break
                except IndexesNotReady as rebuilding:
                    await rebuilding.wait()
                await asyncio.sleep(0)
            else:
                with offline_on_error(self._directory, "reading"):
                    await loop.run_in_executor(_threads(), self._range.advance)
                self._take_range()
        return self.result

    def _check_place(self) -> None:
        """Raise unless files may be opened: those of a log that waits for deletion have other paths."""
        files = self._files
        if files.closed or files.directory != self._directory:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{files.topic_partition} was deleted or moved while a record was sought in it",
            )

    # -- segments -------------------------------------------------------------------------------------

    def _choose_range(self) -> None:
        """Look at segments until one may hold what is sought, or for as long as a turn of the loop allows."""
        segments = self._files.segments
        learnt = 0
        for _ in range(_SEGMENTS_AT_A_TIME):
            segment = self._segment
            if segment is None:
                self._end_of_segments()
                return
            if segment in segments:
                learnt += not segment.knows_max_timestamp
                if self._timestamp is None:
                    self._compare(segment)
                elif segment.largest_timestamp >= self._timestamp:
                    self._range = self._range_in(segment, self._timestamp)
            self._segment = segments.higher(segment.base_offset)
            if self._range is not None or learnt == _TIMESTAMPS_AT_A_TIME:
                return

    def _compare(self, segment: Segment) -> None:
        best = self._highest
        if best is None or segment.max_timestamp.timestamp > best.max_timestamp.timestamp:
            self._highest = segment

    def _end_of_segments(self) -> None:
        highest, self._highest = self._highest, None
        if highest is not None and highest not in self._files.segments:
            # Retention or compaction has taken it away since: look again at those that are left.
            self._segment = self._files.segments.first
            return
        if highest is None or highest.max_timestamp.timestamp == NO_TIMESTAMP:
            self.done = True
            return
        timestamp, offset = highest.max_timestamp
        position = highest.position_of(offset) or 0
        self._range = _RangeSearch(self._files, highest, position, timestamp, 0)

    def _range_in(self, segment: Segment, timestamp: int) -> _RangeSearch | None:
        indexed = segment.time_index.lookup(timestamp)
        position = segment.position_of(max(indexed.offset, self._start_offset))
        if position is None:
            return None
        return _RangeSearch(self._files, segment, position, timestamp, self._start_offset)

    def _take_range(self) -> None:
        """The range is searched: that was it, or a later segment may have more.

        All that is young enough in one may lie before the log start offset.
        """
        ended, self._range = self._range, None
        if ended is not None and ended.found is not None:
            self.result = ended.found
            self.done = True


class _RangeSearch:
    """The search in one segment from ``position`` on; needs its file alone, so that a thread may do it."""

    def __init__(
        self, files: LogFiles, segment: Segment, position: int, timestamp: int, start_offset: int
    ) -> None:
        self.found: TimestampAndOffset | None = None
        self._partition = str(files.topic_partition)
        self._pread = files.disk.pread
        # Keeps the descriptor open, whatever becomes of the segment.
        self._file = segment.files.log_file
        path = segment.path()
        self._headers = batch_scan.headers(self._pread, self._file.fd, position, segment.size, lambda: path)
        self._timestamp = timestamp
        self._start_offset = start_offset
        self._batch: batch_scan.ScannedBatch | None = None
        self._walk: BatchWalk | None = None

    def advance(self, at_most: int | None = None) -> bool:
        """Go on, with ``at_most`` over so many headers and small batches alone; whether it is at its end."""
        on_loop = at_most is not None
        left = at_most
        looked_into = 0
        while self.found is None:
            if self._batch is not None:
                large = self._batch.header.size_bytes > _BATCH_BYTES_AT_ONCE
                if on_loop and (large or looked_into == _BATCHES_AT_A_TIME):
                    return False
                is_old = self._batch.header.magic != MAGIC_V2
                if is_old and on_loop and self._batch.header.codec:
                    return False
                if is_old:
                    self._look_into_old(*self._batch)
                elif not self._look_into(*self._batch, steps=_STEPS_AT_ONCE if on_loop else None):
                    return False
                self._batch = self._walk = None
                looked_into += 1
                continue
            if left is not None:
                if left == 0:
                    return False
                left -= 1
            following = next(self._headers, None)
            if following is None:
                return True
            if following.header.max_timestamp >= self._timestamp:
                self._batch = following
        return True

    def _look_into(self, position: int, header: BatchHeader, steps: int | None) -> bool:
        """Look for the record in a batch; whether that is done."""
        try:
            if self._walk is None:
                data = self._pread(self._file.fd, header.size_bytes, position)
                if not check_crc(data, 0, header.size_bytes):
                    raise CorruptRecordError("it fails its checksum")
                self._walk = search_walk(data, header, 0, _LIMITS, self._timestamp, self._start_offset)
            if not self._walk.advance(steps):
                return False
        except CorruptRecordError as error:
            _name_once(self._partition, header.base_offset, error)
            return True
        walker = self._walk.walker
        if walker.found:
            self.found = TimestampAndOffset(
                walker.found_timestamp,
                header.base_offset + walker.found_delta,
                header.partition_leader_epoch,
            )
        return True

    def _look_into_old(self, position: int, header: BatchHeader) -> None:
        """Look for the record in a message of format 1, or in those that it carries."""
        try:
            data = self._pread(self._file.fd, header.size_bytes, position)
            if not check_crc(data, 0, header.size_bytes):
                raise CorruptRecordError("it fails its checksum")
            for message in messages_in(parse_legacy(data), BROKER_LIMITS):
                if message.timestamp >= self._timestamp and message.offset >= self._start_offset:
                    self.found = TimestampAndOffset(
                        message.timestamp, message.offset, header.partition_leader_epoch
                    )
                    return
        except CorruptRecordError as error:
            _name_once(self._partition, header.base_offset, error)


_named: set[tuple[str, int]] = set()


def _name_once(partition: str, offset: int, error: CorruptRecordError) -> None:
    """Say that a batch cannot be read, unless that has been said."""
    if (partition, offset) in _named:
        return
    if len(_named) >= _MAX_NAMED:
        _named.clear()
    _named.add((partition, offset))
    logger.warning(
        "%s: the batch at offset %d is passed over when times are looked up: %s", partition, offset, error
    )


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Threads of their own: a crowd of searches must not keep others from syncing what they have written."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="timestamp-search")
