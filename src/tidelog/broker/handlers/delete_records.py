"""DeleteRecords, versions 0 to 2: moves the start of partitions forward, so that older records are gone.

Behaviour as in Kafka: offset -1 means the high watermark, an offset beyond it or below zero is
OFFSET_OUT_OF_RANGE, a topic without ``delete`` in its cleanup policy is POLICY_VIOLATION, internal topics are
INVALID_TOPIC_EXCEPTION. The answer is the low watermark of all replicas, which on one broker is the start of
its log. Of a partition that is named twice the last offset counts. Records are unreachable when the answer
leaves; segments go with the next retention run.
"""

from __future__ import annotations

import logging

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import INTERNAL_TOPICS
from tidelog.replication.partition import Partition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

API = ApiKey.DELETE_RECORDS
VERSIONS = (0, 2)

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1

log = logging.getLogger(__name__)


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete, partition by partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete(context, topic.name, index, offset)
                    for index, offset in {
                        each.partition_index: each.offset for each in topic.partitions
                    }.items()
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    """The same error for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_refusal(each.partition_index, error.code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(context: RequestContext, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        partition = context.broker.partitions.get(topic, index)
        low_watermark = _delete_before(partition, offset)
    except LogDirOfflineError as error:
        context.broker.log_dir_failed(error)
        return _refusal(index, ErrorCode.KAFKA_STORAGE_ERROR)
    except KafkaError as error:
        log.debug("records of %s-%d are not deleted: %s", topic, index, error)
        return _refusal(index, error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)


def _delete_before(partition: Partition, offset: int) -> int:
    """Delete the records before ``offset``; returns where the log starts now."""
    name = partition.topic_partition
    if name.topic in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {name.topic}"
        )
    partition.check_leader()
    if not partition.log.config.delete:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {name} can not be deleted due to the configured policy",
        )
    target = partition.log.high_watermark if offset == HIGH_WATERMARK else offset
    if target < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"The offset {target} for partition {name} is not valid"
        )
    partition.log.increment_log_start_offset(target, "a client asked to delete records")
    partition.changed()
    return partition.log.log_start_offset


def _refusal(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=code
    )
