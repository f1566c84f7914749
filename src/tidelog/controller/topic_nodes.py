"""Topics as nodes of the metadata store: which operations make, grow and remove one.

::

    /config/topics/T                       its overrides
    /brokers/topics/T                      its id, and the replicas of every partition
    /brokers/topics/T/partitions/N/state   who leads partition N, and who is in sync

Functions that return the operations of one ``multi``, so a topic is there whole or not at all; they write
nothing themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.controller.assignment import Assignment
from tidelog.ids import TopicPartition, Uuid
from tidelog.metadata.image import PartitionImage, TopicImage
from tidelog.metadata.store import Create, Delete, MetadataStore, Op, Set
from tidelog.metadata.znodes.znodes import (
    NO_LEADER,
    PartitionState,
    TopicAssignment,
    encode_config,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_config_path,
    topic_path,
)


def first_state(
    replicas: tuple[int, ...], alive: Collection[int], controller_epoch: int, leader_epoch: int = 0
) -> PartitionState:
    """The state of a new partition: every live replica is in sync, the first of them leads."""
    isr = tuple(replica for replica in replicas if replica in alive)
    return PartitionState(
        leader=isr[0] if isr else NO_LEADER,
        leader_epoch=leader_epoch,
        isr=isr or replicas,
        controller_epoch=controller_epoch,
    )


def create_topic_ops(
    name: str,
    topic_id: Uuid,
    assignment: Assignment,
    configs: Mapping[str, str],
    states: Mapping[int, PartitionState],
) -> list[Op]:
    """Make a topic; ``states`` has one entry for each partition of ``assignment``."""
    node = TopicAssignment(topic_id=topic_id, partitions=assignment)
    return [
        Create(topic_config_path(name), encode_config(configs)),
        Create(topic_path(name), node.encode()),
        Create(partitions_path(name)),
        *_partition_ops(name, states),
    ]


def add_partitions_ops(
    topic: TopicImage, added: Assignment, states: Mapping[int, PartitionState]
) -> list[Op]:
    """Give a topic more partitions; those it has stay as they are."""
    assignment = {index: partition.replicas for index, partition in topic.partitions.items()} | added
    return [
        Set(topic_path(topic.name), TopicAssignment(topic_id=topic.id, partitions=assignment).encode()),
        *_partition_ops(topic.name, states),
    ]


def _partition_ops(name: str, states: Mapping[int, PartitionState]) -> list[Op]:
    ops: list[Op] = []
    for index, state in states.items():
        partition = TopicPartition(name, index)
        ops.append(Create(partition_path(partition)))
        ops.append(Create(partition_state_path(partition), state.encode()))
    return ops


def set_leader_op(partition: TopicPartition, image: PartitionImage, leader: int, controller_epoch: int) -> Op:
    """Make ``leader`` lead (or nobody) from a new epoch on; fails if the state changed since it was read."""
    unclean = leader != NO_LEADER and leader not in image.isr
    state = PartitionState(
        leader=leader,
        leader_epoch=image.leader_epoch + 1,
        isr=(leader,) if unclean else image.isr,
        controller_epoch=controller_epoch,
        leader_recovery_state=int(unclean),
    )
    return Set(partition_state_path(partition), state.encode(), image.state_version)


async def delete_topic_ops(store: MetadataStore, name: str) -> list[Op]:
    """Remove a topic's overrides and everything below its node, whoever made it; children go first."""
    ops: list[Op] = []
    for root in (topic_path(name), topic_config_path(name)):
        if await store.exists(root):
            await _delete_below(store, root, ops)
    return ops


async def _delete_below(store: MetadataStore, path: str, ops: list[Op]) -> None:
    for child in await store.children(path):
        await _delete_below(store, f"{path}/{child}", ops)
    ops.append(Delete(path))
