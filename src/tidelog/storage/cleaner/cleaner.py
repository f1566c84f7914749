"""The cleaner: choose the dirtiest log, have it compacted, take the result in, note how far it is clean.

One log at a time. The worker process reads segments and writes ``.cleaned`` files; here, on the loop, each
finished group is swapped in, which costs a few renames. Nothing is owed to the worker: it may be killed at
any moment, and is, when the log that it works on is truncated, deleted or moved.

A batch whose records cannot be read is stepped over: it stays as it is, is named once in the broker's log,
and the rest of its partition is compacted. A log that cannot be cleaned at all (a batch that fails its
checksum, an old format) is named once, too, and tried again every hour: by then retention may have taken the
trouble away. (Kafka leaves it alone until it is restarted.) A disk error takes the log directory offline.
Owned by ``log_dirs``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Final

from tidelog.clock import Clock
from tidelog.errors import KafkaError, LogDirOfflineError, StorageError
from tidelog.ids import TopicPartition
from tidelog.storage.cleaner.cleanable import DirtyLog, examine
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.cleaner.cleaner_process import CleanerProcess, CompactionRunner, WorkerDied
from tidelog.storage.cleaner.cleaner_worker import CompactionFailed
from tidelog.storage.cleaner.cleaning_pass import CleaningPass, LogChanged
from tidelog.storage.cleaner.compaction import BatchSkipped, CompactionDone
from tidelog.storage.disk import log_dir_offline
from tidelog.storage.log.log import Log
from tidelog.storage.log_dir.log_dir import LogDir

_MAX_DEATHS: Final = 3
_RETRY_MS: Final = 60 * 60_000
_LOGS_AT_A_TIME: Final = 50
_MAX_SKIPPED: Final = 10_000

logger = logging.getLogger(__name__)


class Cleaner:
    """Compacts the logs of one broker whose topics ask for it."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, Log],
        log_dirs: Mapping[Path, LogDir],
        options: CleanerOptions,
        *,
        clock: Clock,
        on_disk_error: Callable[[Path, Exception], None],
        checkpoint_soon: Callable[[LogDir], None],
        runner: CompactionRunner | None = None,
    ) -> None:
        """``logs`` and ``log_dirs`` (by path) are looked at anew in every round.

        ``checkpoint_soon`` is asked to write the checkpoints of a directory, those of the cleaner among them.
        """
        self.options = options
        self.uncleanable: set[TopicPartition] = set()
        self._logs = logs
        self._log_dirs = log_dirs
        self._clock = clock
        self._on_disk_error = on_disk_error
        self._checkpoint_soon = checkpoint_soon
        self._runner: CompactionRunner = runner or CleanerProcess()
        self._paused: Counter[TopicPartition] = Counter()
        self._deaths: Counter[TopicPartition] = Counter()
        self._retry_ms: dict[TopicPartition, float] = {}
        self._why: dict[TopicPartition, str] = {}
        self._skipped: set[tuple[TopicPartition, int]] = set()
        self._current: CleaningPass | None = None
        self._closed = False
        self.passes = 0
        """How many came to their end, what they read, and what was left of it."""
        self.read_bytes = 0
        self.written_bytes = 0
        self.last_pass_ms: float | None = None
        """When the last one ended, by the monotonic clock."""

    def is_cleaning(self, partition: TopicPartition) -> bool:
        """Whether a pass over this partition is under way."""
        return self._current is not None and self._current.log.topic_partition == partition

    def abort(self, partition: TopicPartition) -> None:
        """Give up the pass over ``partition``, if there is one: its log is about to change."""
        if self._current is not None and self.is_cleaning(partition):
            self._current.stop()
            self._runner.kill()

    def pause(self, partition: TopicPartition) -> None:
        """Abort, and clean no more until as many calls of :meth:`resume`."""
        self.abort(partition)
        self._paused[partition] += 1

    def resume(self, partition: TopicPartition) -> None:
        """Take back one :meth:`pause`."""
        self._paused[partition] -= 1
        if self._paused[partition] <= 0:
            del self._paused[partition]

    def truncated(self, log: Log) -> None:
        """``log`` was cut: what is written there from now on is dirty."""
        self.abort(log.topic_partition)
        log_dir = self._log_dirs.get(log.files.log_dir)
        end = log.segments.active.base_offset
        if log_dir is not None and log_dir.cleaned_offsets.get(log.topic_partition, 0) > end:
            self._reset(log_dir, log.topic_partition, end)

    def _reset(self, log_dir: LogDir, partition: TopicPartition, cleaned_up_to: int) -> None:
        """Correct how far a log is clean; on disk, too: after a restart the old offset would be believed."""
        log_dir.cleaned_offsets[partition] = cleaned_up_to
        self._checkpoint_soon(log_dir)

    def moved(self, partition: TopicPartition, source: LogDir | None, target: LogDir) -> None:
        """``partition`` now lies in ``target``, with the same records; the caller writes the checkpoints."""
        # What the target knows is of an earlier stay there.
        target.cleaned_offsets.pop(partition, None)
        if source is not None and partition in source.cleaned_offsets:
            target.cleaned_offsets[partition] = source.cleaned_offsets.pop(partition)

    # -- choosing -------------------------------------------------------------------------------------

    def choose(self) -> DirtyLog | None:
        """The dirtiest of the logs that are worth a pass now."""
        choosing = self._choosing()
        while True:
            try:
                next(choosing)
            except StopIteration as chosen:
                found: DirtyLog | None = chosen.value
                return found

    async def _choose(self) -> DirtyLog | None:
        """The same, giving way after every few logs."""
        choosing = self._choosing()
        while True:
            try:
                next(choosing)
            except StopIteration as chosen:
                found: DirtyLog | None = chosen.value
                break
            await asyncio.sleep(0)
        if found is None or not self._may_clean(found.log.topic_partition, found.log):
            return None
        # What was measured a while ago may have changed since.
        return self._examine(found.log, self._clock.time_ms())

    def _choosing(self) -> Generator[None, None, DirtyLog | None]:
        now_ms = self._clock.time_ms()
        dirtiest: DirtyLog | None = None
        looked_at = 0
        for partition, log in list(self._logs.items()):
            if not log.config.compact or not self._may_clean(partition, log):
                continue
            dirty = self._examine(log, now_ms)
            if dirty is not None and (dirtiest is None or dirty.ratio > dirtiest.ratio):
                dirtiest = dirty
            looked_at += 1
            if looked_at % _LOGS_AT_A_TIME == 0:
                yield
        return dirtiest

    def _may_clean(self, partition: TopicPartition, log: Log) -> bool:
        if partition in self._paused or self._logs.get(partition) is not log:
            return False
        return partition not in self.uncleanable or self._clock.monotonic_ms() >= self._retry_ms[partition]

    def _examine(self, log: Log, now_ms: int) -> DirtyLog | None:
        """What a pass would find, if it is due."""
        partition = log.topic_partition
        log_dir = self._log_dirs.get(log.files.log_dir)
        if log_dir is None:
            return None
        cleaned_up_to = log_dir.cleaned_offsets.get(partition)
        try:
            dirty = examine(log, cleaned_up_to, now_ms)
        except OSError as error:
            self._fail(log, error)
            return None
        except KafkaError as error:
            logger.info("%s is looked at again later: %s", partition, error)
            return None
        except StorageError as error:
            self._give_up(partition, str(error))
            return None
        if cleaned_up_to is not None and dirty.first_dirty_offset != cleaned_up_to:
            self._reset(log_dir, partition, dirty.first_dirty_offset)
        return dirty if dirty.is_due else None

    # -- cleaning -------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Clean whatever is due, and look again every ``log.cleaner.backoff.ms``, until ``stop``."""
        while not stop.is_set():
            cleaned = False
            if self.options.enable:
                try:
                    cleaned = await self.clean_dirtiest()
                except Exception:  # the next round must come whatever this one met
                    logger.exception("a round of the cleaner failed")
            if not cleaned:
                try:
                    await asyncio.wait_for(stop.wait(), self.options.backoff_ms / 1000)
                except TimeoutError:
                    continue

    async def clean_dirtiest(self) -> bool:
        """One pass over the log that needs it most; False if none does or the pass failed."""
        self.uncleanable &= self._logs.keys()
        dirty = None if self._closed else await self._choose()
        return dirty is not None and await self._clean(dirty) is not None

    async def close(self) -> None:
        """Stop the pass that is under way, and the worker, for good."""
        self._closed = True
        if self._current is not None:
            self._current.stop()
            self._runner.kill()
        await self._runner.close()

    async def _clean(self, dirty: DirtyLog) -> CompactionDone | None:
        log, partition = dirty.log, dirty.log.topic_partition
        try:
            cleaning = await CleaningPass.prepared(dirty, self.options, self._clock)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                # Retention has taken a segment away meanwhile; if not, those who read there will find out.
                logger.warning("%s was changed before it could be compacted: %s", partition, error)
            else:
                self._fail(log, error)
            return None
        if self._closed or not self._may_clean(partition, log):
            return None
        self._current = cleaning
        started_ms = self._clock.monotonic_ms()
        done: CompactionDone | None = None
        try:
            async with contextlib.aclosing(self._runner.run(cleaning.job)) as events:
                async for event in events:
                    if isinstance(event, CompactionFailed):
                        self._failed(cleaning, event)
                    elif isinstance(event, CompactionDone):
                        # A worker that has sent its end cannot be stopped: the log may be cut since then.
                        done = None if cleaning.is_stopped else event
                    elif isinstance(event, BatchSkipped):
                        self._name_skipped(partition, event)
                    else:
                        await cleaning.take(event)
        except LogChanged as change:
            logger.info("%s; the pass is given up", change)
        except LogDirOfflineError as error:
            if self._logs.get(partition) is log:
                self._on_disk_error(log.files.log_dir, error)
            else:
                logger.info("%s was taken away while it was compacted: %s", partition, error)
        except WorkerDied as death:
            self._died(cleaning, death)
        finally:
            self._current = None
            if done is None:
                await asyncio.to_thread(cleaning.clean_up)
        if done is not None:
            self._deaths.pop(partition, None)
            self.uncleanable.discard(partition)
            await self._note_clean(log, done.end_offset)
            self.passes += 1
            self.read_bytes += dirty.clean_bytes + dirty.dirty_bytes
            self.written_bytes += done.bytes_written
            self.last_pass_ms = self._clock.monotonic_ms()
            _report(dirty, done, self.last_pass_ms - started_ms)
        return done

    async def _note_clean(self, log: Log, end_offset: int) -> None:
        log_dir = self._log_dirs.get(log.files.log_dir)
        if log_dir is None or self._logs.get(log.topic_partition) is not log:
            return
        log_dir.cleaned_offsets[log.topic_partition] = end_offset
        logs = [each for each in self._logs.values() if each.files.log_dir == log_dir.path]
        try:
            await asyncio.to_thread(log_dir.checkpoint_cleaned, logs)
        except OSError as error:
            self._fail(log, error)

    def _failed(self, cleaning: CleaningPass, failure: CompactionFailed) -> None:
        log = cleaning.log
        if cleaning.log_has_changed or self._logs.get(log.topic_partition) is not log:
            # Files went away under the worker, by retention or deletion: no fault of the disk's.
            logger.info("%s was changed while it was compacted; the pass is given up", log.topic_partition)
            return
        if failure.cause == "disk":
            self._fail(log, OSError(failure.message))
        elif failure.cause == "files":
            logger.warning("%s is compacted later: %s", log.topic_partition, failure.message)
        else:
            self._give_up(log.topic_partition, failure.message)

    def _name_skipped(self, partition: TopicPartition, skipped: BatchSkipped) -> None:
        if (partition, skipped.offset) in self._skipped:
            return
        if len(self._skipped) >= _MAX_SKIPPED:
            self._skipped.clear()
        self._skipped.add((partition, skipped.offset))
        logger.warning(
            "the batch at offset %d of %s cannot be compacted and stays as it is: %s",
            skipped.offset,
            partition,
            skipped.reason,
        )

    def _died(self, cleaning: CleaningPass, death: WorkerDied) -> None:
        partition = cleaning.log.topic_partition
        if cleaning.is_stopped:
            return
        self._deaths[partition] += 1
        if self._deaths[partition] >= _MAX_DEATHS:
            self._give_up(partition, f"its compaction has ended {_MAX_DEATHS} workers; {death}")
        else:
            logger.warning("%s while compacting %s; it is tried again later", death, partition)

    def _give_up(self, partition: TopicPartition, why: str) -> None:
        if self._why.get(partition) != why or partition not in self.uncleanable:
            logger.error("%s is not compacted, and tried again in an hour: %s", partition, why)
        self._deaths.pop(partition, None)
        self._why[partition] = why
        self._retry_ms[partition] = self._clock.monotonic_ms() + _RETRY_MS
        self.uncleanable.add(partition)

    def _fail(self, log: Log, error: OSError) -> None:
        self._on_disk_error(log.files.log_dir, log_dir_offline(log.directory, "compacting", error))


def _report(dirty: DirtyLog, done: CompactionDone, elapsed_ms: float) -> None:
    before = dirty.clean_bytes + dirty.dirty_bytes
    logger.info(
        "compacted %s up to offset %d in %.1f s: %d of %d records and %.1f of %.1f MB stay (%d keys)",
        dirty.log.topic_partition,
        done.end_offset,
        elapsed_ms / 1000,
        done.records_kept,
        done.records_read,
        done.bytes_written / 1e6,
        before / 1e6,
        done.keys,
    )
