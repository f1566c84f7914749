"""What the parts of :class:`LogDirs` see of the whole that owns them.

``upkeep``, ``log_moves`` and ``log_dirs_loading`` work on the logs and directories of ``log_dirs``; this is
what they may read, change and ask for. Implemented by ``log_dirs``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tidelog.clock import Clock
from tidelog.ids import TopicPartition, Uuid
from tidelog.storage.cleaner.cleaner import Cleaner
from tidelog.storage.directories.delayed_deletion import DelayedDeletion
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.log.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.log_dir import LogDir


class LogRegistry(Protocol):
    """The logs of a broker and the directories they lie in."""

    paths: list[Path]
    options: LogDirsOptions
    clock: Clock
    online: dict[Path, LogDir]
    offline_dirs: dict[Path, str]
    logs: dict[TopicPartition, Log]
    future_logs: dict[TopicPartition, Log]
    offline_partitions: set[TopicPartition]
    on_moved: Callable[[TopicPartition, Log], None] | None
    deletion: DelayedDeletion
    cleaner: Cleaner

    def all_logs(self) -> list[Log]:
        """Every log, those that are being moved twice."""

    def logs_in(self, path: Path) -> list[Log]:
        """The logs of one directory, those that are being moved there included."""

    def dir_of(self, path: Path) -> Path:
        """The log directory that a file or partition lies in."""

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

    def prefer(self, partition: TopicPartition, path: Path) -> None:
        """Make the log of ``partition`` in ``path`` when it comes to be made."""

    def set_aside(self, log: Log, why: str) -> None:
        """Serve a log no more, but keep it."""

    def discard(self, log: Log) -> None:
        """Rename a log that is in no registry any more, and remove it after the delay."""

    def mark_offline(self, path: Path, error: Exception) -> None:
        """Stop using a directory after a disk error."""
