"""Takes the records of consumer groups into memory, live and at loading.

Called by ``protocol.ConsumerProtocol.replay`` for record types 3 to 8 and 16. A tombstone for what is not
there is passed over: its record was compacted away before it. A classic group that exists only because
offsets were committed gives way to the consumer group whose records come later in the log.

Difference: where the records of a group contradict each other (a group is forgotten that has members, a
partition has two owners) Kafka refuses to load the whole partition; here it is logged and the later record
counts, so that one damaged group does not cost the others.
"""

from __future__ import annotations

import logging

import msgspec

from tidelog.coordinator.group.consumer.group import NO_ASSIGNMENT_EPOCH, ConsumerGroup
from tidelog.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
)
from tidelog.coordinator.group.consumer.subscriptions import ResolvedRegex
from tidelog.coordinator.group.groups import Groups
from tidelog.ids import Uuid
from tidelog.wire.internal_topics import consumer_offsets as stored
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)


class ConsumerReplay:
    """Applies records to the groups of one shard."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def apply(self, key: Payload, value: Payload | None) -> None:
        """Take in one record."""
        match key, value:
            case stored.ConsumerGroupMetadataKey(), stored.ConsumerGroupMetadataValue():
                group = self._group(key.group_id)
                group.epoch = value.epoch
                group.metadata_hash = value.metadata_hash
            case stored.ConsumerGroupMetadataKey(), None:
                self._forget_group(key.group_id)
            case stored.ConsumerGroupPartitionMetadataKey(), _:
                self._partition_metadata(key.group_id, value)
            case stored.ConsumerGroupMemberMetadataKey(), stored.ConsumerGroupMemberMetadataValue():
                self._subscription(key.group_id, key.member_id, value)
            case stored.ConsumerGroupMemberMetadataKey(), None:
                self._forget_member(key.group_id, key.member_id)
            case stored.ConsumerGroupTargetAssignmentMetadataKey(), _:
                self._target_epoch(key.group_id, value)
            case stored.ConsumerGroupTargetAssignmentMemberKey(), _:
                self._target(key.group_id, key.member_id, value)
            case stored.ConsumerGroupCurrentMemberAssignmentKey(), _:
                self._assignment(key.group_id, key.member_id, value)
            case stored.ConsumerGroupRegularExpressionKey(), _:
                self._regex(key.group_id, key.regular_expression, value)

    def _existing(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._existing(group_id)
        if group is None:
            other = self._groups.get(group_id)
            if other is not None and not other.is_empty:
                logger.error("Group %s was %s and has become a consumer group", group_id, other.type.value)
            group = ConsumerGroup(group_id)
            self._groups.put(group)
        return group

    def _member(self, group: ConsumerGroup, member_id: str) -> ConsumerMember:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)

    def _forget_group(self, group_id: str) -> None:
        group = self._existing(group_id)
        if group is None:
            return
        if group.members:
            logger.error("Group %s is forgotten with %d members in it", group_id, len(group.members))
        self._groups.remove(group_id)

    def _partition_metadata(self, group_id: str, value: Payload | None) -> None:
        group = self._existing(group_id) if value is None else self._group(group_id)
        if group is not None:
            group.has_partition_metadata = value is not None

    def _subscription(
        self, group_id: str, member_id: str, value: stored.ConsumerGroupMemberMetadataValue
    ) -> None:
        group = self._group(group_id)
        group.put_member(
            msgspec.structs.replace(
                self._member(group, member_id),
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
                regex=value.subscribed_topic_regex,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                assignor=value.server_assignor,
                classic=value.classic_member_metadata,
            )
        )

    def _forget_member(self, group_id: str, member_id: str) -> None:
        group = self._existing(group_id)
        if group is not None:
            group.targets.pop(member_id, None)
            group.remove_member(member_id)

    def _target_epoch(self, group_id: str, value: Payload | None) -> None:
        if isinstance(value, stored.ConsumerGroupTargetAssignmentMetadataValue):
            group = self._group(group_id)
            group.assignment_epoch = value.assignment_epoch
            group.assigned_at_ms = value.assignment_timestamp
        elif (existing := self._existing(group_id)) is not None:
            existing.assignment_epoch = NO_ASSIGNMENT_EPOCH
            existing.assigned_at_ms = 0

    def _target(self, group_id: str, member_id: str, value: Payload | None) -> None:
        if isinstance(value, stored.ConsumerGroupTargetAssignmentMemberValue):
            self._group(group_id).targets[member_id] = {
                each.topic_id: frozenset(each.partitions) for each in value.topic_partitions
            }
        elif (existing := self._existing(group_id)) is not None:
            existing.targets.pop(member_id, None)

    def _assignment(self, group_id: str, member_id: str, value: Payload | None) -> None:
        if isinstance(value, stored.ConsumerGroupCurrentMemberAssignmentValue):
            group = self._group(group_id)
            group.put_member(
                msgspec.structs.replace(
                    self._member(group, member_id),
                    epoch=value.member_epoch,
                    previous_epoch=value.previous_member_epoch,
                    state=MemberState.of(value.state),
                    assigned=_owned(value.assigned_partitions, value.member_epoch),
                    revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
                )
            )
            return
        existing = self._existing(group_id)
        member = existing.members.get(member_id) if existing is not None else None
        if existing is not None and member is not None:
            existing.put_member(
                msgspec.structs.replace(
                    member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={}
                )
            )

    def _regex(self, group_id: str, regex: str, value: Payload | None) -> None:
        if isinstance(value, stored.ConsumerGroupRegularExpressionValue):
            self._group(group_id).subscriptions.resolve(
                regex, ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            )
        elif (existing := self._existing(group_id)) is not None:
            existing.subscriptions.unresolve(regex)


def _owned(topic_partitions: list[stored.TopicPartitions], member_epoch: int) -> OwnedPartitions:
    """Partitions with the epochs at which they were got; the member's, where an older release left none."""
    owned: dict[Uuid, dict[int, int]] = {}
    for each in topic_partitions:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            # A static member that is away has epoch -2.
            epochs = [max(member_epoch, 0)] * len(each.partitions)
        owned[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return owned
