"""What a log is opened with: its directory, its topic's options, and the clock and disk that it uses.

Made by ``log_dirs`` for each partition. Nothing here changes; a log that is renamed, or whose topic has other
options later, notes that itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.ids import TopicPartition
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.files import parse_directory_name
from tidelog.storage.log_config import LogConfig


class LogContext(NamedTuple):
    """Where a log lies and what it stands on."""

    directory: Path
    config: LogConfig
    clock: Clock
    disk: Disk = REAL_DISK
    producer_id_expiration_ms: int = 86_400_000

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition after which the directory is named."""
        partition, _ = parse_directory_name(self.directory.name)
        return partition
