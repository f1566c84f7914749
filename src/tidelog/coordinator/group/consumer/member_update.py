"""One member's change on its way into records, step by step; the same for both protocols.

1. Its subscription, if that is new. 2. The group epoch, if that makes a difference to the group or topics
have changed. 3. The targets, if they are behind the group epoch. 4. The member's own next step towards its
target.

Made by ``heartbeats`` and ``classic_members`` for each request; nothing but timers and the notes of when to
look at topics again is changed before the records are replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember, TopicIdPartitions
from tidelog.coordinator.group.consumer.member_timers import MemberTimers
from tidelog.coordinator.group.consumer.metadata_hash import MetadataHash
from tidelog.coordinator.group.consumer.reconcile import Goal, next_step
from tidelog.coordinator.group.consumer.records import (
    assignment_record,
    epoch_record,
    partition_metadata_tombstone,
    subscription_record,
)
from tidelog.coordinator.group.consumer.regexes import METADATA_REFRESH_INTERVAL_MS, RegexChange, Regexes
from tidelog.coordinator.group.consumer.targets import TargetAssignment, TargetAssignments
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.coordinator.stored_record import StoredRecord


class UpdateTools(NamedTuple):
    """What the steps need."""

    clock: Clock
    topics: TopicView
    hashes: MetadataHash
    regexes: Regexes
    targets: TargetAssignments
    timers: MemberTimers


class MemberUpdate:
    """The change of one member; ``updated`` is the member as it has become so far."""

    def __init__(
        self,
        tools: UpdateTools,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        records: list[StoredRecord],
        may_describe: Callable[[str], bool],
    ) -> None:
        """``may_describe`` tells which topics whoever asks for the change may know of."""
        self._tools = tools
        self._may_describe = may_describe
        self.group = group
        self.member = member
        self.updated = updated
        self.records = records
        self.group_epoch = group.epoch
        self.topics_changed = False
        self.regex_change = RegexChange.NONE

    @property
    def subscription_changed(self) -> bool:
        """Whether the member subscribes to something else than before."""
        return self.topics_changed or self.regex_change is not RegexChange.NONE

    def subscribe(self) -> None:
        """Write what the member says of itself, if that is new. Raises INVALID_REGULAR_EXPRESSION."""
        if self.updated != self.member:
            self.records.append(subscription_record(self.group.group_id, self.updated))
            self.topics_changed = self.updated.topics != self.member.topics
        if self.group.subscriptions.regexes or self.updated.regex or self.member.regex:
            self.regex_change = self._tools.regexes.update(
                self.group, self.member, self.updated, self.records, self._may_describe
            )

    def bump_group_epoch(self, *, needed: bool) -> None:
        """Bump the epoch if ``needed``, or if the topics that the group reads have changed."""
        group, now_ms = self.group, self._tools.clock.time_ms()
        if not needed and not group.refresh_is_due(now_ms):
            return
        after = group.subscriptions.after(self.member, self.updated)
        metadata_hash = self._tools.hashes.of(after.topics)
        if needed or metadata_hash != group.metadata_hash:
            self.group_epoch += 1
            self.records.append(epoch_record(group.group_id, self.group_epoch, metadata_hash))
        group.refresh_at(now_ms + METADATA_REFRESH_INTERVAL_MS, self.group_epoch)
        if group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(group.group_id))

    def assign(self) -> TargetAssignment:
        """Bring the targets to the group epoch."""
        if self.group.assignment_epoch >= self.group_epoch:
            return self.last_target()
        return self._tools.targets.bring_up_to_date(
            self.group,
            self.group_epoch,
            self.member,
            self.updated,
            self.records,
            homogeneous=self._is_homogeneous(),
        )

    def last_target(self) -> TargetAssignment:
        """The target that the member has already."""
        return TargetAssignment(self.group.assignment_epoch, self.group.target_of(self.updated))

    def reconcile(self, target: TargetAssignment, owned: TopicIdPartitions | None) -> None:
        """Let the member take its next step towards ``target``, given what it reports to own."""
        updated, changed = self.updated, self.subscription_changed
        if not changed and updated.is_reconciled_to(target.epoch):
            return
        group = self.group
        subscribed = self._tools.topics.ids(group.subscriptions.topics_of(updated))
        goal = Goal(
            target.epoch,
            target.partitions,
            subscribed,
            lambda topic_id, partition: group.partition_epoch(topic_id, partition) is not None,
        )
        self.updated = next_step(updated, goal, owned, subscription_changed=changed)
        if self.updated != updated:
            self.records.append(assignment_record(group.group_id, self.updated))
            self._tools.timers.watch_revocation(group.group_id, self.updated)

    def _is_homogeneous(self) -> bool:
        """Whether all will subscribe to the same topics.

        Kafka asks what was so before, unless this very request bumps the epoch, and then may assign
        partitions to a member that has just joined without subscribing to anything.
        """
        group = self.group
        count = len(group.members)
        known = self.updated.instance_id in group.static_members
        if self.updated.member_id not in group.members and not known:
            count += 1
        return group.subscriptions.after(self.member, self.updated).are_homogeneous(count)
