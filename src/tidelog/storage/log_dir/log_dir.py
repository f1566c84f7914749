"""One log directory: what lies at its top, beside the partitions.

::

    .lock                                who is using it (``directory_lock``)
    meta.properties                      whose it is (``meta_properties``)
    recovery-point-offset-checkpoint     and three more (``checkpoints``)
    .kafka_cleanshutdown                 its last broker closed every log: loading need not recover
    orders-0/  orders-1.<uuid>-delete/   partitions (``files``)

The clean-shutdown mark is removed, and its removal made durable, before the first log is loaded: a crash
from then on is an unclean shutdown. Owned by ``log_dirs``; one object per directory, for its whole life.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.files import parse_directory_name
from tidelog.storage.log_dir.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    OffsetCheckpoint,
)
from tidelog.storage.log_dir.directory_lock import DirectoryLock
from tidelog.storage.log_dir.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

if TYPE_CHECKING:
    from tidelog.storage.log.log import Log

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
_CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
_NOT_PARTITIONS: Final = frozenset({"remote-log-index-cache", "lost+found"})

logger = logging.getLogger(__name__)


class PartitionDirectory(NamedTuple):
    """A partition's directory and what it is waiting for: ``-delete``, ``-future``, ``-stray``, nothing."""

    path: Path
    partition: TopicPartition
    suffix: str


class LogDir:
    """A log directory that this process holds the lock of."""

    def __init__(self, path: Path, disk: Disk = REAL_DISK) -> None:
        """Make the directory if need be and lock it; ``OSError`` if the disk does not let us."""
        self.path = path
        self._disk = disk
        if not path.exists():
            path.mkdir(parents=True)
            disk.sync_path(path.parent)
            logger.info("made the log directory %s", path)
        if not path.is_dir():
            raise NotADirectoryError(f"{path} is a file, not a directory")
        self._lock = DirectoryLock(path, disk)
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self.is_loaded = False
        self.recovery_points = OffsetCheckpoint(path / RECOVERY_POINT_FILE, disk)
        self.log_starts = OffsetCheckpoint(path / LOG_START_FILE, disk)
        self.high_watermarks = OffsetCheckpoint(path / HIGH_WATERMARK_FILE, disk)
        self.cleaned = OffsetCheckpoint(path / CLEANER_FILE, disk)
        self.cleaned_offsets: dict[TopicPartition, int] = {}
        self._cleaned_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"LogDir({self.path})"

    def read_meta(self) -> None:
        """Learn what ``meta.properties`` says; :class:`StorageError` if it makes no sense."""
        self.meta = read_meta_properties(self.path)

    def write_meta(self, meta: MetaProperties) -> None:
        """Say whose directory this is; on disk when this returns."""
        if meta != self.meta:
            write_meta_properties(self.path, meta, self._disk)
            self.meta = meta

    def partitions(self) -> list[PartitionDirectory]:
        """The directories of partitions; others are left alone and named in a warning."""
        found: list[PartitionDirectory] = []
        with os.scandir(self.path) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
        for entry in entries:
            if not entry.is_dir() or entry.name in _NOT_PARTITIONS or entry.name.startswith("."):
                continue
            try:
                partition, suffix = parse_directory_name(entry.name)
            except StorageError as error:
                logger.warning("%s in %s is passed over: %s", entry.name, self.path, error)
                continue
            if partition.topic != _CLUSTER_METADATA_TOPIC:
                found.append(PartitionDirectory(Path(entry.path), partition, suffix))
        return found

    # -- the clean-shutdown mark ----------------------------------------------------------------------

    def take_clean_mark(self) -> bool:
        """Whether the last shutdown was clean; the mark is gone for good when this returns."""
        mark = self.path / CLEAN_SHUTDOWN_FILE
        self.was_clean = mark.exists()
        if self.was_clean:
            self._disk.unlink(mark)
            self._disk.sync_path(self.path)
        return self.was_clean

    def write_clean_mark(self, broker_epoch: int) -> None:
        """Say that every log here was flushed and closed."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.write_atomically(self.path / CLEAN_SHUTDOWN_FILE, content.encode("ascii"))

    def last_broker_epoch(self) -> int | None:
        """The broker epoch in the clean-shutdown mark, None without one; ask before loading."""
        try:
            content = json.loads((self.path / CLEAN_SHUTDOWN_FILE).read_bytes())
            return int(content["brokerEpoch"])
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            # Kafka before 3.8 leaves the mark empty, which says nothing of the epoch and is no fault.
            return None

    # -- checkpoints ----------------------------------------------------------------------------------

    def read_offsets(self, checkpoint: OffsetCheckpoint, meaning: str) -> dict[TopicPartition, int]:
        """The offsets of a checkpoint that can be done without: if it is broken, warn and say ``meaning``."""
        try:
            return checkpoint.read()
        except StorageError as error:
            logger.warning("%s; %s", error, meaning)
            return {}

    def checkpoint(self, logs: Iterable[Log]) -> None:
        """Write all checkpoints that are about offsets of logs; may run in a thread."""
        every = list(logs)
        self.checkpoint_recovery_points(every)
        self.checkpoint_log_starts(every)
        self.checkpoint_high_watermarks(every)
        self.checkpoint_cleaned(every)

    def checkpoint_recovery_points(self, logs: Iterable[Log]) -> None:
        """Write how far each log is flushed; may run in a thread."""
        self.recovery_points.write({log.topic_partition: log.files.recovery_point for log in logs})

    def checkpoint_log_starts(self, logs: Iterable[Log]) -> None:
        """Write where logs start that start inside a segment; may run in a thread.

        And of those whose removed segments have their names yet: a crash would bring them back.
        """
        self.log_starts.write(
            {
                log.topic_partition: log.log_start_offset
                for log in logs
                if log.log_start_offset > log.segments[0].base_offset or log.files.removed
            }
        )

    def checkpoint_high_watermarks(self, logs: Iterable[Log]) -> None:
        """Write the high watermarks; may run in a thread."""
        self.high_watermarks.write({log.topic_partition: log.high_watermark for log in logs})

    def checkpoint_cleaned(self, logs: Iterable[Log]) -> None:
        """Write how far each log is compacted; may run in a thread."""
        partitions = {log.topic_partition for log in logs}
        # Nobody writes this file again in a minute, so no thread may write older offsets over newer ones.
        with self._cleaned_lock:
            offsets = dict(self.cleaned_offsets)
            self.cleaned.write(
                {partition: offset for partition, offset in offsets.items() if partition in partitions}
            )

    def forget(self, partition: TopicPartition) -> None:
        """Take a partition out of all checkpoints: a new log must not begin with an old one's offsets."""
        self.cleaned_offsets.pop(partition, None)
        for checkpoint in (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaned):
            checkpoint.forget(partition)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()
