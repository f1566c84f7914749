"""AlterPartitionReassignments, versions 0 and 1: moves replicas to other brokers, or takes that back.

In a cluster the controller does it, and others answer NOT_CONTROLLER; the answer does not wait for the
replicas to catch up. A replication factor may change, unless the client forbids it (version 1).

A broker alone has nowhere to move: to assign a partition to the broker that has it succeeds and changes
nothing, any other target is refused with INVALID_REPLICA_ASSIGNMENT, and there is never a reassignment to
cancel (NO_REASSIGNMENT_IN_PROGRESS), as Kafka answers there.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition
from tidelog.scheduling.yielding import yielding_every
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = (0, 1)

_BATCH_SIZE = 64


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest, admin: Admin
) -> AlterPartitionReassignmentsResponse:
    """Decide partition by partition; what passes is where it should be already, or begins to move."""
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    named = ((topic, each) for topic in request.topics for each in topic.partitions)
    async for topic, each in yielding_every(_BATCH_SIZE, named):
        replicas = None if each.replicas is None else tuple(each.replicas)
        targets[TopicPartition(topic.name, each.partition_index)] = replicas
    outcomes = await admin.reassign(
        targets,
        allow_replication_factor_change=request.allow_replication_factor_change,
        timeout_ms=request.timeout_ms,
    )
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[ReassignableTopicResponse(name=topic.name) for topic in request.topics],
    )
    answers = zip(request.topics, response.responses, strict=True)
    asked = ((answer, each) for topic, answer in answers for each in topic.partitions)
    async for answer, each in yielding_every(_BATCH_SIZE, asked):
        outcome = outcomes[TopicPartition(answer.name, each.partition_index)]
        answer.partitions.append(_outcome(each.partition_index, outcome))
    return response


def refuse(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    """The same refusal for the whole and for every partition."""
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.message or None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_outcome(each.partition_index, error) for each in topic.partitions],
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
