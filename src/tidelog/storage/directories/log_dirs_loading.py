"""Loading every log of a broker at start.

Per directory: take the clean-shutdown mark (from here on a crash is unclean), read the checkpoints, open each
partition. A checkpoint that cannot be read is done without: the recovery point as 0 (more is checked), the
log start as the first segment's (deleted records may show again), both with a warning, as in Kafka.
Directories that wait for deletion (``-delete``) are deleted, those set aside (``-stray``) left alone.

A disk error takes its directory offline and the others go on. Of several copies that moves have half made of
a partition one is kept. A partition whose two directories differ, or a log whose files make no sense, stops
the start with a sentence about what to do: guessing would lose data.
Used by ``log_dirs`` once.
"""

from __future__ import annotations

import contextlib
import logging
import resource
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, field

from tidelog.errors import LogDirOfflineError, StorageError
from tidelog.ids import TopicPartition
from tidelog.storage.directories.log_registry import LogRegistry
from tidelog.storage.disk import is_out_of_files
from tidelog.storage.files import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    PARTITION_METADATA_FILE,
    STRAY_DIR_SUFFIX,
)
from tidelog.storage.log.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.log_dir import LogDir, PartitionDirectory

_LOADABLE: Final = ("", FUTURE_DIR_SUFFIX)
_TELL_EVERY_MS: Final = 5000

logger = logging.getLogger(__name__)


class LoadProgress(NamedTuple):
    """How far loading is: ``done`` of ``total`` logs, the last of them in ``directory``."""

    done: int
    total: int
    directory: Path


class LoadReport(Struct):
    """What loading found and did."""

    logs: int = 0
    unclean_dirs: list[Path] = field(default_factory=list)
    recovered: list[Log] = field(default_factory=list)
    """The logs that were checked or mended; each has its own report."""
    elapsed_ms: float = 0.0


class _Offsets(NamedTuple):
    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]


class LogLoading:
    """One run over all directories."""

    def __init__(
        self,
        dirs: LogRegistry,
        config_of: Callable[[str], LogConfig],
        is_stray: Callable[[Log], bool] | None,
        progress: Callable[[LoadProgress], None] | None,
    ) -> None:
        self._dirs = dirs
        self._config_of = config_of
        self._is_stray = is_stray
        self._progress = progress
        self._report = LoadReport()
        self._other_copies: list[Log] = []
        self._done = 0
        self._total = 0
        self._told_ms = dirs.clock.monotonic_ms()

    def load(self) -> LoadReport:
        """Load everything; raises :class:`StorageError` if a log must be seen to by a person first."""
        started_ms = self._dirs.clock.monotonic_ms()
        found: dict[Path, list[PartitionDirectory]] = {}
        for path, log_dir in list(self._dirs.online.items()):
            try:
                found[path] = log_dir.partitions()
            except OSError as error:
                self._dirs.mark_offline(path, error)
        self._total = sum(each.suffix in _LOADABLE for partitions in found.values() for each in partitions)
        for path, partitions in found.items():
            try:
                self._load_dir(self._dirs.online[path], partitions)
            except (OSError, LogDirOfflineError) as error:
                if is_out_of_files(error):
                    raise _too_few_files(self._total) from error
                self._dirs.mark_offline(path, error)
        for copy in self._other_copies:
            self._keep_one_copy(copy)
        self._report.elapsed_ms = self._dirs.clock.monotonic_ms() - started_ms
        if self._total:
            logger.info("loaded %d logs in %.0f ms", self._report.logs, self._report.elapsed_ms)
        return self._report

    def _load_dir(self, log_dir: LogDir, partitions: list[PartitionDirectory]) -> None:
        clean = log_dir.take_clean_mark()
        offsets = self._read_checkpoints(log_dir)
        loadable = [each for each in partitions if each.suffix in _LOADABLE]
        if loadable:
            logger.info(
                "loading %d logs from %s%s",
                len(loadable),
                log_dir.path,
                "" if clean else ", recovering them as the last shutdown was not clean",
            )
            if not clean:
                self._report.unclean_dirs.append(log_dir.path)
        for each in partitions:
            if each.suffix == DELETE_DIR_SUFFIX:
                self._dirs.deletion.add([each.path], self._dirs.options.delete_delay_ms)
            elif each.suffix == STRAY_DIR_SUFFIX:
                logger.warning(
                    "%s was set aside earlier and is left alone; delete it if not needed", each.path
                )
        with contextlib.closing(self._open_all(loadable, offsets, clean)) as logs:
            for each, log in zip(loadable, logs, strict=True):
                self._take(each, log, offsets)
        log_dir.is_loaded = True

    def _open_all(
        self, partitions: list[PartitionDirectory], offsets: _Offsets, clean: bool
    ) -> Generator[Log, None, None]:
        """Open logs, in order; those that must be checked several at a time, as that is mostly waiting."""

        def open_one(each: PartitionDirectory, config: LogConfig) -> Log:
            return self._dirs.open_log(
                each.path,
                config,
                clean_shutdown=clean,
                recovery_point=offsets.recovery_points.get(each.partition, 0),
                log_start_offset=offsets.log_starts.get(each.partition, 0),
            )

        configs = [self._config_of(each.partition.topic) for each in partitions]
        threads = self._dirs.options.threads_per_dir
        if clean or threads == 1:
            yield from map(open_one, partitions, configs)
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="recovery")
        try:
            yield from pool.map(open_one, partitions, configs)
        finally:
            pool.shutdown(cancel_futures=True)

    def _read_checkpoints(self, log_dir: LogDir) -> _Offsets:
        log_dir.cleaned_offsets = log_dir.read_offsets(log_dir.cleaned, "logs are compacted from their start")
        return _Offsets(
            log_dir.read_offsets(log_dir.recovery_points, "recovery starts at the beginning of every log"),
            log_dir.read_offsets(log_dir.log_starts, "logs start with their first segment"),
            log_dir.read_offsets(log_dir.high_watermarks, "high watermarks start at the log start"),
        )

    def _take(self, each: PartitionDirectory, log: Log, offsets: _Offsets) -> None:
        partition = each.partition
        log.update_high_watermark(min(offsets.high_watermarks.get(partition, 0), log.log_end_offset))
        self._tell(log, each)
        if not each.suffix and self._is_stray is not None and self._is_stray(log):
            self._dirs.set_aside(log, "it belongs to no topic of this broker")
            return
        registry = self._dirs.future_logs if each.suffix else self._dirs.logs
        twin = registry.get(partition)
        if twin is None:
            self._report.logs += 1
        elif each.suffix:
            # Which one to keep is clear when the log is known.
            self._other_copies.append(log)
            return
        else:
            worse = _worse_of_twins(twin, log)
            self._dirs.set_aside(worse, "it lies in another log directory too, with all that is in this one")
            log = twin if worse is log else log
        registry[partition] = log

    def _keep_one_copy(self, copy: Log) -> None:
        """A partition was being moved to one directory, which failed, and then to another."""
        dirs = self._dirs
        partition = copy.topic_partition
        if copy.files.log_dir not in dirs.online:
            return
        kept = dirs.future_logs.get(partition, copy)
        log = dirs.logs.get(partition)
        # Not the copy of a deleted topic; otherwise the one where somebody wanted the partition last.
        other, dirs.future_logs[partition] = sorted((copy, kept), key=lambda each: _rank(each, log))
        if copy is not kept:
            dirs.discard(other)

    def _tell(self, log: Log, each: PartitionDirectory) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(LoadProgress(self._done, self._total, each.path))
        now_ms = self._dirs.clock.monotonic_ms()
        if now_ms - self._told_ms >= _TELL_EVERY_MS:
            self._told_ms = now_ms
            logger.info("loaded %d of %d logs", self._done, self._total)
        recovery = log.recovery
        if not recovery:
            return
        self._report.recovered.append(log)
        lost_something = recovery.bytes_truncated or recovery.segments_dropped or recovery.notes
        level = logging.WARNING if lost_something else logging.DEBUG
        logger.log(level, "recovered %s: %s", log.topic_partition, recovery)


def _too_few_files(logs: int) -> StorageError:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return StorageError(
        f"the broker may open {allowed} files, too few to load its {logs} logs: allow it three for each "
        "segment and one for each connection, with `ulimit -n 100000` before it is started or "
        "LimitNOFILE=100000 in its systemd unit"
    )


def _rank(copy: Log, log: Log | None) -> tuple[bool, int]:
    """Whether a move's copy is of the same topic as the log, and when the move was begun."""
    try:
        begun_ns = (copy.directory / PARTITION_METADATA_FILE).stat().st_mtime_ns
    except OSError:
        begun_ns = 0
    return log is not None and copy.topic_id == log.topic_id, begun_ns


def _worse_of_twins(first: Log, second: Log) -> Log:
    """Which of two logs of one partition can be done without; :class:`StorageError` if that is not clear.

    A crash between the last two steps of a move leaves the same records in two directories. A directory that
    fails while a log is being made there keeps an empty one. In all other cases only a person can know.
    """
    ids = {first.topic_id, second.topic_id}
    if len(ids) == 1 and first.log_end_offset == second.log_end_offset:
        return second
    empty = [log for log in (first, second) if log.log_end_offset == 0]
    if empty and len(ids - {None}) == 1:
        return min(empty, key=lambda log: log.topic_id is not None)
    raise StorageError(
        f"{first.topic_partition} lies in both {first.directory} and {second.directory}, and they differ: "
        "delete one of the two, the one on a failing disk if any is"
    )
