"""What brokers' answers say about replicas: pure readings of LeaderAndIsr and StopReplica responses."""

from __future__ import annotations

from tidelog.controller.cluster.context import ControllerContext, Replica
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrResponse
from tidelog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


def directory_answers(
    context: ControllerContext, response: LeaderAndIsrResponse
) -> dict[TopicPartition, int]:
    """Error codes by partition; topics are named by id since version 5."""
    names = {topic_id: name for name, topic_id in context.topic_ids.items()}
    found = {
        TopicPartition(each.topic_name, each.partition_index): each.error_code
        for each in response.partition_errors
    }
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is not None:
            for each in topic.partition_errors:
                found[TopicPartition(name, each.partition_index)] = each.error_code
    return found


def failed_deletions(
    context: ControllerContext, broker: int, request: StopReplicaRequest, response: StopReplicaResponse
) -> tuple[list[Replica], list[Replica]]:
    """Of the replicas that a broker was to delete with their topics: those that are gone, and the others."""
    asked = {
        TopicPartition(topic.topic_name, each.partition_index)
        for topic in request.topic_states
        for each in topic.partition_states
        if each.delete_partition and topic.topic_name in context.deletion_started
    }
    codes = {
        TopicPartition(each.topic_name, each.partition_index): each.error_code
        for each in response.partition_errors
    }
    deleted: list[Replica] = []
    failed: list[Replica] = []
    for partition in sorted(asked):
        well = response.error_code == ErrorCode.NONE and codes.get(partition, 0) == ErrorCode.NONE
        (deleted if well else failed).append(Replica(partition, broker))
    return deleted, failed
