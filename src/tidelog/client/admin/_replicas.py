"""Who leads and who holds partitions: elections and reassignments, through the controller.

Called by ``AsyncAdmin``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.leaders import by_topic
from tidelog.client.admin.cluster_resources import ElectionType, PartitionReassignment
from tidelog.client.admin.group_resources import PartitionResult
from tidelog.client.errors import error_from
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

_ELECTION_TYPES_SINCE = 1


async def elect_leaders(
    cluster: Cluster, partitions: Collection[TopicPartition] | None, election_type: ElectionType
) -> list[PartitionResult]:
    """See :meth:`AsyncAdmin.elect_leaders`."""
    deadline = cluster.deadline()
    topics = None
    if partitions is not None:
        topics = [
            TopicPartitions(topic=name, partitions=list(indexes))
            for name, indexes in by_topic(dict.fromkeys(partitions, None)).items()
        ]

    def build(version: int) -> ElectLeadersRequest:
        if version < _ELECTION_TYPES_SINCE and election_type is not ElectionType.PREFERRED:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "this broker is older than Kafka 2.4 and elects preferred leaders only",
            )
        return ElectLeadersRequest(
            election_type=election_type, topic_partitions=topics, timeout_ms=deadline.remaining_ms
        )

    response = await cluster.request_controller(build, ElectLeadersResponse, _election_codes, deadline)
    refusal = error_from(response.error_code, None, "the election")
    if refusal is not None:
        raise refusal
    return [
        PartitionResult(
            TopicPartition(topic.topic, each.partition_id),
            error_from(each.error_code, each.error_message, f"partition {topic.topic}-{each.partition_id}"),
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]


def _election_codes(response: ElectLeadersResponse) -> list[int]:
    partitions = (each for topic in response.replica_election_results for each in topic.partition_result)
    return [response.error_code, *(each.error_code for each in partitions)]


async def list_partition_reassignments(
    cluster: Cluster, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, PartitionReassignment]:
    """See :meth:`AsyncAdmin.list_partition_reassignments`."""
    deadline = cluster.deadline()
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=list(indexes))
            for name, indexes in by_topic(dict.fromkeys(partitions, None)).items()
        ]
    request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=deadline.remaining_ms)
    response = await cluster.request_controller(
        request, ListPartitionReassignmentsResponse, lambda r: (r.error_code,), deadline
    )
    refusal = error_from(response.error_code, response.error_message, "listing reassignments")
    if refusal is not None:
        raise refusal
    ongoing = (
        PartitionReassignment(
            TopicPartition(topic.name, each.partition_index),
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in response.topics
        for each in topic.partitions
    )
    return {each.partition: each for each in ongoing}


async def alter_partition_reassignments(
    cluster: Cluster, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> list[PartitionResult]:
    """See :meth:`AsyncAdmin.alter_partition_reassignments`."""
    deadline = cluster.deadline()
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(
                        partition_index=index, replicas=None if brokers is None else list(brokers)
                    )
                    for index, brokers in indexes.items()
                ],
            )
            for name, indexes in by_topic(replicas).items()
        ],
        timeout_ms=deadline.remaining_ms,
    )
    response = await cluster.request_controller(
        request, AlterPartitionReassignmentsResponse, lambda r: (r.error_code,), deadline
    )
    refusal = error_from(response.error_code, response.error_message, "the reassignment")
    if refusal is not None:
        raise refusal
    return [
        PartitionResult(
            TopicPartition(topic.name, each.partition_index),
            error_from(each.error_code, each.error_message, f"partition {topic.name}-{each.partition_index}"),
        )
        for topic in response.responses
        for each in topic.partitions
    ]
