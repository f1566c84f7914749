"""DescribeLogDirs, versions 1 to 5: the log directories, and the sizes of the partitions in them.

Null topics mean every partition, and none means the directories alone. Since version 4 each directory comes
with the size and the free space of its file system. The lag of a partition is how far its end is behind
what it should have: of a log that is being moved (``is_future_key``), how far behind the present one. An
offline directory is KAFKA_STORAGE_ERROR. No directory is ever cordoned (version 5).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.scheduling.slices import Slices
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.log.log import Log
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

API = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = (1, 5)

UNKNOWN_LAG = -1

# Each takes some 10 µs, more where it has many segments.
_AT_ONCE = 20

logger = logging.getLogger(__name__)


def handle(
    context: RequestContext, request: DescribeLogDirsRequest, log_dirs: LogDirs
) -> Slices[DescribeLogDirsResponse]:
    """Describe directory by directory."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        }
    description = _Description(log_dirs)
    for number, each in enumerate(log_dirs.all_logs(), 1):
        if wanted is None or each.topic_partition in wanted:
            description.add(each)
        if not number % _AT_ONCE:
            yield
    return description.response


class _Description:
    """The response in the making: directories, and the logs in them."""

    def __init__(self, log_dirs: LogDirs) -> None:
        self._log_dirs = log_dirs
        self._results = {path: _directory(log_dirs, path) for path in log_dirs.paths}
        self._topics: dict[tuple[Path, str], DescribeLogDirsTopic] = {}
        self.response = DescribeLogDirsResponse(results=list(self._results.values()))

    def add(self, each: Log) -> None:
        """Describe a log, unless its directory cannot be."""
        result = self._results.get(each.files.log_dir)
        if result is None or result.error_code != ErrorCode.NONE:
            return
        name, index = each.topic_partition
        topic = self._topics.get((each.files.log_dir, name))
        if topic is None:
            topic = self._topics[each.files.log_dir, name] = DescribeLogDirsTopic(name=name)
            result.topics.append(topic)
        topic.partitions.append(_partition(self._log_dirs, each, index))


def _directory(log_dirs: LogDirs, path: Path) -> DescribeLogDirsResult:
    """A directory, without its logs."""
    offline = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path))
    if path not in log_dirs.online:
        return offline
    try:
        space = os.statvfs(path)
    except OSError as error:
        logger.warning("log directory %s cannot be described: %s", path, error)
        return offline
    return DescribeLogDirsResult(
        log_dir=str(path),
        total_bytes=space.f_frsize * space.f_blocks,
        usable_bytes=space.f_frsize * space.f_bavail,
    )


def _partition(log_dirs: LogDirs, each: Log, index: int) -> DescribeLogDirsPartition:
    present = log_dirs.get(each.topic_partition)
    is_future = present is not each
    lag = UNKNOWN_LAG
    if present is not None:
        ahead = present.log_end_offset if is_future else present.high_watermark
        lag = ahead - each.log_end_offset if is_future else max(ahead - each.log_end_offset, 0)
    return DescribeLogDirsPartition(
        partition_index=index, partition_size=each.files.size_bytes, offset_lag=lag, is_future_key=is_future
    )
