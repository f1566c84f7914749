"""All logs of a broker, in one or more log directories: finding, making, deleting and losing them.

The life of it: :meth:`LogDirs.open` makes and locks the directories, :meth:`~LogDirs.identify` checks whose
they are, :meth:`~LogDirs.load` opens every log and recovers what a crash has left, :meth:`~LogDirs.start`
begins the work in the background (``upkeep``, ``cleaner``), :meth:`~LogDirs.close` flushes, writes the
checkpoints and the clean-shutdown mark, and lets the directories go.

Invariant: a log is in ``logs`` as long as it can be served. A disk error anywhere takes its whole directory
offline (:meth:`~LogDirs.mark_offline`): its logs leave the registry and their files are left as they are; the
other directories go on. Everything here runs on the broker's loop; only syncing is done in threads.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tidelog.clock import Clock, SystemClock
from tidelog.errors import ConfigError, ErrorCode, KafkaError, LogDirOfflineError, StorageError
from tidelog.ids import TopicPartition, Uuid
from tidelog.metrics.histogram import Histogram
from tidelog.storage.cleaner.cleaner import Cleaner
from tidelog.storage.cleaner.cleaner_process import CompactionRunner
from tidelog.storage.directories.delayed_deletion import DelayedDeletion
from tidelog.storage.directories.log_dirs_loading import LoadProgress, LoadReport, LogLoading
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.directories.log_moves import LogMoves
from tidelog.storage.directories.upkeep import Upkeep
from tidelog.storage.disk import REAL_DISK, Disk, StagedRecordsLostError, is_out_of_files
from tidelog.storage.files import STRAY_DIR_SUFFIX, suffixed_directory_name
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.log_dir import LogDir
from tidelog.storage.log_dir.meta_properties import Identity, MetaProperties, agreed_identity, settled

_TELL_OF_FILES_EVERY_MS: Final = 60_000
_CLOSED_AT_ONCE: Final = 500
_FILES_PER_SEGMENT: Final = 3
# What is kept for connections, and for the broker itself, when files are counted.
_CONNECTIONS: Final = 1000

logger = logging.getLogger(__name__)


class LogDirs:
    """The log directories of one broker and the logs in them."""

    def __init__(
        self,
        paths: Sequence[Path],
        options: LogDirsOptions | None = None,
        *,
        clock: Clock | None = None,
        disk: Disk = REAL_DISK,
        runner: CompactionRunner | None = None,
    ) -> None:
        """``runner`` carries out compactions; by default a worker process does."""
        self.paths = [path.absolute() for path in paths]
        self.options = options or LogDirsOptions()
        self.clock: Clock = clock or SystemClock()
        self.disk = disk
        self.online: dict[Path, LogDir] = {}
        self.offline_dirs: dict[Path, str] = {}
        """Directories that cannot be used, and why."""
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        """Logs that are being moved here from another directory."""
        self.offline_partitions: set[TopicPartition] = set()
        """Partitions that were lost with their directory."""
        self.on_offline: Callable[[Path, list[TopicPartition]], None] | None = None
        """Told of each directory that goes offline after :meth:`load`, with the partitions lost."""
        self.on_all_offline: Callable[[str], None] | None = None
        """Told why the last directory went offline: nothing can be served any more."""
        self.on_moved: Callable[[TopicPartition, Log], None] | None = None
        """Told of each partition whose log is now another one, in another directory."""
        self.deletion = DelayedDeletion(self.clock)
        self.upkeep = Upkeep(self)
        self.cleaner = Cleaner(
            self.logs,
            self.online,
            self.options.cleaner,
            clock=self.clock,
            on_disk_error=self.mark_offline,
            checkpoint_soon=self.upkeep.checkpoint_soon,
            runner=runner,
        )
        self.moves = LogMoves(self, self.upkeep.checkpoint_soon)
        self._preferred: dict[TopicPartition, Path] = {}
        self._told_of_files_ms: float | None = None
        self.sync_times_us = Histogram()
        """How long syncs of logs took."""

    # -- opening --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make and lock the directories; one that cannot be used goes offline, unless it is the last."""
        resolved = [path.resolve() for path in self.paths]
        if len(set(resolved)) < len(resolved):
            raise ConfigError(
                f"log.dirs names a directory twice: {', '.join(map(str, self.paths))}; remove one of them"
            )
        try:
            for path in self.paths:
                try:
                    log_dir = LogDir(path, self.disk)
                    self.online[path] = log_dir
                    log_dir.read_meta()
                except OSError as error:
                    self.mark_offline(path, error)
        except StorageError:
            self._release()
            raise
        if self.all_offline:
            reasons = "; ".join(self.offline_dirs.values())
            raise StorageError(f"no log directory can be used ({reasons}); repair one or change log.dirs")

    @property
    def all_offline(self) -> bool:
        """Whether no directory is left to serve from: the broker has to stop."""
        return not self.online

    def stored_identity(self) -> Identity:
        """The broker and cluster id that the directories agree on; :class:`StorageError` if they do not."""
        return agreed_identity(self._metas(), broker_id=None, cluster_id=None)

    def identify(self, *, broker_id: int, cluster_id: str) -> None:
        """Check that the directories are this broker's and say so in those that do not yet."""
        metas = settled(self._metas(), broker_id=broker_id, cluster_id=cluster_id)
        for path, meta in metas.items():
            try:
                self.online[path].write_meta(meta)
            except OSError as error:
                self.mark_offline(path, error)

    def _metas(self) -> dict[Path, MetaProperties | None]:
        return {path: log_dir.meta for path, log_dir in self.online.items()}

    def directory_id(self, path: Path) -> Uuid | None:
        """The id of an online directory."""
        log_dir = self.online.get(path)
        return None if log_dir is None or log_dir.meta is None else log_dir.meta.directory_id

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        *,
        is_stray: Callable[[Log], bool] | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> LoadReport:
        """Open every log, recovering where the last shutdown was not clean; ``config_of`` takes a topic.

        Logs for which ``is_stray`` holds are set aside under a ``-stray`` name.
        """
        return LogLoading(self, config_of, is_stray, progress).load()

    def start(self) -> None:
        """Begin the work in the background, and go on with unfinished moves; needs a running loop."""
        self.upkeep.start()
        self.moves.resume()

    def move(self, partition: TopicPartition, target: Path) -> None:
        """Move a partition to another log directory, in the background; raises ``KafkaError``."""
        self.moves.begin(partition, target)

    def update_options(self, options: LogDirsOptions) -> None:
        """Go by other options from now on; waits that have begun end as they were."""
        self.options = options
        self.cleaner.options = options.cleaner
        for log in self.all_logs():
            log.producers.expiration_ms = options.producer_expiration_ms
            log.appender.walk_limits = options.walk_limits

    # -- logs -----------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The log of a partition, None if there is none that can be served."""
        return self.logs.get(partition)

    def get_or_create(
        self, partition: TopicPartition, topic_id: Uuid | None, config: LogConfig, *, is_new: bool = False
    ) -> Log:
        """The log of a partition, made in the directory with the fewest logs if there is none.

        While a directory is offline only partitions that ``is_new`` are made: another may be lying there.
        """
        log = self.logs.get(partition)
        if log is not None:
            if topic_id is not None and log.topic_id != topic_id:
                self._assign_topic_id(log, topic_id)
            return log
        if self.offline_dirs and not is_new:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create log for {partition} because log directories "
                f"{','.join(map(str, self.offline_dirs))} are offline",
            )
        # What a move has copied of the log before, whose directory has failed.
        self.moves.cancel(partition)
        for path in self._directories_for(partition):
            log_dir = self.online.get(path)
            if log_dir is None:
                continue
            directory = path / str(partition)
            existed = directory.exists()
            try:
                log_dir.forget(partition)
                log = self.open_log(directory, config, topic_id=topic_id)
            except (OSError, LogDirOfflineError) as error:
                if not existed:
                    # Half-made, it would be found beside the one that is made elsewhere now.
                    shutil.rmtree(directory, ignore_errors=True)
                self.mark_offline(path, error)
                if is_out_of_files(error):
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
                continue
            self._preferred.pop(partition, None)
            self.offline_partitions.discard(partition)
            self.logs[partition] = log
            logger.info("made the log of %s in %s", partition, path)
            return log
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"No log directories available to create log for {partition}"
        )

    def _assign_topic_id(self, log: Log, topic_id: Uuid) -> None:
        try:
            log.assign_topic_id(topic_id)
        except LogDirOfflineError as error:
            self.mark_offline(log.files.log_dir, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def open_log(
        self,
        directory: Path,
        config: LogConfig,
        *,
        topic_id: Uuid | None = None,
        clean_shutdown: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        """Open or make one log and have its files looked after; the caller puts it into a registry."""
        log = Log.open(
            LogContext(directory, config, self.clock, self.disk, self.options.producer_expiration_ms),
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
        )
        log.appender.walk_limits = self.options.walk_limits
        files = log.files
        files.on_rolled = lambda offset: self.upkeep.flush_soon(log, offset)
        files.on_segments_deleted = lambda paths: self.deletion.add(paths, log.config.file_delete_delay_ms)
        files.on_synced = self._synced
        files.on_many_removed = lambda: self.upkeep.rename_soon(log)
        return log

    def _synced(self, seconds: float) -> None:
        self.sync_times_us.add(seconds * 1_000_000)

    def prefer(self, partition: TopicPartition, path: Path) -> None:
        """Make the log of ``partition`` in ``path`` when it comes to be made."""
        self._preferred[partition] = path

    def _directories_for(self, partition: TopicPartition) -> list[Path]:
        preferred = self._preferred.get(partition)
        if preferred is not None:
            return [preferred]
        counts = dict.fromkeys(self.online, 0)
        if len(counts) == 1:
            return list(counts)
        for log in self.all_logs():
            counts[log.files.log_dir] += 1
        return sorted(counts, key=counts.__getitem__)

    def delete(self, partition: TopicPartition) -> None:
        """Take a partition away: at once for everybody, from the disk after ``file.delete.delay.ms``."""
        self.moves.cancel(partition)
        log = self.logs.pop(partition, None)
        self._preferred.pop(partition, None)
        self.offline_partitions.discard(partition)
        if log is None:
            if self.offline_dirs:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"Failed to delete log for {partition} because it may be in one of the offline "
                    f"directories {','.join(map(str, self.offline_dirs))}",
                )
            return
        self.cleaner.abort(partition)
        self.cleaner.uncleanable.discard(partition)
        self.discard(log)

    def set_aside(self, log: Log, why: str) -> None:
        """Serve a log no more, but keep it: under a ``-stray`` name, which is for people to deal with.

        Raises ``LogDirOfflineError`` where the disk does not let it.
        """
        is_served = self.logs.get(log.topic_partition) is log
        if is_served:
            self.moves.cancel(log.topic_partition)
            self.cleaner.abort(log.topic_partition)
        before = log.directory
        log.files.rename(before.with_name(suffixed_directory_name(log.topic_partition, STRAY_DIR_SUFFIX)))
        log.files.close_handles()
        if is_served:
            del self.logs[log.topic_partition]
        logger.warning("%s is set aside as %s: %s", before, log.directory.name, why)

    def discard(self, log: Log) -> None:
        """Rename a log that is in no registry any more, and remove it after the delay."""
        path = log.files.log_dir
        log_dir = self.online.get(path)
        try:
            log.files.rename_for_delete()
        except LogDirOfflineError as error:
            self.mark_offline(path, error)
            return
        self.upkeep.let_go([log])
        self.deletion.add([log.directory], self.options.delete_delay_ms)
        logger.info("the log of %s waits for deletion as %s", log.topic_partition, log.directory)
        if log_dir is not None:
            log_dir.cleaned_offsets.pop(log.topic_partition, None)
            self.upkeep.checkpoint_soon(log_dir)

    def truncate_to(self, partition: TopicPartition, offset: int) -> None:
        """Cut a log at ``offset``, and its copy if it is being moved.

        Whatever the cleaner makes of it now is thrown away.
        """
        log = self.logs[partition]
        self.cleaner.abort(partition)
        self._cut_future(partition, lambda future: future.truncate_to(offset))
        log.truncate_to(offset)
        self.cleaner.truncated(log)

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Empty a log, and its copy if it is being moved, and let it go on at ``offset``."""
        log = self.logs[partition]
        self.cleaner.abort(partition)
        self._cut_future(partition, lambda future: future.truncate_fully_and_start_at(offset))
        log.truncate_fully_and_start_at(offset)
        self.cleaner.truncated(log)

    def _cut_future(self, partition: TopicPartition, cut: Callable[[Log], object]) -> None:
        """Cut the copy that a move has made so far, before the log: a crash between leaves it short."""
        future = self.future_logs.get(partition)
        if future is None:
            return
        try:
            cut(future)
        except LogDirOfflineError as error:
            self.mark_offline(future.files.log_dir, error)
            # If its directory stays, as when files run out, the copy is of no use all the same.
            self.moves.cancel(partition)

    def dir_of(self, path: Path) -> Path:
        """The log directory that a file or partition lies in."""
        return next((known for known in self.paths if known in path.parents), path.parent)

    def logs_in(self, path: Path) -> list[Log]:
        """The logs of one directory, those that are being moved there included."""
        return [log for log in self.all_logs() if log.files.log_dir == path]

    def all_logs(self) -> list[Log]:
        """Every log, those that are being moved twice."""
        return [*self.logs.values(), *self.future_logs.values()]

    # -- losing a directory ---------------------------------------------------------------------------

    def mark_offline(self, path: Path, error: Exception) -> None:
        """Stop using a directory after a disk error; its logs are gone until the next start.

        That the process may not open any more files is none, and costs no directory; nor does an index that
        is being rebuilt while records are to be written.
        """
        if path in self.offline_dirs:
            return
        if is_out_of_files(error):
            self._out_of_files(error)
            return
        if isinstance(error, StagedRecordsLostError):
            logger.warning("%s", error)
            return
        if path not in self.paths:
            logger.error("a disk error belongs to none of the log directories: %s", error)
            return
        reason = str(error)
        self.offline_dirs[path] = reason
        log_dir = self.online.pop(path, None)
        lost = [partition for partition, log in self.logs.items() if log.files.log_dir == path]
        for partition in lost:
            self.cleaner.abort(partition)
            self.moves.interrupt(partition)
        self.upkeep.let_go([self.logs.pop(partition) for partition in lost])
        for partition in [p for p, log in self.future_logs.items() if log.files.log_dir == path]:
            self.moves.cancel(partition)
        self.offline_partitions.update(lost)
        if log_dir is not None:
            log_dir.release()
        logger.error(
            "log directory %s is offline with %d partitions; repair it and restart the broker: %s",
            path,
            len(lost),
            reason,
        )
        if self.on_offline is not None:
            self.on_offline(path, lost)
        if self.all_offline and self.on_all_offline is not None:
            self.on_all_offline(reason)

    def _out_of_files(self, error: Exception) -> None:
        """Say what to raise, once in a while, and let go of some files that are not written to."""
        now_ms = self.clock.monotonic_ms()
        if self._told_of_files_ms is None or now_ms - self._told_of_files_ms >= _TELL_OF_FILES_EVERY_MS:
            self._told_of_files_ms = now_ms
            allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            logger.error(
                "the broker may open no more than %d files, and its %d segments and its connections need up "
                "to %d: raise the limit (ulimit -n, or LimitNOFILE= in a systemd unit) and start it again; "
                "until then some requests fail and are tried again (%s)",
                allowed,
                sum(len(log.segments) for log in self.all_logs()),
                self.files_needed(),
                error,
            )
        closed = 0
        for log in self.all_logs():
            for segment in log.segments:
                if segment is not log.segments.active and segment.files.is_open:
                    segment.close_handles()
                    closed += 1
            if closed >= _CLOSED_AT_ONCE:
                break

    def files_needed(self, connections: int = _CONNECTIONS) -> int:
        """About how many files a broker may come to have open: three for a segment, one for a connection."""
        segments = sum(len(log.segments) for log in self.all_logs())
        return segments * _FILES_PER_SEGMENT + connections

    # -- closing --------------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Write the checkpoints of all directories now."""
        await self.upkeep.checkpoint_all()

    async def close(self, *, broker_epoch: int = -1, mark_clean: bool = True) -> None:
        """Flush and close every log; each directory where that works is marked as cleanly shut down.

        Unless ``mark_clean`` is false: then the next start takes this end for a crash.
        """
        await self.moves.close()
        await self.cleaner.close()
        await self.upkeep.stop()
        try:
            await asyncio.gather(
                *(
                    self._close_dir(log_dir, broker_epoch, mark_clean)
                    for log_dir in list(self.online.values())
                )
            )
        finally:
            self.logs.clear()
            self.future_logs.clear()
            self._release()

    async def _close_dir(self, log_dir: LogDir, broker_epoch: int, mark_clean: bool) -> None:
        if not log_dir.is_loaded:
            return
        logs = self.logs_in(log_dir.path)
        slots = asyncio.Semaphore(self.options.threads_per_dir)

        async def close_log(log: Log) -> None:
            async with slots:
                await asyncio.to_thread(log.close)

        results = await asyncio.gather(*map(close_log, logs), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            logger.error(
                "a log in %s could not be closed; the next start will recover it: %s", log_dir.path, failure
            )
        if failures:
            return
        try:
            await asyncio.to_thread(log_dir.checkpoint, logs)
            if mark_clean:
                await asyncio.to_thread(log_dir.write_clean_mark, broker_epoch)
        except OSError as error:
            logger.error("%s could not be marked as cleanly shut down: %s", log_dir.path, error)

    def _release(self) -> None:
        for log_dir in self.online.values():
            log_dir.release()
