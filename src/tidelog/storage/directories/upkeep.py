"""What must be done now and then for the logs of a broker, each thing in a loop of its own.

===================  =====================================================================  ===========
what                 when                                                                   where
===================  =====================================================================  ===========
old segments         ``log.retention.check.interval.ms``; compacted logs with the cleaner   on the loop
renaming them        at once                                                                in a thread
flush by time        every second, by each topic's ``flush.ms``                             in a thread
flush after a roll   at once                                                                in a thread
recovery points      ``log.flush.offset.checkpoint.interval.ms``                            in a thread
log starts           ``log.flush.start.offset.checkpoint.interval.ms``                      in a thread
high watermarks      ``replica.high.watermark.checkpoint.interval.ms``                      in a thread
silent producers     ``producer.id.expiration.check.interval.ms``                           on the loop
clock set back       every second: timestamps are held against the new time                 on the loop
===================  =====================================================================  ===========

Invariant: no failure ends a loop. A disk error takes its directory offline; anything else is logged and the
thing tried again in its next round. What is done on the loop gives way after every few logs.
Owned by ``log_dirs``, which also calls single rounds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final

from tidelog.errors import KafkaError, LogDirOfflineError, StorageError
from tidelog.storage.directories.log_registry import LogRegistry
from tidelog.storage.disk import log_dir_offline
from tidelog.storage.log.log import Log
from tidelog.storage.log_config import MAX_INT64
from tidelog.storage.log_dir.log_dir import LogDir

# A topic's flush.ms counts from its last flush, so looking once a second is near enough.
_FLUSH_LOOK_MS: Final = 1000
# Less than this is a clock that is being slowed, and matters to nobody.
_CLOCK_STEP_MS: Final = 1000
_LONGEST_WAIT_MS: Final = 24 * 60 * 60 * 1000
_LOGS_AT_A_TIME: Final = 50
_RENAMED_AT_A_TIME: Final = 128
_CLOSED_AT_ONCE: Final = 64

logger = logging.getLogger(__name__)


class Upkeep:
    """The background work on the logs of :class:`LogDirs`."""

    def __init__(self, dirs: LogRegistry) -> None:
        self._dirs = dirs
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._rolled: dict[Log, int] = {}
        self._has_rolled = asyncio.Event()
        self._shortened: dict[Log, None] = {}
        self._has_shortened = asyncio.Event()
        self._due: set[LogDir] = set()
        self._checkpoints: set[asyncio.Task[None]] = set()
        self._wall_ahead_ms = self._wall_ahead_now_ms()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def is_running(self) -> bool:
        return bool(self._tasks) and not self._stop.is_set()

    def start(self) -> None:
        """Begin; needs a running loop."""
        dirs = self._dirs
        loops: list[Coroutine[Any, Any, None]] = [
            self._every("retention_check_interval_ms", self.delete_old_segments),
            self._every("cleaner_interval_ms", self.delete_in_compacted_logs),
            self._every("flush_check_interval_ms", self.flush_by_time, at_most_ms=_FLUSH_LOOK_MS),
            self._every("recovery_point_interval_ms", self.checkpoint_recovery_points),
            self._every("log_start_interval_ms", self.checkpoint_log_starts),
            self._every("high_watermark_interval_ms", self.checkpoint_high_watermarks),
            self._every("producer_expiration_check_interval_ms", self.expire_producers),
            self._every("clock_check_interval_ms", self.watch_clock),
            self._flush_rolled(),
            self._rename_removed(),
            dirs.deletion.run(lambda path, error: dirs.mark_offline(dirs.dir_of(path), error)),
            dirs.cleaner.run(self._stop),
        ]
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def stop(self) -> None:
        """Let what is under way finish, and end."""
        self._stop.set()
        self._has_rolled.set()
        self._has_shortened.set()
        self._dirs.deletion.stop()
        await asyncio.gather(*self._tasks, *self._checkpoints, *self._closing)
        self._tasks = []

    async def _every(
        self, interval: str, work: Callable[[], Awaitable[object]], *, at_most_ms: int = MAX_INT64
    ) -> None:
        while True:
            # Asked anew in each round, because options change while the broker runs.
            wanted_ms: int = min(getattr(self._dirs.options, interval), at_most_ms)
            wait_ms = min(wanted_ms, _LONGEST_WAIT_MS)
            try:
                await asyncio.wait_for(self._stop.wait(), wait_ms / 1000)
                return
            except TimeoutError:
                if wanted_ms > _LONGEST_WAIT_MS:
                    continue
            try:
                await work()
            except Exception:  # whatever it was, the next round must come
                logger.exception("%s failed and is tried again in %d ms", work.__name__, wanted_ms)

    # -- retention ------------------------------------------------------------------------------------

    async def delete_old_segments(self) -> int:
        """Let old segments of logs that are not compacted go; gives back how many went."""
        return await self._delete_in(log for log in self._dirs.logs.values() if not log.config.compact)

    async def delete_in_compacted_logs(self) -> int:
        """The same for compacted logs, except one that is being compacted just now."""
        cleaner = self._dirs.cleaner
        if not cleaner.options.enable:
            return 0
        return await self._delete_in(
            log
            for log in self._dirs.logs.values()
            if log.config.compact and not cleaner.is_cleaning(log.topic_partition)
        )

    async def _delete_in(self, logs: Iterable[Log]) -> int:
        deleted = 0

        def work(log: Log) -> Iterator[None]:
            nonlocal deleted
            for each in (log, self._dirs.future_logs.get(log.topic_partition)):
                if each is None:
                    continue
                for count in each.retention_steps():
                    deleted += count
                    yield

        await self._for_each(logs, work)
        return deleted

    def let_go(self, logs: Sequence[Log]) -> None:
        """Close the files of logs that nobody can find any more: here and now, or in a thread if many."""
        if not self.is_running or sum(len(log.segments) for log in logs) <= _CLOSED_AT_ONCE:
            _close_handles(logs)
            return
        task = asyncio.create_task(asyncio.to_thread(_close_handles, logs))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def rename_soon(self, log: Log) -> None:
        """Close and rename what retention has taken out of ``log``, which may be much."""
        if not self.is_running:
            log.files.rename_removed(at_once=True)
            return
        self._shortened[log] = None
        self._has_shortened.set()

    async def _rename_removed(self) -> None:
        while not self._stop.is_set():
            await self._has_shortened.wait()
            self._has_shortened.clear()
            while self._shortened and not self._stop.is_set():
                log, _ = self._shortened.popitem()
                while log.files.removed and not self._stop.is_set():
                    await self._rename_some(log)

    async def _rename_some(self, log: Log) -> None:
        directory = log.directory
        try:
            log.files.hand_over(await asyncio.to_thread(log.files.removed.rename, _RENAMED_AT_A_TIME))
        except OSError as error:
            log.files.removed.clear()
            if isinstance(error, FileNotFoundError) and not directory.exists():
                # The partition has been deleted meanwhile, and these with it.
                return
            self._dirs.mark_offline(
                log.files.log_dir, log_dir_offline(directory, "renaming deleted segments", error)
            )

    async def expire_producers(self) -> int:
        """Forget producers that have been silent for too long; gives back how many."""
        expired = 0
        now_ms = self._dirs.clock.time_ms()

        def work(log: Log) -> Iterator[None]:
            nonlocal expired
            for count in log.producers.expiry_steps(now_ms):
                expired += count
                yield

        await self._for_each(self._dirs.logs.values(), work)
        return expired

    # -- the clock ------------------------------------------------------------------------------------

    async def watch_clock(self) -> bool:
        """Whether the wall clock was set back; then every log looks at it again.

        The clock that never goes back tells: the wall clock's lead over it can only have shrunk by a step.
        """
        ahead_ms = self._wall_ahead_now_ms()
        stepped = ahead_ms < self._wall_ahead_ms - _CLOCK_STEP_MS
        if stepped:
            logger.warning("the clock was set back by %.0f s", (self._wall_ahead_ms - ahead_ms) / 1000)
            for log in self._dirs.all_logs():
                log.appender.forget_timestamp_ceiling()
        self._wall_ahead_ms = ahead_ms if stepped else max(ahead_ms, self._wall_ahead_ms)
        return stepped

    def _wall_ahead_now_ms(self) -> float:
        clock = self._dirs.clock
        return clock.time_ms() - clock.monotonic_ms()

    async def _for_each(self, logs: Iterable[Log], work: Callable[[Log], Iterator[None]]) -> None:
        """Do ``work`` for each log, giving way between the steps of one and after every few logs."""
        for count, log in enumerate(list(logs), 1):
            try:
                steps = work(log)
                while self._dirs.logs.get(log.topic_partition) is log:
                    next(steps)
                    await asyncio.sleep(0)
            except StopIteration:
                pass
            except LogDirOfflineError as error:
                self._dirs.mark_offline(log.files.log_dir, error)
            except (StorageError, KafkaError) as error:
                # A damaged segment is its own log's trouble: the others have theirs seen to.
                logger.error("the upkeep of %s is held up: %s", log.topic_partition, error)
            if count % _LOGS_AT_A_TIME == 0:
                await asyncio.sleep(0)

    # -- flushing -------------------------------------------------------------------------------------

    async def flush_by_time(self) -> int:
        """Flush the logs that have waited for their ``flush.ms``; gives back how many."""
        now_ms = self._dirs.clock.time_ms()
        due = [
            log
            for log in self._dirs.all_logs()
            if now_ms - log.files.last_flush_ms >= log.config.flush_ms and log.files.unflushed_messages
        ]
        for log in due:
            await self._in_thread(log, log.files.flush)
        return len(due)

    def flush_soon(self, log: Log, offset: int) -> None:
        """Flush ``log`` up to ``offset``, where a new segment begins."""
        if not self.is_running:
            log.files.flush_up_to(offset)
            return
        self._rolled[log] = offset
        self._has_rolled.set()

    async def _flush_rolled(self) -> None:
        while not self._stop.is_set():
            await self._has_rolled.wait()
            self._has_rolled.clear()
            while self._rolled:
                log, offset = self._rolled.popitem()
                await self._in_thread(log, log.files.flush_up_to, offset)

    async def _in_thread(self, log: Log, work: Callable[..., None], *args: object) -> None:
        try:
            await asyncio.to_thread(work, *args)
        except LogDirOfflineError as error:
            self._dirs.mark_offline(log.files.log_dir, error)
        except Exception:  # one log's trouble must not keep the others from being flushed
            logger.exception("flushing %s failed", log.topic_partition)

    # -- checkpoints ----------------------------------------------------------------------------------

    async def checkpoint_recovery_points(self) -> None:
        """Write how far each log is flushed."""
        await self._in_each_dir(LogDir.checkpoint_recovery_points)

    async def checkpoint_log_starts(self) -> None:
        """Write where logs start."""
        await self._in_each_dir(LogDir.checkpoint_log_starts)

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks."""
        await self._in_each_dir(LogDir.checkpoint_high_watermarks)

    async def checkpoint_all(self) -> None:
        """Write all checkpoints now, how far logs are compacted included."""
        await self._in_each_dir(LogDir.checkpoint)

    def checkpoint_soon(self, log_dir: LogDir) -> None:
        """Write all checkpoints of a directory whose logs have changed; once for many changes in a row."""
        if not self.is_running:
            try:
                log_dir.checkpoint(self._dirs.logs_in(log_dir.path))
            except OSError as error:
                self._dirs.mark_offline(log_dir.path, error)
        elif log_dir not in self._due:
            self._due.add(log_dir)
            task = asyncio.create_task(self._checkpoint_once(log_dir))
            # Kept until it has ended: a shutdown that did not wait might be overwritten by it.
            self._checkpoints.add(task)
            task.add_done_callback(self._checkpoints.discard)

    async def _checkpoint_once(self, log_dir: LogDir) -> None:
        # Whatever changes up to the next turn of the loop is still covered by this write.
        await asyncio.sleep(0)
        self._due.discard(log_dir)
        try:
            await self._in_dir(log_dir, LogDir.checkpoint)
        except Exception:  # the next checkpoint has the same to say, and a shutdown waits for this one
            logger.exception("a checkpoint of %s failed", log_dir.path)

    async def _in_each_dir(self, write: Callable[[LogDir, list[Log]], None]) -> None:
        for log_dir in list(self._dirs.online.values()):
            await self._in_dir(log_dir, write)

    async def _in_dir(self, log_dir: LogDir, write: Callable[[LogDir, list[Log]], None]) -> None:
        if not log_dir.is_loaded:
            return
        try:
            await asyncio.to_thread(write, log_dir, self._dirs.logs_in(log_dir.path))
        except OSError as error:
            self._dirs.mark_offline(log_dir.path, error)


def _close_handles(logs: Sequence[Log]) -> None:
    for log in logs:
        log.files.close_handles()
        log.files.removed.clear()
