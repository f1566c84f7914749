"""Segments that have left their log and still bear their names: renaming and closing them, off the loop.

Retention may drop ten thousand segments in one round, compaction replace as many. In memory they leave the
log at once; closing their files and renaming them ``.deleted``, four system calls and more for each, is done
here, by a thread and segment by segment. A new segment that takes the name of one that waits has that one
renamed first (:meth:`RemovedSegments.free`). A clean shutdown renames all that is left.

What a crash leaves are segments that were removed and have their names. Those before the log start offset,
which is in its checkpoint as long as anything waits here, are removed again; those that compaction has
replaced lie in the range of a ``.swap`` file, and loading removes them. Truncation does not come here: its
segments must not be found again.

Owned by ``log_files``; the thread is ``upkeep``'s or the cleaner's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tidelog.storage.files import DELETED_SUFFIX
from tidelog.storage.producers.producer_snapshots import ProducerSnapshots
from tidelog.storage.segment.segment import Segment


class _Removed(NamedTuple):
    """A segment that waits to be renamed."""

    segment: Segment
    has_snapshot: bool


class RemovedSegments:
    """The segments of one log that wait to be renamed; may be used from any thread."""

    __slots__ = ("_lock", "_snapshots", "_waiting")

    def __init__(self, snapshots: ProducerSnapshots) -> None:
        self._snapshots = snapshots
        self._waiting: deque[_Removed] = deque()
        # Held while a segment's files, or the partition's directory, change their names.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, segments: Iterable[Segment], *, keep_snapshots: Iterable[int] = ()) -> None:
        """Take segments that nobody can find any more; their snapshots go with them, but for some."""
        removed = list(segments)
        snapshots = self._snapshots.take({segment.base_offset for segment in removed} - set(keep_snapshots))
        self._waiting.extend(_Removed(segment, segment.base_offset in snapshots) for segment in removed)

    def rename(self, at_most: int | None = None) -> list[Path]:
        """Close and rename those that wait, or as many as ``at_most``; gives back the files' new paths."""
        renamed: list[Path] = []
        count = len(self._waiting) if at_most is None else at_most
        for _ in range(count):
            with self._lock:
                if not self._waiting:
                    break
                # It waits until it is renamed: whoever asks whether anything waits is not told too early.
                renamed += self._rename(*self._waiting[0])
                self._waiting.popleft()
        return renamed

    def free(self, base_offset: int) -> list[Path]:
        """Have a segment's name free for another; gives back the paths of the files that bore it."""
        renamed: list[Path] = []
        if self._waiting:
            with self._lock:
                for item in [each for each in self._waiting if each.segment.base_offset == base_offset]:
                    renamed += self._rename(*item)
                    self._waiting.remove(item)
        return renamed

    def clear(self) -> None:
        """Let go of all that wait: their directory is gone, or its disk has failed."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for segment, _ in waiting:
            segment.close_handles()

    def rename_directory(self, source: Path, target: Path) -> None:
        """Rename the partition's directory between two segments."""
        with self._lock:
            self._snapshots.disk.rename(source, target)
            for segment, _ in self._waiting:
                segment.files.move_to(target)
            self._snapshots.move_to(target)

    def _rename(self, segment: Segment, has_snapshot: bool) -> list[Path]:
        segment.close_handles()
        renamed = segment.files.rename(DELETED_SUFFIX)
        snapshot = self._snapshots.rename_deleted(segment.base_offset) if has_snapshot else None
        return renamed if snapshot is None else [*renamed, snapshot]
