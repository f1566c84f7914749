"""What lies in which log directory, for DescribeLogDirs and for people.

Reads sizes that are known in memory and asks the file system how full it is; changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.ids import TopicPartition
from tidelog.storage.log import Log

if TYPE_CHECKING:
    from tidelog.storage.log_dirs import LogDirs

UNKNOWN_VOLUME_BYTES: Final = -1


class LogReport(NamedTuple):
    """One log: its size, and how many records it still lacks."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool
    """Whether it is the target of a move, not yet the one that serves."""


class LogDirReport(NamedTuple):
    """One directory; the last two are its file system's, -1 where they are not known."""

    path: Path
    is_online: bool
    logs: list[LogReport]
    total_bytes: int
    usable_bytes: int


def report(dirs: LogDirs) -> list[LogDirReport]:
    """All configured directories, those that are offline included."""
    return [_report(dirs, path) for path in dirs.paths]


def _report(dirs: LogDirs, path: Path) -> LogDirReport:
    if path not in dirs.online:
        return LogDirReport(path, False, [], UNKNOWN_VOLUME_BYTES, UNKNOWN_VOLUME_BYTES)
    logs: list[LogReport] = []
    for partition, log in dirs.logs.items():
        if log.directory.parent == path:
            lag = max(log.high_watermark - log.log_end_offset, 0)
            logs.append(LogReport(partition, log.size_bytes, lag, False))
    for partition, future in dirs.future_logs.items():
        if future.directory.parent == path:
            logs.append(LogReport(partition, future.size_bytes, _lag(dirs.logs.get(partition), future), True))
    try:
        volume = os.statvfs(path)
    except OSError:
        return LogDirReport(path, True, logs, UNKNOWN_VOLUME_BYTES, UNKNOWN_VOLUME_BYTES)
    return LogDirReport(
        path, True, logs, volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
    )


def _lag(log: Log | None, future: Log) -> int:
    return -1 if log is None else log.log_end_offset - future.log_end_offset
