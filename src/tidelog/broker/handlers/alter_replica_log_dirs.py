"""AlterReplicaLogDirs, versions 1 and 2: moves partitions between the log directories of this broker.

The answer says that a move has begun; DescribeLogDirs shows its progress as a future log. A directory that
the broker does not have is LOG_DIR_NOT_FOUND, one that is offline KAFKA_STORAGE_ERROR, a partition that does
not exist UNKNOWN_TOPIC_OR_PARTITION (the wish is remembered for when it is created), a topic whose name
leaves no room for the marks of a moving log INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

import logging
from pathlib import Path

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.yielding import yielding_every
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.files import FUTURE_DIR_SUFFIX, suffixed_directory_name
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

API = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS = (1, 2)

MAX_DIRECTORY_NAME = 255

# Each makes a log, which takes about a millisecond.
_BATCH_SIZE = 4

logger = logging.getLogger(__name__)


async def handle(
    context: RequestContext, request: AlterReplicaLogDirsRequest, image: MetadataImage, log_dirs: LogDirs
) -> AlterReplicaLogDirsResponse:
    """Begin the moves, and answer for each partition once: the last directory named for it counts."""
    outcomes: dict[TopicPartition, ErrorCode] = {}
    async for target, path in yielding_every(_BATCH_SIZE, _targets(request).items()):
        outcomes[target] = _begin(context, *target, path, image, log_dirs)
    return _response(outcomes)


def refuse(request: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    """The same error for every partition."""
    return _response(dict.fromkeys(_targets(request), error.code))


def _targets(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name, index): each.path
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }


def _begin(
    context: RequestContext, topic: str, index: int, path: str, image: MetadataImage, log_dirs: LogDirs
) -> ErrorCode:
    partition = TopicPartition(topic, index)
    try:
        if len(suffixed_directory_name(partition, FUTURE_DIR_SUFFIX)) > MAX_DIRECTORY_NAME:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_dirs.moves.begin(partition, Path(path))
    except KafkaError as error:
        logger.warning("%s is not moved to %s: %s", partition, path, error)
        unknown = image.partition(topic, index) is None
        if error.code is ErrorCode.REPLICA_NOT_AVAILABLE and unknown:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error.code
    return ErrorCode.NONE


def _response(outcomes: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), code in outcomes.items():
        topic = topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
