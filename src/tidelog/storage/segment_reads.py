"""Finding batches in a segment: where an offset lies, how large a batch is, what follows it.

The offset index gives a place to begin, a look at batch headers from there gives the batch; where it was
compiled ``batch_search`` does both in one step, and the way here is for what it leaves. Positions found or
written lately are remembered, so that readers at the end of the log need neither. Reads nothing behind
``size``. ``segment`` builds on it; ``log`` reads through it.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from pathlib import Path

from tidelog.errors import CorruptRecordError
from tidelog.storage import batch_scan, batch_search
from tidelog.storage.disk import Disk
from tidelog.storage.segment_files import SegmentFiles

logger = logging.getLogger(__name__)
# How many batch positions are remembered, twice: readers at the end of the log then need no index.
REMEMBERED_POSITIONS = 64
_NOWHERE = (-1, 0)
_compiled_find = batch_search.find if batch_search.COMPILED else None
_own_pread = os.pread


class SegmentReads(SegmentFiles):
    """The reading side of a segment."""

    __slots__ = ("_found", "_older_positions", "_positions", "index_interval", "size")

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        index_bytes: int,
        *,
        size: int,
        index_interval: int,
        disk: Disk,
        state_suffix: str = "",
        has_txn_index: bool | None = None,
    ) -> None:
        super().__init__(
            directory,
            base_offset,
            index_bytes,
            disk=disk,
            state_suffix=state_suffix,
            has_txn_index=has_txn_index,
        )
        self.size = size
        self.index_interval = index_interval
        self._positions: dict[int, int] = {}
        self._older_positions: dict[int, int] = {}
        # Position and size of the batch that a search came to last.
        self._found = _NOWHERE

    @abstractmethod
    def _rebuild_indexes(self) -> None:
        """Make both indexes anew from the log, after one of them has led a search astray."""

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
                self.file.fd,
                index.raw,
                index.entries,
                offset - self.base_offset,
                offset,
                self.size,
                self.index_interval,
            )
            if batch is not None:
                return self._remember(offset, batch)
        return self._search_closely(offset)

    def _search_closely(self, offset: int) -> int | None:
        start, behind = self.offset_index.around(offset)
        if not 0 <= start < self.size:
            start = 0
        elif behind - start > 2 * self.index_interval:
            # Batches so large have an entry each, by their ends: the one behind is the one to be read next.
            size = batch_scan.size_if_holding(self._disk.pread, self.file.fd, behind, self.size, offset)
            if size:
                return self._remember(offset, (behind, size))
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
        return None if found is None else self._remember(offset, found)

    def _remember(self, offset: int, found: tuple[int, int]) -> int:
        if len(self._positions) > REMEMBERED_POSITIONS:
            self.forget_positions()
        self._found = found
        self._positions[offset] = found[0]
        return found[0]

    def _find(self, offset: int, start: int) -> tuple[int, int] | None:
        return batch_scan.find_offset(self._disk.pread, self.file.fd, start, self.size, offset, self.path)

    def position_near(self, offset: int) -> int:
        """Where to begin looking for ``offset``, by the index: the batch there is not behind it."""
        position = self.offset_index.lookup(offset).position
        return position if 0 <= position < self.size else 0

    def forget_positions(self) -> None:
        """Drop remembered positions."""
        self._positions = {}
        self._older_positions = {}
        self._found = _NOWHERE

    def batch_size_at(self, position: int) -> int:
        """The size of the batch at ``position``."""
        if position == self._found[0]:
            return self._found[1]
        return batch_scan.size_at(self._disk.pread, self.file.fd, position, self.path)

    def next_offset(self) -> int:
        """The offset behind the last batch, found by scanning on from the last index entry."""
        end = self.base_offset
        for _, header in self.scan(self.offset_index.last_position):
            end = header.next_offset
        return end

    def scan(self, position: int = 0) -> batch_scan.Scan:
        """``(position, header)`` of every batch from ``position`` on; reads headers only."""
        return batch_scan.headers(self._disk.pread, self.file.fd, position, self.size, self.path)

    def read_bytes(self, position: int, size: int) -> bytes:
        """The bytes at ``position``, as many as there are up to ``size``."""
        return self._disk.pread(self.file.fd, min(size, self.size - position), position)
