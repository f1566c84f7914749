"""A log as files: its segments, rolling to a new one, syncing them, taking old ones away.

Invariants: ``recovery_point`` is never behind what a crash could lose: everything before it was synced, with
its indexes. Segments that go leave ``segments`` at once and are renamed ``.deleted`` (``removed_segments``);
the files go when :attr:`LogFiles.on_segments_deleted` says so, so that answers under way can still be sent
from them. What a crash leaves is for ``recovery``. Built upon by ``log_append`` and ``log``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.storage.disk import Disk, is_out_of_files, log_dir_offline
from tidelog.storage.leader_epochs import LeaderEpochCache
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producer_state import ProducerState
from tidelog.storage.removed_segments import RemovedSegments
from tidelog.storage.segment import Segment, running_loop
from tidelog.storage.segments import Segments

# So many segments are closed and renamed in less than a millisecond.
_RENAMED_AT_ONCE = 8
# For ten seconds a sync in a thread waits for files that it may open.
_SYNC_ATTEMPTS = 100
_SYNC_PAUSE_S = 0.1


class LogFiles:
    """The files of one partition and what has become of them."""

    __slots__ = (
        "_active",
        "_recovery_lock",
        "clock",
        "config",
        "directory",
        "disk",
        "epochs",
        "is_deleted",
        "last_flush_ms",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "on_many_removed",
        "on_rolled",
        "on_segments_deleted",
        "producers",
        "recovery_point",
        "removed",
        "segments",
        "topic_partition",
        "truncations",
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
        self.is_deleted = False
        """Whether the directory has the name under which it waits for deletion; its files are not told."""
        self.log_dir = directory.parent
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
        self.on_many_removed: Callable[[], None] | None = None
        self.removed = RemovedSegments(producers.snapshots)
        self.clock = clock
        self.disk = disk
        self._active = segments.active
        # A flush in a thread must not move the recovery point behind a truncation that came after it began.
        self._recovery_lock = threading.Lock()
        self.truncations = 0
        """How often the log was cut: tells whoever read it in a thread that what it has is stale."""

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def _offline(self, doing: str, error: OSError) -> StorageError:
        if self.is_deleted and isinstance(error, FileNotFoundError):
            return StorageError(f"{self.topic_partition} is deleted: {doing} is not possible any more")
        return log_dir_offline(self.directory, doing, error)

    # -- rolling --------------------------------------------------------------------------------------

    def _roll(self, first_offset: int) -> None:
        """Make a new active segment from ``first_offset`` on; one that is empty already will do."""
        base_offset = max(first_offset, self.log_end_offset)
        active = self._active
        if active.base_offset == base_offset and active.size == 0:
            return
        active.become_inactive()
        self._active = self.create_segment(base_offset)
        # Taken at the new base offset, so that recovering the new segment need not read the one before.
        self.producers.end_offset = base_offset
        self.producers.snapshot_later()
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
        truncations = self.truncations
        directory = self.directory
        offset = min(offset, self.log_end_offset)
        start = self.recovery_point
        if self.is_deleted or (offset <= start and not include_empty):
            return
        for attempt in range(_SYNC_ATTEMPTS, -1, -1):
            try:
                self._sync(start, offset + include_empty)
                break
            except OSError as error:
                if isinstance(error, FileNotFoundError) and (self.is_deleted or not directory.exists()):
                    # The partition is being deleted, or renamed for that: nothing of it needs to last.
                    return
                if attempt and is_out_of_files(error) and running_loop() is None:
                    # Nothing has been synced and nothing has failed to be: others may close some soon. Not
                    # on the loop, which would do so.
                    time.sleep(_SYNC_PAUSE_S)
                    continue
                raise self._offline("syncing", error) from error
        with self._recovery_lock:
            if truncations == self.truncations and offset > self.recovery_point:
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
        self.producers.write_later()
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
            self.truncations += 1
            self.recovery_point = min(self.recovery_point, offset)

    # -- taking segments away -------------------------------------------------------------------------

    def remove_segments(self, segments: Sequence[Segment], *, at_once: bool = False) -> None:
        """Take segments out of the log and let their files, and their snapshots, wait for deletion.

        Many are renamed later, in a thread, where there is one, unless it must be done ``at_once``: then the
        last goes first, so that a crash leaves no hole.
        """
        if not segments:
            return
        self.segments.replace((), segments)
        self.removed.add(reversed(segments) if at_once else segments)
        self.rename_removed(at_once=at_once)

    def rename_removed(self, *, at_once: bool = False) -> None:
        """See to the segments in :attr:`removed`: a few here and now, many in a thread."""
        if self.on_many_removed is not None and not at_once and len(self.removed) > _RENAMED_AT_ONCE:
            self.on_many_removed()
        else:
            self.hand_over(self.removed.rename())

    def set_end_offset(self, offset: int) -> None:
        """Note that the log was cut to ``offset``."""
        self._active = self.segments.active
        self.log_end_offset = offset
        self._lower_recovery_point(offset)

    def create_segment(self, base_offset: int) -> Segment:
        """Make an empty segment and put it at the end of the log."""
        self.hand_over(self.removed.free(base_offset))
        segment = Segment.create(self.directory, base_offset, self.config, clock=self.clock, disk=self.disk)
        self.segments.add(segment)
        return segment

    def hand_over(self, paths: list[Path]) -> None:
        """Have files that wait for deletion deleted in time."""
        if not paths:
            return
        if self.on_segments_deleted is not None:
            self.on_segments_deleted(paths)
            return
        for path in paths:
            path.unlink(missing_ok=True)
