"""A log as files: its segments, rolling to a new one, syncing them, taking old ones away, renaming them all.

Invariants: ``recovery_point`` is never behind what a crash could lose: everything before it was synced, with
its indexes. Segments that go leave ``segments`` at once and are renamed ``.deleted`` (``removed_segments``);
the files go when :attr:`LogFiles.on_segments_deleted` says so, so that answers under way can still be sent
from them. What a crash leaves is for ``recovery``.

The leader epochs and the producers' snapshots are files of the log too, synced with it; what they say is the
business of ``log_appender``. Owned by ``log``; ``flush`` and ``flush_up_to`` may run in a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.storage.disk import is_out_of_files, log_dir_offline, offline_on_error
from tidelog.storage.files import DELETE_DIR_SUFFIX, LEADER_EPOCH_FILE, suffixed_directory_name
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log.log_loader import LoadedLog
from tidelog.storage.log.removed_segments import RemovedSegments
from tidelog.storage.log.segment_swap import name_finally, name_swapped
from tidelog.storage.segment.segment import Segment, running_loop

# So many segments are closed and renamed in less than a millisecond.
_RENAMED_AT_ONCE = 8
# For ten seconds a sync in a thread waits for files that it may open.
_SYNC_ATTEMPTS = 100
_SYNC_PAUSE_S = 0.1


class LogFiles:
    """The files of one partition and what has become of them."""

    __slots__ = (
        "_recovery_lock",
        "active",
        "clock",
        "closed",
        "config",
        "directory",
        "disk",
        "epochs",
        "is_deleted",
        "is_name_synced",
        "last_flush_ms",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "on_many_removed",
        "on_rolled",
        "on_segments_deleted",
        "on_synced",
        "producers",
        "recovery_point",
        "removed",
        "rolled_bytes",
        "segments",
        "topic_partition",
        "truncations",
    )

    def __init__(self, context: LogContext, loaded: LoadedLog) -> None:
        self.directory = context.directory
        self.log_dir = context.directory.parent
        self.topic_partition = loaded.producers.partition
        self.config = context.config
        self.clock = context.clock
        self.disk = context.disk
        self.segments = loaded.segments
        self.active = loaded.segments.active
        """The segment that takes appends."""
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.last_flush_ms = context.clock.time_ms()
        self.closed = False
        """Whether the log is, or was about to be: nobody is to open its files any more."""
        self.is_deleted = False
        """Whether the directory has the name under which it waits for deletion; its files are not told."""
        self.is_name_synced = True
        """Whether the directory's own name is on disk; if not, the first new segment has it synced."""
        self.on_rolled: Callable[[int], None] | None = None
        """Is to call :meth:`flush_up_to`, in a thread if it likes; without it rolling syncs at once."""
        self.on_segments_deleted: Callable[[list[Path]], None] | None = None
        """Is to delete these files after ``file.delete.delay.ms``; without it they go at once."""
        self.on_many_removed: Callable[[], None] | None = None
        """Is to rename what waits in :attr:`removed`, in a thread; without it that is done at once."""
        self.on_synced: Callable[[float], None] | None = None
        """Told after each sync, in whatever thread it was, how many seconds it took."""
        self.removed = RemovedSegments(loaded.producers.snapshots)
        # A flush in a thread must not move the recovery point behind a truncation that came after it began.
        self._recovery_lock = threading.Lock()
        self.rolled_bytes = 0
        """The sizes of all segments that were active since the log was opened, and are not any more."""
        self.truncations = 0
        """How often the log was cut: tells whoever read it in a thread that what it has is stale."""

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def appended_bytes(self) -> int:
        """Tells, by how much it grows, what was appended; counts from anywhere, and again after a cut."""
        return self.rolled_bytes + self.active.size

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def offline_error(self, doing: str, error: OSError) -> StorageError:
        """What an error of the disk is to the rest of the broker."""
        if self.is_deleted and isinstance(error, FileNotFoundError):
            return StorageError(f"{self.topic_partition} is deleted: {doing} is not possible any more")
        return log_dir_offline(self.directory, doing, error)

    # -- rolling --------------------------------------------------------------------------------------

    def roll(self, first_offset: int) -> None:
        """Make a new active segment from ``first_offset`` on; one that is empty already will do."""
        base_offset = max(first_offset, self.log_end_offset)
        active = self.active
        if active.base_offset == base_offset and active.size == 0:
            return
        active.become_inactive()
        self.rolled_bytes += active.size
        self.active = self.create_segment(base_offset)
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
            began_s = time.monotonic()
            try:
                self._sync(start, offset + include_empty)
                if self.on_synced is not None:
                    self.on_synced(time.monotonic() - began_s)
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
                raise self.offline_error("syncing", error) from error
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
            if not self.is_name_synced:
                self.disk.sync_path(self.log_dir)
                self.is_name_synced = True

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
        self.active = self.segments.active
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

    # -- replacing segments ---------------------------------------------------------------------------

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Swap cleaned segments in; snapshots of old ones that have no successor go with them."""
        self.begin_replacement(new, old)
        self.rename_removed(at_once=True)
        self.finish_replacement(new)

    def begin_replacement(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Let readers find ``new`` instead of ``old``, which wait in :attr:`removed` to be renamed then."""
        replaced = [segment for segment in old if segment in self.segments]
        name_swapped(new)
        self.segments.replace(new, replaced)
        self.active = self.segments.active
        self.removed.add(replaced, keep_snapshots={segment.base_offset for segment in new})

    def finish_replacement(self, new: Sequence[Segment]) -> None:
        """Give new segments their names, now that the old ones have theirs no more."""
        name_finally(new)
        self.disk.sync_path(self.directory)

    # -- closing and renaming -------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Sync and trim everything, ready to be opened without a check; or, not ``clean``, just let go."""
        if clean:
            with offline_on_error(self.directory, "closing"):
                self.hand_over(self.removed.rename())
                self.producers.take_snapshot()
                for segment in self.segments:
                    segment.close()
                self._flush(self.log_end_offset, include_empty=True)
        self.close_handles()

    def close_handles(self) -> None:
        """Let go of files and maps without writing, as when the disk has failed; a later use opens them."""
        for segment in self.segments:
            segment.close_handles()

    def rename(self, directory: Path) -> None:
        """Move the partition's directory."""
        self._rename(directory)
        for segment in self.segments:
            segment.files.move_to(directory)

    def rename_for_delete(self) -> None:
        """Give the directory a name under which it waits for deletion, and free its own for a new one.

        Segments, which may be many, do not learn of it: nobody opens them any more.
        """
        name = suffixed_directory_name(self.topic_partition, DELETE_DIR_SUFFIX)
        self.is_deleted = True
        self._rename(self.directory.with_name(name))

    def _rename(self, directory: Path) -> None:
        with offline_on_error(self.directory, "renaming"):
            self.removed.rename_directory(self.directory, directory)
        self.directory = directory
        self.log_dir = directory.parent
        self.epochs.path = directory / LEADER_EPOCH_FILE
