"""Committed offsets of groups: reading, setting and deleting them from outside the group.

Offsets are set as a client without membership does it (generation -1, no member id), which coordinators
allow only while nobody is in the group. Topics go by name, so OffsetCommit and OffsetFetch are used up to
version 9: later ones take topic ids, which commits of deleted topics no longer have.
Called by ``AsyncAdmin``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.coordinators import CoordinatorType, ask_coordinators, will_pass
from tidelog.client._network.leaders import by_topic
from tidelog.client._network.retry import Deadline
from tidelog.client.admin.group_resources import CommittedOffset, GroupOffsets, PartitionResult
from tidelog.client.errors import error_from
from tidelog.client.metadata import Node
from tidelog.errors import KafkaError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from tidelog.client.subscription.offsets import OffsetAndMetadata

_TOPIC_NAMES_UNTIL = 9
_MANY_GROUPS_SINCE = 8


@dataclass(frozen=True, slots=True)
class _Change:
    """The answer to a request that changes one group's offsets."""

    partitions: tuple[PartitionResult, ...] = ()
    refusal: KafkaError | None = None

    @property
    def error(self) -> KafkaError | None:
        """What concerns the group: its refusal, or the first partition's error that will pass."""
        passing = (each.error for each in self.partitions if each.error and will_pass(each.error.code))
        return self.refusal or next(passing, None)


async def list_group_offsets(cluster: Cluster, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
    """See :meth:`AsyncAdmin.list_group_offsets`."""
    deadline = cluster.deadline()

    async def ask(node: Node, wanted: list[str]) -> dict[str, GroupOffsets]:
        found: dict[str, GroupOffsets] = {}
        while todo := [group_id for group_id in wanted if group_id not in found]:
            # Before Kafka 3.0 a request is about one group.
            found |= await _fetch(cluster, node, todo, deadline)
        return found

    def refuse(group_id: str, error: KafkaError) -> GroupOffsets:
        return GroupOffsets(group_id, error=error)

    return await ask_coordinators(cluster, CoordinatorType.GROUP, group_ids, ask, refuse, deadline)


async def _fetch(
    cluster: Cluster, node: Node, group_ids: list[str], deadline: Deadline
) -> dict[str, GroupOffsets]:
    def build(version: int) -> OffsetFetchRequest:
        if version < _MANY_GROUPS_SINCE:
            return OffsetFetchRequest(group_id=group_ids[0], topics=None)
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
        return OffsetFetchRequest(groups=groups)

    response = await cluster.request_node_once(
        node, build, OffsetFetchResponse, deadline, max_version=_TOPIC_NAMES_UNTIL
    )
    if response.groups:
        return {group.group_id: _group_offsets(group) for group in response.groups}
    group_id = group_ids[0]
    error = error_from(response.error_code, None, f"group {group_id!r}")
    return {group_id: GroupOffsets(group_id, _committed(response.topics), error)}


def _group_offsets(group: OffsetFetchResponseGroup) -> GroupOffsets:
    error = error_from(group.error_code, None, f"group {group.group_id!r}")
    return GroupOffsets(group.group_id, _committed(group.topics), error)


def _committed(
    topics: Sequence[OffsetFetchResponseTopics] | Sequence[OffsetFetchResponseTopic],
) -> dict[TopicPartition, CommittedOffset]:
    committed = (
        CommittedOffset(
            TopicPartition(topic.name, each.partition_index),
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata or "",
            error_from(each.error_code, None, f"partition {topic.name}-{each.partition_index}"),
        )
        for topic in topics
        for each in topic.partitions
    )
    return {each.partition: each for each in committed if each.offset != NO_OFFSET or each.error}


async def alter_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
) -> list[PartitionResult]:
    """See :meth:`AsyncAdmin.alter_group_offsets`."""
    deadline = cluster.deadline()
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[_to_commit(index, offset) for index, offset in indexes.items()],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )

    async def ask(node: Node, wanted: list[str]) -> dict[str, _Change]:
        response = await cluster.request_node_once(
            node, request, OffsetCommitResponse, deadline, max_version=_TOPIC_NAMES_UNTIL
        )
        return {group_id: _Change(_partition_results(response))}

    return await _change(cluster, group_id, ask, deadline)


def _to_commit(index: int, offset: int | OffsetAndMetadata) -> OffsetCommitRequestPartition:
    if isinstance(offset, int):
        return OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


async def delete_group_offsets(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition]
) -> list[PartitionResult]:
    """See :meth:`AsyncAdmin.delete_group_offsets`."""
    deadline = cluster.deadline()
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
            )
            for topic, indexes in by_topic(dict.fromkeys(partitions, None)).items()
        ],
    )

    async def ask(node: Node, wanted: list[str]) -> dict[str, _Change]:
        response = await cluster.request_node_once(node, request, OffsetDeleteResponse, deadline)
        refusal = error_from(response.error_code, None, f"group {group_id!r}")
        return {group_id: _Change(_partition_results(response), refusal)}

    return await _change(cluster, group_id, ask, deadline)


async def _change(
    cluster: Cluster,
    group_id: str,
    ask: Callable[[Node, list[str]], Awaitable[dict[str, _Change]]],
    deadline: Deadline,
) -> list[PartitionResult]:
    def refuse(group_id: str, error: KafkaError) -> _Change:
        return _Change(refusal=error)

    found = await ask_coordinators(cluster, CoordinatorType.GROUP, [group_id], ask, refuse, deadline)
    change = found[group_id]
    if change.refusal is not None:
        raise change.refusal
    return list(change.partitions)


def _partition_results(response: OffsetCommitResponse | OffsetDeleteResponse) -> tuple[PartitionResult, ...]:
    return tuple(
        PartitionResult(
            TopicPartition(topic.name, each.partition_index),
            error_from(each.error_code, None, f"partition {topic.name}-{each.partition_index}"),
        )
        for topic in response.topics
        for each in topic.partitions
    )
