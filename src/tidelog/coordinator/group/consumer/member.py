"""One member of a consumer group: what it subscribes to and what it owns.

Members are immutable; a change puts a new one in the old one's place (``group.ConsumerGroup.put_member``).
All of a member is in records: its subscription in one (type 5), its epoch and partitions in another (type
8).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from tidelog.ids import Uuid
from tidelog.wire.internal_topics.consumer_offsets import ClassicMemberMetadata, ClassicProtocol
from tidelog.wire.messages.consumer_group_heartbeat import TopicPartitions

TopicIdPartitions = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id; a topic without any is not in it."""
OwnedPartitions = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch at which its owner got it (KIP-1251)."""

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""The epoch of a static member that has left for a while: its partitions are kept for it."""


class MemberState(enum.IntEnum):
    """How far a member has come towards its target; the values are those in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up before it may go on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in the latest epoch, but others still hold some of its partitions."""
    UNKNOWN = 127
    """Written by a later release."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        """The state of this number."""
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


class ConsumerMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member; the defaults are those of one that has just been named."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The topics it named itself."""
    regex: str | None = ""
    """The regular expression it subscribes to; none if empty or null."""
    assignor: str | None = None
    assigned: OwnedPartitions = {}
    revoking: OwnedPartitions = {}
    """Partitions that it has been told to give up and still may hold."""
    classic: ClassicMemberMetadata | None = None
    """What JoinGroup told, for a member that uses the classic protocol."""

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether the member speaks JoinGroup rather than ConsumerGroupHeartbeat."""
        return self.classic is not None

    @property
    def classic_protocols(self) -> list[ClassicProtocol]:
        """The client-side assignors that a classic member offers; empty for others."""
        return self.classic.supported_protocols if self.classic is not None else []

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has all that the assignment of this epoch gives it, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def owned_since(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch at which the member got a partition that it has, or is giving up."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(Uuid(topic_id), {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def without_epochs(owned: OwnedPartitions) -> dict[Uuid, frozenset[int]]:
    """Only the partitions."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def at_epoch(partitions: TopicIdPartitions, epoch: int) -> dict[Uuid, dict[int, int]]:
    """The partitions, all got at one epoch."""
    return {topic_id: dict.fromkeys(sorted(indexes), epoch) for topic_id, indexes in partitions.items()}


def reported(topic_partitions: Iterable[TopicPartitions] | None) -> dict[Uuid, frozenset[int]] | None:
    """The partitions that a member says it owns; None if it says nothing."""
    if topic_partitions is None:
        return None
    owned: dict[Uuid, frozenset[int]] = {}
    for each in topic_partitions:
        owned[each.topic_id] = owned.get(each.topic_id, frozenset()).union(each.partitions)
    return owned
