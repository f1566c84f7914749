"""Groups as :class:`AsyncAdmin` hands them out: listings, descriptions, offsets, lag.

As in ``client.resources``, a result carries its own ``error``; with one, its other fields say nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.client.metadata import Node
from tidelog.client.resources import Outcome
from tidelog.errors import KafkaError, TidelogError
from tidelog.ids import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition


class GroupType(enum.StrEnum):
    """Which protocol a group speaks."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"
    UNKNOWN = "Unknown"


class GroupState(enum.StrEnum):
    """What a group does; the names are those on the wire."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    EMPTY = "Empty"
    DEAD = "Dead"
    NOT_READY = "NotReady"
    UNKNOWN = "Unknown"

    @property
    def is_rebalancing(self) -> bool:
        return self in (
            GroupState.PREPARING_REBALANCE,
            GroupState.COMPLETING_REBALANCE,
            GroupState.ASSIGNING,
            GroupState.RECONCILING,
        )


def group_type(text: str) -> GroupType:
    """The type that a broker names, whatever its case; later brokers' types read as ``UNKNOWN``."""
    return next((each for each in GroupType if each.lower() == text.lower()), GroupType.UNKNOWN)


def group_state(text: str) -> GroupState:
    """The state that a broker names, whatever its case; later brokers' states read as ``UNKNOWN``."""
    return next((each for each in GroupState if each.lower() == text.lower()), GroupState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in a list; ``type`` and ``state`` are unknown on brokers before Kafka 3.8 and 2.6."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType
    coordinator: Node

    @property
    def is_simple(self) -> bool:
        """Whether the group has committed offsets only: nobody ever joined it."""
        return not self.protocol_type and self.type in (GroupType.CLASSIC, GroupType.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ListedGroups:
    """The groups of all brokers that answered, by id, and why the others did not."""

    groups: tuple[GroupListing, ...]
    errors: tuple[TidelogError, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group.

    ``assignment`` and ``topics`` are None where the group is no consumers' group and they cannot be read.
    ``target``, ``epoch`` and ``upgraded`` (joined by the new protocol, in a group that knows both) are told
    for consumer groups only.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    topic_regex: str | None = None
    assignment: tuple[TopicPartition, ...] | None = None
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription(Outcome):
    """One group: what it does, who coordinates it, who is in it. The epochs are a consumer group's."""

    group_id: str
    type: GroupType = GroupType.UNKNOWN
    state: GroupState = GroupState.UNKNOWN
    protocol_type: str = ""
    assignor: str = ""
    coordinator: Node | None = None
    members: tuple[MemberDescription, ...] = ()
    epoch: int | None = None
    assignment_epoch: int | None = None
    error: KafkaError | None = None

    @property
    def is_active(self) -> bool:
        """Whether somebody is in it, so that only members may change its offsets."""
        return self.state not in (GroupState.EMPTY, GroupState.DEAD)


@dataclass(frozen=True, slots=True)
class GroupResult(Outcome):
    """What became of one group."""

    group_id: str
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class MemberResult(Outcome):
    """What became of one member that was removed; static ones go by their ``instance_id``."""

    member_id: str
    instance_id: str | None = None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class PartitionResult(Outcome):
    """What became of one partition."""

    partition: TopicPartition
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset(Outcome):
    """Where a group stands in one partition; -1 with an error."""

    partition: TopicPartition
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class GroupOffsets(Outcome):
    """All that a group has committed; empty for a group that does not exist."""

    group_id: str
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition.

    ``committed`` is None where nothing is committed, ``end_offset`` where no leader could tell it
    (``problem`` says why), ``member`` where the partition is assigned to nobody.
    """

    partition: TopicPartition
    committed: int | None
    leader_epoch: int | None
    end_offset: int | None
    member: MemberDescription | None = None
    problem: KafkaError | None = None

    @property
    def lag(self) -> int | None:
        """Records still to read; negative where the log was cut or its topic made anew."""
        if self.committed is None or self.end_offset is None:
            return None
        return self.end_offset - self.committed


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group with every partition that is assigned to a member or has a committed offset, in order."""

    group: GroupDescription
    partitions: tuple[PartitionLag, ...] = ()

    @property
    def total(self) -> int:
        """Records still to read in all partitions whose lag is known."""
        return sum(max(each.lag or 0, 0) for each in self.partitions)

    @property
    def unknown(self) -> int:
        """Partitions whose lag is not known."""
        return sum(each.lag is None for each in self.partitions)
