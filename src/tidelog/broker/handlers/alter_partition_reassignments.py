"""AlterPartitionReassignments, versions 0 and 1: moves replicas, as far as one broker can.

On a cluster of one broker there is nowhere to move: to assign a partition to the broker that has it succeeds
and changes nothing, any other target is refused with INVALID_REPLICA_ASSIGNMENT, and there is never a
reassignment to cancel (NO_REASSIGNMENT_IN_PROGRESS), as Kafka answers there.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.controller.assignment import validate_manual_assignment
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = (0, 1)


def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Check partition by partition; what passes is where it should be already."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_partition(context, topic, each) for each in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _partition(
    context: RequestContext, topic: ReassignableTopic, partition: ReassignablePartition
) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=partition.partition_index, error_message=None)
    try:
        _check(context, topic.name, partition)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or None
    return result


def _check(context: RequestContext, topic: str, partition: ReassignablePartition) -> None:
    image = context.broker.image
    index = partition.partition_index
    if topic not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if image.partition(topic, index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}.")
    if partition.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    validate_manual_assignment(partition.replicas, image.brokers, None)
