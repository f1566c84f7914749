"""A classic group: its members, its generation, and the state it is in.

``ClassicProtocol`` moves it through its states and ``GroupShard`` keeps it in ``Groups``; ``consumer`` makes
groups of its own from it, and it from them (KIP-848). It owns its ``GroupMembers``; here are its states and
what follows from them.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Collection
from typing import Final, NamedTuple

from tidelog.clock import Clock
from tidelog.coordinator.group.classic.group_members import GroupMembers, unknown_member
from tidelog.coordinator.group.classic.member import ClassicMember
from tidelog.coordinator.group.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from tidelog.coordinator.group.group import CommitCheck, Group, GroupType
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.scheduling.promise import Promise
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataKey
from tidelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

logger = logging.getLogger(__name__)


class ClassicState(enum.Enum):
    """Where a group stands; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_MAY_FOLLOW = {
    ClassicState.EMPTY: {ClassicState.PREPARING_REBALANCE},
    ClassicState.PREPARING_REBALANCE: {
        ClassicState.STABLE,
        ClassicState.COMPLETING_REBALANCE,
        ClassicState.EMPTY,
    },
    ClassicState.COMPLETING_REBALANCE: {ClassicState.PREPARING_REBALANCE},
    ClassicState.STABLE: {ClassicState.COMPLETING_REBALANCE},
    ClassicState.DEAD: set(ClassicState),
}
_WITH_MEMBERS = frozenset(
    {ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE}
)


class Generation(NamedTuple):
    """What the members of a group have agreed on; without members, what the last ones had."""

    generation_id: int = 0
    protocol_type: str = ""
    protocol_name: str | None = None
    leader_id: str | None = None


NO_GENERATION: Final = Generation()


class ClassicGroup(Group):
    """A group whose members assign their partitions themselves, through their leader."""

    type = GroupType.CLASSIC

    def __init__(
        self,
        group_id: str,
        clock: Clock,
        generation: Generation = NO_GENERATION,
        *,
        state: ClassicState = ClassicState.EMPTY,
        state_since_ms: int | None = None,
    ) -> None:
        super().__init__(group_id)
        self.members = GroupMembers(generation.leader_id)
        self._clock = clock
        self._protocol_type = generation.protocol_type
        self.state = state
        self.previous_state = ClassicState.DEAD
        self.state_since_ms: int | None = state_since_ms
        """When it came into its state; None if the log, written by an old Kafka, does not say."""
        self.generation_id = generation.generation_id
        self.protocol_name = generation.protocol_name
        self.new_member_added = False
        """Whether somebody joined during the initial delay, which is then extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """None where the members' metadata does not tell."""

    @classmethod
    def new(cls, group_id: str, clock: Clock) -> ClassicGroup:
        """A group without members: the beginning of one, or one that only keeps offsets."""
        return cls(group_id, clock, state_since_ms=clock.time_ms())

    # What it is

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def is_dead(self) -> bool:
        """Whether it has been unloaded or deleted."""
        return self.state is ClassicState.DEAD

    @property
    def is_simple(self) -> bool:
        """Whether it only keeps offsets and never had members."""
        return not self._protocol_type and self.is_empty and not self.members.pending_join

    @property
    def protocol_type(self) -> str:
        return self._protocol_type

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers, so that the coordinator can read their metadata."""
        return self._protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin in this state."""
        return self.state in _MAY_FOLLOW[ClassicState.PREPARING_REBALANCE]

    # Members and their protocols

    def add(self, member: ClassicMember, join_answer: Promise[JoinGroupResponse] | None = None) -> None:
        """Take in a member, the first of which says what the group is for."""
        if not self.members:
            self._protocol_type = member.protocol_type
        self.members.add(member, join_answer)

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def listed_members(self) -> list[JoinGroupResponseMember]:
        """All members with their metadata in the chosen protocol, for the leader."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols can be in the group with those that are."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return self._protocol_type == protocol_type and any(map(self.members.supported_by_all, names))

    def find_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members' metadata names; None where it cannot be read."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())
        except WireError as error:
            logger.warning("Group %s: what it subscribes to cannot be read: %s", self.group_id, error)
            return None

    # States

    def transition_to(self, state: ClassicState) -> None:
        """Go on to another state, which must be one that may follow."""
        if self.state not in _MAY_FOLLOW[state]:
            raise ValueError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = self._clock.time_ms()

    def begin_generation(self) -> None:
        """The members that have joined are the next generation; none of them makes the group empty."""
        self.generation_id += 1
        self.protocol_name = self.members.select_protocol() if self.members else None
        self.subscribed_topics = self.find_subscribed_topics()
        self.transition_to(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY)
        self.members.pending_sync.clear()

    # What offsets, listing and deletion ask

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CommitCheck | None:
        if self.is_dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        if generation_or_epoch < 0 and self.is_empty:
            # An admin client, or a consumer that assigns itself: they may, while nobody else does.
            return None
        if generation_or_epoch >= 0 or member_id or group_instance_id is not None:
            self.members.check(member_id, group_instance_id)
            if generation_or_epoch != self.generation_id:
                raise illegal_generation(self.group_id, generation_or_epoch, self.generation_id)
        elif not transactional and not self.is_empty:
            raise unknown_member(member_id)
        if not transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS, f"Group {self.group_id} is rebalancing: rejoin it."
            )
        return None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._check_alive()

    def check_offset_delete(self) -> None:
        self._check_alive()
        if self.state in _WITH_MEMBERS and not self.uses_consumer_protocol:
            raise _not_empty(self.group_id)

    def check_delete(self) -> None:
        self._check_alive()
        if self.state in _WITH_MEMBERS:
            raise _not_empty(self.group_id)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def tombstones(self) -> list[StoredRecord]:
        return [StoredRecord(GroupMetadataKey(group=self.group_id), None)]

    def offsets_expire_from(self, committed_at_ms: int) -> int | None:
        if not self._protocol_type:
            return committed_at_ms
        if self.is_empty:
            return committed_at_ms if self.state_since_ms is None else self.state_since_ms
        if (
            self.uses_consumer_protocol
            and self.subscribed_topics is not None
            and self.state is ClassicState.STABLE
        ):
            return committed_at_ms
        return None

    def _check_alive(self) -> None:
        if self.is_dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")


def illegal_generation(group_id: str, told: int, current: int) -> KafkaError:
    """The refusal for a member of another generation."""
    return KafkaError(
        ErrorCode.ILLEGAL_GENERATION, f"Group {group_id} is in generation {current}, not {told}: rejoin it."
    )


def _not_empty(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} has members: stop them first.")
