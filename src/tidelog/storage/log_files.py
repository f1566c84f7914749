"""A log as files: its segments, rolling to a new one, syncing them, taking old ones away.

Invariants: ``recovery_point`` is never behind what a crash could lose: everything before it was synced, with
its indexes. Segments that go are first renamed ``.deleted`` and leave ``segments`` at once; the files go when
:attr:`LogFiles.on_segments_deleted` says so, so that answers under way can still be sent from them. What a
crash leaves is for ``recovery``. Built upon by ``log_append`` and ``log``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import LogDirOfflineError
from tidelog.ids import TopicPartition
from tidelog.storage.disk import Disk, log_dir_offline
from tidelog.storage.files import DELETED_SUFFIX
from tidelog.storage.leader_epochs import LeaderEpochCache
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producer_state import ProducerState
from tidelog.storage.segment import Segment
from tidelog.storage.segments import Segments


class LogFiles:
    """The files of one partition and what has become of them."""

    __slots__ = (
        "_active",
        "_recovery_lock",
        "_truncations",
        "clock",
        "config",
        "directory",
        "disk",
        "epochs",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "on_rolled",
        "on_segments_deleted",
        "producers",
        "recovery_point",
        "segments",
        "topic_partition",
    )

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        config: LogConfig,
        segments: Segments,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        *,
        clock: Clock,
        disk: Disk,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.directory = directory
        self.topic_partition = partition
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.last_flush_ms = clock.time_ms()
        self.on_rolled: Callable[[int], None] | None = None
        self.on_segments_deleted: Callable[[list[Path]], None] | None = None
        self.clock = clock
        self.disk = disk
        self._active = segments.active
        # A flush in a thread must not move the recovery point behind a truncation that came after it began.
        self._recovery_lock = threading.Lock()
        self._truncations = 0

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def _offline(self, doing: str, error: OSError) -> LogDirOfflineError:
        return log_dir_offline(self.directory, doing, error)

    # -- rolling --------------------------------------------------------------------------------------

    def _roll(self, first_offset: int) -> None:
        """Make a new active segment from ``first_offset`` on; one that is empty already will do."""
        base_offset = max(first_offset, self.log_end_offset)
        active = self._active
        if active.base_offset == base_offset and active.size == 0:
            return
        active.become_inactive()
        segment = Segment.create(self.directory, base_offset, self.config, clock=self.clock, disk=self.disk)
        self.segments.add(segment)
        self._active = segment
        # Taken at the new base offset, so that recovering the new segment need not read the one before.
        self.producers.end_offset = base_offset
        self.producers.take_snapshot(sync=False)
        if self.on_rolled is None:
            self.flush_up_to(base_offset)
        else:
            self.on_rolled(base_offset)

    # -- syncing --------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Bring everything that was written to the disk; may run in a thread."""
        self._flush(self.log_end_offset, include_empty=False)

    def flush_up_to(self, offset: int) -> None:
        """Bring everything before ``offset`` to the disk; may run in a thread."""
        self._flush(offset, include_empty=False)

    def _flush(self, offset: int, *, include_empty: bool) -> None:
        # In this order: a truncation before the end is read is seen in the end, one after it in the count.
        truncations = self._truncations
        directory = self.directory
        offset = min(offset, self.log_end_offset)
        start = self.recovery_point
        if offset <= start and not include_empty:
            return
        try:
            self._sync(start, offset + include_empty)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not directory.exists():
                # The partition is being deleted, or renamed for that: nothing of it needs to last.
                return
            raise self._offline("syncing", error) from error
        with self._recovery_lock:
            if truncations == self._truncations and offset > self.recovery_point:
                self.recovery_point = offset
                self.last_flush_ms = self.clock.time_ms()

    def _sync(self, start: int, end: int) -> None:
        segments = self.segments.between(start, end)
        for segment in segments:
            try:
                segment.flush()
            except FileNotFoundError:
                if segment in self.segments:
                    raise
                # Retention has taken it away since this flush began, which may be in a thread.
        new_segments = [segment for segment in segments if segment.base_offset >= start]
        for segment in new_segments:
            if segment.base_offset in self.producers.snapshots.offsets:
                self.disk.sync_path(self.producers.snapshots.path(segment.base_offset))
        self.epochs.flush()
        if new_segments:
            # The names of new files are kept in the directory, which is synced by itself.
            self.disk.sync_path(self.directory)

    def _lower_recovery_point(self, offset: int) -> None:
        with self._recovery_lock:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, offset)

    # -- taking segments away -------------------------------------------------------------------------

    def remove_segments(self, segments: Iterable[Segment]) -> None:
        """Take segments out of the log and let their files, and their snapshots, wait for deletion."""
        waiting: list[Path] = []
        for segment in segments:
            if segment in self.segments:
                self.segments.remove(segment.base_offset)
            waiting += self.mark_deleted(segment)
            snapshot = self.producers.snapshots.mark_deleted(segment.base_offset)
            if snapshot is not None:
                waiting.append(snapshot)
        self.hand_over(waiting)

    def mark_deleted(self, segment: Segment) -> list[Path]:
        """Rename the files of a segment nobody may read any more; gives back their new paths."""
        segment.close_handles()
        segment.rename(DELETED_SUFFIX)
        return segment.existing_paths()

    def set_end_offset(self, offset: int) -> None:
        """Note that the log was cut to ``offset``."""
        self._active = self.segments.active
        self.log_end_offset = offset
        self._lower_recovery_point(offset)

    def hand_over(self, paths: list[Path]) -> None:
        """Have files that wait for deletion deleted in time."""
        if not paths:
            return
        if self.on_segments_deleted is not None:
            self.on_segments_deleted(paths)
            return
        for path in paths:
            path.unlink(missing_ok=True)
