"""Computes what each member is to own, once the group epoch has gone past the last assignment.

Called for a heartbeat or a join, with the member as it will be. Within
``group.consumer.assignment.interval.ms`` of the last assignment nothing is computed: changes that come
close together cost one rebalance, and the next heartbeat after it does it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.coordinator.group.consumer.assignors import ASSIGNORS
from tidelog.coordinator.group.consumer.assignors.spec import GroupSpec, MemberSpec
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember, TopicIdPartitions
from tidelog.coordinator.group.consumer.records import target_epoch_record, target_record
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.coordinator.group.groups import GroupSupport
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.ids import Uuid

logger = logging.getLogger(__name__)


class TargetAssignment(NamedTuple):
    """Where one member is to go."""

    epoch: int
    partitions: TopicIdPartitions


class TargetAssignments:
    """Assignments of the groups of one shard."""

    def __init__(self, clock: Clock, support: GroupSupport, topics: TopicView) -> None:
        self._clock = clock
        self._support = support
        self._topics = topics

    def are_due(self, group: ConsumerGroup) -> bool:
        """Whether the targets are behind the group epoch, and the next join or heartbeat computes them."""
        return group.epoch > group.assignment_epoch and self._may_compute(group)

    def bring_up_to_date(
        self,
        group: ConsumerGroup,
        group_epoch: int,
        member: ConsumerMember,
        updated: ConsumerMember,
        records: list[StoredRecord],
        *,
        homogeneous: bool,
    ) -> TargetAssignment:
        """The target of ``updated``, which stands for ``member``; records tell what changes for all."""
        if group.assignment_epoch >= group_epoch or not self._may_compute(group):
            return TargetAssignment(group.assignment_epoch, group.target_of(updated))
        name = group.preferred_assignor(member, updated)
        assignor = (
            ASSIGNORS.get(name or "") or ASSIGNORS[self._support.config.list("group.consumer.assignors")[0]]
        )
        spec = self._spec(group, updated, homogeneous)
        targets = assignor.assign(spec)
        for member_id in spec.members:
            target = targets.get(member_id, {})
            if member_id not in group.targets or target != group.targets[member_id]:
                records.append(target_record(group.group_id, member_id, target))
        records.append(target_epoch_record(group.group_id, group_epoch, self._clock.time_ms()))
        logger.info(
            "Group %s: %s assigned %d topics to %d members for epoch %d",
            *(group.group_id, assignor.name, len(spec.partition_counts), len(spec.members), group_epoch),
        )
        return TargetAssignment(group_epoch, targets.get(updated.member_id, {}))

    def _may_compute(self, group: ConsumerGroup) -> bool:
        interval_ms = self._support.group_configs.int(group.group_id, "consumer.assignment.interval.ms")
        if not group.assigned_at_ms or not interval_ms:
            return True
        return self._clock.time_ms() >= group.assigned_at_ms + interval_ms

    def _spec(self, group: ConsumerGroup, updated: ConsumerMember, homogeneous: bool) -> GroupSpec:
        members = dict(group.members)
        replaced = group.static_members.get(updated.instance_id or "")
        if replaced is not None and replaced != updated.member_id:
            del members[replaced]
        members[updated.member_id] = updated
        counts: dict[Uuid, int] = {}
        ids: dict[frozenset[str], frozenset[Uuid]] = {}
        specs = {}
        for member_id, member in members.items():
            names = group.subscriptions.topics_of(member)
            topic_ids = ids.get(names)
            if topic_ids is None:
                there = [topic for name in names if (topic := self._topics.get(name)) is not None]
                counts.update((topic.id, topic.partition_count) for topic in there)
                topic_ids = ids[names] = frozenset(topic.id for topic in there)
            specs[member_id] = MemberSpec(topic_ids, group.target_of(member), member.instance_id)
        specs = {member_id: _within(spec, counts) for member_id, spec in specs.items()}
        return GroupSpec(specs, counts, homogeneous)


def _within(spec: MemberSpec, counts: Mapping[Uuid, int]) -> MemberSpec:
    """Without partitions that are not there: who assigned them may have known a later image."""
    if all(max(indexes, default=0) < counts.get(each, 0) for each, indexes in spec.current.items()):
        return spec
    current = {
        each: frozenset(index for index in indexes if index < counts[each])
        for each, indexes in spec.current.items()
        if each in counts
    }
    return spec._replace(current=current)
