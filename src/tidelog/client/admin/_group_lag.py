"""How far groups are behind: what they have committed beside where the logs end.

The end is the high watermark, as for a consumer that reads uncommitted records. A partition whose topic is
gone or that has no leader keeps its row and says why its end is unknown. Called by ``AsyncAdmin``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.leaders import split_by_leader
from tidelog.client._offsets import list_offsets
from tidelog.client.admin._group_offsets import list_group_offsets
from tidelog.client.admin._groups import describe_groups
from tidelog.client.admin.group_resources import (
    CommittedOffset,
    GroupDescription,
    GroupLag,
    GroupOffsets,
    MemberDescription,
    PartitionLag,
)
from tidelog.client.resources import OffsetResult, OffsetSpec
from tidelog.ids import TopicPartition


async def describe_group_lag(cluster: Cluster, group_ids: Collection[str]) -> dict[str, GroupLag]:
    """See :meth:`AsyncAdmin.describe_group_lag`."""
    descriptions, offsets = await asyncio.gather(
        describe_groups(cluster, group_ids), list_group_offsets(cluster, group_ids)
    )
    rows = {
        group_id: list(_rows(group, offsets[group_id]))
        for group_id, group in descriptions.items()
        if group.error is None
    }
    ends = await log_offsets(
        cluster, {row.partition for each in rows.values() for row in each}, OffsetSpec.LATEST
    )
    return {
        group_id: GroupLag(
            _with_error_of(group, offsets[group_id]),
            tuple(_with_end(row, ends[row.partition]) for row in rows.get(group_id, ())),
        )
        for group_id, group in descriptions.items()
    }


async def log_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, OffsetResult]:
    """The offset at ``timestamp`` or ``OffsetSpec`` in every partition, without waiting for leaders."""
    led, problems = await split_by_leader(cluster, sorted(partitions))
    found = await list_offsets(cluster, dict.fromkeys(led, int(timestamp)))
    return found | {partition: OffsetResult(partition, error=error) for partition, error in problems.items()}


def _with_error_of(group: GroupDescription, offsets: GroupOffsets) -> GroupDescription:
    if group.error is None and offsets.error is not None:
        return GroupDescription(group.group_id, error=offsets.error)
    return group


def _rows(group: GroupDescription, offsets: GroupOffsets) -> Iterator[PartitionLag]:
    """Every partition that is assigned or committed, ends still unknown."""
    owners = {partition: member for member in group.members for partition in member.assignment or ()}
    for partition in sorted(owners.keys() | offsets.offsets.keys()):
        yield _row(partition, offsets.offsets.get(partition), owners.get(partition))


def _row(
    partition: TopicPartition, committed: CommittedOffset | None, member: MemberDescription | None
) -> PartitionLag:
    if committed is None or committed.error is not None:
        problem = None if committed is None else committed.error
        return PartitionLag(partition, None, None, None, member, problem)
    leader_epoch = committed.leader_epoch if committed.leader_epoch >= 0 else None
    return PartitionLag(partition, committed.offset, leader_epoch, None, member)


def _with_end(row: PartitionLag, end: OffsetResult) -> PartitionLag:
    return PartitionLag(
        row.partition,
        row.committed,
        row.leader_epoch,
        None if end.error else end.offset,
        row.member,
        row.problem or end.error,
    )
