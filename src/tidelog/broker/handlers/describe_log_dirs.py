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
from tidelog.storage.log import Log
from tidelog.storage.log_dirs import LogDirs
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

log = logging.getLogger(__name__)


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe directory by directory."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        }
    log_dirs = context.broker.log_dirs
    return DescribeLogDirsResponse(results=[_describe(log_dirs, path, wanted) for path in log_dirs.paths])


def _describe(log_dirs: LogDirs, path: Path, wanted: set[TopicPartition] | None) -> DescribeLogDirsResult:
    offline = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path))
    if path not in log_dirs.online:
        return offline
    try:
        space = os.statvfs(path)
    except OSError as error:
        log.warning("log directory %s cannot be described: %s", path, error)
        return offline
    topics: dict[str, DescribeLogDirsTopic] = {}
    for each in log_dirs.logs_in(path):
        name, index = each.topic_partition
        if wanted is None or each.topic_partition in wanted:
            topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
            topic.partitions.append(_partition(log_dirs, each, index))
    return DescribeLogDirsResult(
        log_dir=str(path),
        topics=list(topics.values()),
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
        partition_index=index, partition_size=each.size_bytes, offset_lag=lag, is_future_key=is_future
    )
