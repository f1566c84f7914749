"""A consumer group (KIP-848): its members, the target that each is to reach, and who owns which partition.

Everything here is what records say, changed by ``replay`` alone, except the two notes of when to look at
topics again (``refresh_at``, ``regexes_are_stale``), which a restart may lose.

Epochs: the *group epoch* goes up when members, subscriptions or topics change; the *assignment epoch* is the
group epoch that the targets were computed for; each member follows with an epoch of its own. Invariant: a
partition has one owner at most, whose epoch ``partition_epoch`` tells.
"""

from __future__ import annotations

import enum
import logging
from typing import NamedTuple

from tidelog.coordinator.group.consumer.member import (
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    TopicIdPartitions,
)
from tidelog.coordinator.group.consumer.records import group_tombstones
from tidelog.coordinator.group.consumer.subscriptions import Subscriptions
from tidelog.coordinator.group.group import CommitCheck, Group, GroupType
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import Uuid

logger = logging.getLogger(__name__)

PROTOCOL_TYPE = "consumer"
FIRST_EPOCH = 1
NO_ASSIGNMENT_EPOCH = -1
"""The assignment epoch once its record has been forgotten."""
_COMMITS_WITH_EPOCH_SINCE = 9


class GroupState(enum.Enum):
    """Where a group stands; the values are Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class _Refresh(NamedTuple):
    """When the metadata hash is due, as long as the group has got to ``epoch``."""

    at_ms: int
    epoch: int


class ConsumerGroup(Group):
    """A group of the consumer protocol; some of its members may use the classic one."""

    type = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """When the targets were computed; 0 if that is not known."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.targets: dict[str, TopicIdPartitions] = {}
        self.subscriptions = Subscriptions()
        self.has_partition_metadata = False
        """Whether a release before 4.1 left a record of type 4, to be forgotten."""
        self.regexes_are_stale = True
        """Whether topics may have come that an expression matches."""
        self._partition_epochs: dict[Uuid, dict[int, int]] = {}
        self._refresh = _Refresh(0, 0)

    # Members

    def member(self, member_id: str) -> ConsumerMember:
        """A member; raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that has an instance id."""
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return self.members.get(member_id) if member_id is not None else None

    def put_member(self, member: ConsumerMember) -> None:
        """A member has come or changed."""
        old = self.members.get(member.member_id)
        if old is not None:
            self.subscriptions.drop(old)
            self._release(old.assigned, old.epoch)
            self._release(old.revoking, old.epoch)
        self.members[member.member_id] = member
        self.subscriptions.add(member)
        self._occupy(member.assigned, member.epoch)
        self._occupy(member.revoking, member.epoch)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """A member has gone."""
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self.subscriptions.drop(old)
        self._release(old.assigned, old.epoch)
        self._release(old.revoking, old.epoch)
        if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]

    def target_of(self, member: ConsumerMember) -> TopicIdPartitions:
        """What a member is to own; a static member inherits from the one whose place it takes."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id, member_id)
        return self.targets.get(member_id, {})

    def partition_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch of the member that owns a partition; None if it is free."""
        return self._partition_epochs.get(topic_id, {}).get(partition)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of the member's target is still held by somebody else."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            partition not in member.assigned.get(topic_id, {})
            and self.partition_epoch(topic_id, partition) is not None
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def _occupy(self, owned: OwnedPartitions, epoch: int) -> None:
        for topic_id, partitions in owned.items():
            epochs = self._partition_epochs.setdefault(topic_id, {})
            for partition in partitions:
                held = epochs.get(partition)
                if held is not None and held >= epoch:
                    logger.error(
                        "Group %s: partition %d of topic %s is owned at epoch %d and at %d",
                        *(self.group_id, partition, topic_id.hex(), held, epoch),
                    )
                    continue
                epochs[partition] = epoch

    def _release(self, owned: OwnedPartitions, epoch: int) -> None:
        for topic_id, partitions in owned.items():
            epochs = self._partition_epochs.get(topic_id, {})
            for partition in partitions:
                # Somebody else may own it by now, at another epoch.
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                self._partition_epochs.pop(topic_id, None)

    # Members of the classic protocol

    @property
    def classic_member_count(self) -> int:
        """How many members use the classic protocol."""
        return sum(member.uses_classic_protocol for member in self.members.values())

    def supports_classic(self, protocol_type: str, protocols: list[str]) -> bool:
        """Whether a classic member with these client-side assignors can be part of the group: all other
        classic members must have one of them too."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        if not self.members:
            return bool(protocols)
        offered = [
            {protocol.name for protocol in member.classic_protocols}
            for member in self.members.values()
            if member.uses_classic_protocol
        ]
        return any(all(name in names for names in offered) for name in protocols)

    # Assignors

    def preferred_assignor(self, member: ConsumerMember | None, updated: ConsumerMember | None) -> str | None:
        """The server-side assignor that most members ask for, once ``updated`` stands for ``member``."""
        counts: dict[str, int] = {}
        gone = member.member_id if member is not None else None
        for each in self.members.values():
            if each.assignor is not None and each.member_id != gone:
                counts[each.assignor] = counts.get(each.assignor, 0) + 1
        if updated is not None and updated.assignor is not None:
            counts[updated.assignor] = counts.get(updated.assignor, 0) + 1
        return max(sorted(counts), key=counts.__getitem__, default=None)

    # Looking at topics again

    def request_refresh(self) -> None:
        """A topic that the group reads has changed: the next heartbeat computes the metadata hash again."""
        self._refresh = _Refresh(0, 0)

    def refresh_at(self, at_ms: int, epoch: int) -> None:
        """The hash is good until then, if the group reaches ``epoch``."""
        self._refresh = _Refresh(at_ms, epoch)

    def refresh_is_due(self, now_ms: int) -> bool:
        """Whether the hash has to be computed; also if what was to bump the epoch has failed."""
        return now_ms >= self._refresh.at_ms or self.epoch < self._refresh.epoch

    # What every group has

    @property
    def state(self) -> GroupState:
        """Where the group stands."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CommitCheck | None:
        """The epoch must be the member's own, or at least that at which it got each partition (KIP-1251)."""
        epoch = generation_or_epoch
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch == -1 and not member_id and group_instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and not member.uses_classic_protocol and api_version < _COMMITS_WITH_EPOCH_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Members of the consumer protocol commit with OffsetCommit 9 or later.",
            )
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise stale(member, f"epoch {epoch} is newer than the member's, {member.epoch}.")
        return AssignmentEpochCheck(member, epoch)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise stale(member, f"epoch {member_epoch} is not the member's, {member.epoch}.")

    def check_offset_delete(self) -> None:
        """Always; topics that are subscribed to are refused one by one."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def tombstones(self) -> list[StoredRecord]:
        return group_tombstones(self.group_id, self.members, self.subscriptions.resolved)

    def offsets_expire_from(self, committed_at_ms: int) -> int | None:
        return committed_at_ms


class AssignmentEpochCheck(CommitCheck):
    """The partitions of a commit with an older epoch than its member has (KIP-1251).

    A commit that was sent before the member learned of its new epoch is valid for the partitions that it has
    owned all the time since.
    """

    def __init__(self, member: ConsumerMember, epoch: int) -> None:
        self._member = member
        self._epoch = epoch

    def check(self, topic: str, topic_id: bytes, partition: int) -> None:
        owned_since = self._member.owned_since(topic_id, partition)
        if owned_since is None:
            raise stale(self._member, f"{topic}-{partition} is neither assigned to it nor being revoked.")
        if self._epoch < owned_since:
            raise stale(
                self._member,
                f"epoch {self._epoch} is older than its {topic}-{partition}, got at {owned_since}.",
            )


def stale(member: ConsumerMember, why: str) -> KafkaError:
    """The refusal in the words of the protocol that the member uses."""
    code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, f"Member {member.member_id}: {why}")
