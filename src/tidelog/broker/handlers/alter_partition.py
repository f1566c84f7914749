"""AlterPartition, versions 2 and 3: the leader of partitions asks the controller for other in-sync replicas
(KIP-497).

Version 3 carries the broker epochs of the replicas (KIP-903). Elsewhere than at the controller
NOT_CONTROLLER; a broker in an epoch that is over gets STALE_BROKER_EPOCH. Only in clusters.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.broker.context import RequestContext
from tidelog.controller.cluster.context import ControllerContext, Leadership
from tidelog.controller.cluster.controller import ClusterController
from tidelog.controller.cluster.isr_changes import UNKNOWN_BROKER_EPOCH, IsrChange
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

API = ApiKey.ALTER_PARTITION
VERSIONS = (2, 3)

_EPOCHS_SINCE = 3


async def handle(
    context: RequestContext, request: AlterPartitionRequest, cluster_controller: ClusterController
) -> AlterPartitionResponse:
    """Have the controller decide on each partition."""
    names: dict[bytes, str] = {}

    def changes(known: ControllerContext) -> Mapping[TopicPartition, IsrChange]:
        by_id = {topic_id: name for name, topic_id in known.topic_ids.items()}
        wanted: dict[TopicPartition, IsrChange] = {}
        for topic in request.topics:
            name = by_id.get(topic.topic_id)
            if name is not None:
                names[topic.topic_id] = name
                for each in topic.partitions:
                    partition = TopicPartition(name, each.partition_index)
                    wanted[partition] = _change(request.broker_id, each, context.version)
        return wanted

    outcomes = await cluster_controller.alter_isrs(request.broker_id, request.broker_epoch, changes)
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    _answer(each.partition_index, _outcome(outcomes, names.get(topic.topic_id), each))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _change(broker_id: int, asked: AlterPartitionRequestPartitionData, version: int) -> IsrChange:
    if version >= _EPOCHS_SINCE:
        isr = {each.broker_id: each.broker_epoch for each in asked.new_isr_with_epochs}
    else:
        isr = dict.fromkeys(asked.new_isr, UNKNOWN_BROKER_EPOCH)
    return IsrChange(broker_id, asked.leader_epoch, isr, asked.leader_recovery_state, asked.partition_epoch)


def _outcome(
    outcomes: Mapping[TopicPartition, Leadership | ErrorCode],
    topic: str | None,
    asked: AlterPartitionRequestPartitionData,
) -> Leadership | ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return outcomes[TopicPartition(topic, asked.partition_index)]


def _answer(index: int, outcome: Leadership | ErrorCode) -> AlterPartitionResponsePartitionData:
    if isinstance(outcome, ErrorCode):
        return AlterPartitionResponsePartitionData(partition_index=index, error_code=outcome)
    return AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=outcome.state.leader,
        leader_epoch=outcome.state.leader_epoch,
        isr=list(outcome.state.isr),
        leader_recovery_state=outcome.state.leader_recovery_state,
        partition_epoch=outcome.version,
    )
