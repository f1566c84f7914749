"""AlterPartitionReassignments, versions 0 and 1: moves replicas to other brokers, or takes that back.

In a cluster the controller does it, and others answer NOT_CONTROLLER; the answer does not wait for the
replicas to catch up. A replication factor may change, unless the client forbids it (version 1).

A broker alone has nowhere to move: to assign a partition to the broker that has it succeeds and changes
nothing, any other target is refused with INVALID_REPLICA_ASSIGNMENT, and there is never a reassignment to
cancel (NO_REASSIGNMENT_IN_PROGRESS), as Kafka answers there.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tidelog.broker.context import RequestContext
from tidelog.controller.assignment import validate_manual_assignment
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
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
) -> AlterPartitionReassignmentsResponse | Awaitable[AlterPartitionReassignmentsResponse]:
    """Check partition by partition; what passes is where it should be already, or begins to move."""
    if context.broker.in_cluster:
        return _reassign(context, request)
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


async def _reassign(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    image = context.broker.image
    outcomes: dict[TopicPartition, KafkaError | None] = {}
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    for topic in request.topics:
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.partition_index)
            known = image.partition(*name)
            target = None if each.replicas is None else tuple(each.replicas)
            if (
                not request.allow_replication_factor_change
                and known is not None
                and target is not None
                and len(target) != len(known.replicas)
            ):
                outcomes[name] = KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor is changed from {len(known.replicas)} to {len(target)}",
                )
            else:
                targets[name] = target
    outcomes |= await context.broker.membership.controller.reassign(targets, timeout_ms=request.timeout_ms)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _outcome(each.partition_index, outcomes[TopicPartition(topic.name, each.partition_index)])
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _outcome(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=index, error_message=None)
    return ReassignablePartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message or None
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
