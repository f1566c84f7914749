"""A classic group: its members, its generation, and the state it is in.

``ClassicProtocol`` moves it through its states, ``GroupShard`` keeps it in ``Groups``; CONSUMER groups are
made from it and it from them (KIP-848). Members are in the order they came, so the next leader is the eldest.

Invariants: every static member's instance id leads to a member; ``awaiting_join_count`` is the number of
members whose JoinGroup waits; a group with members has a leader among them; whoever is pending is no member.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Collection

from tidelog.clock import Clock
from tidelog.coordinator.group.classic.member import ClassicMember, Protocols
from tidelog.coordinator.group.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from tidelog.coordinator.group.group import CommitCheck, Group, GroupType
from tidelog.coordinator.reply import Reply
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataKey
from tidelog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tidelog.wire.messages.sync_group import SyncGroupResponse

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


class ClassicGroup(Group):
    """A group whose members assign their partitions themselves, through their leader."""

    type = GroupType.CLASSIC

    def __init__(
        self,
        group_id: str,
        clock: Clock,
        *,
        state: ClassicState = ClassicState.EMPTY,
        generation_id: int = 0,
        protocol_type: str = "",
        protocol_name: str | None = None,
        leader_id: str | None = None,
        state_since_ms: int | None = None,
    ) -> None:
        super().__init__(group_id)
        self._clock = clock
        self._protocol_type = protocol_type
        self.state = state
        self.previous_state = ClassicState.DEAD
        self.state_since_ms: int | None = state_since_ms
        """When it came into its state; None if the log, written by an old Kafka, does not say."""
        self.generation_id = generation_id
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by ``group.instance.id``."""
        self.pending_join: set[str] = set()
        """Ids given out with MEMBER_ID_REQUIRED (KIP-394) whose owners have not come back yet."""
        self.pending_sync: set[str] = set()
        """Members that have been told the generation and have not sent their SyncGroup yet."""
        self.awaiting_join_count = 0
        self.new_member_added = False
        """Whether somebody joined during the initial delay, which is then extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """None where the members' metadata does not tell."""
        self._supported: Counter[str] = Counter()

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
        return not self._protocol_type and self.is_empty and not self.pending_join

    @property
    def protocol_type(self) -> str:
        return self._protocol_type

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers, so that the coordinator can read their metadata."""
        return self._protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: as long as its slowest member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether nobody is missing in the rebalance."""
        return self.awaiting_join_count == len(self.members) and not self.pending_join

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin in this state."""
        return self.state in _MAY_FOLLOW[ClassicState.PREPARING_REBALANCE]

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def is_leader(self, member_id: str) -> bool:
        """Whether this member computes the assignment."""
        return self.leader_id is not None and self.leader_id == member_id

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

    # Members

    def add(self, member: ClassicMember, reply: Reply[JoinGroupResponse] | None = None) -> None:
        """Take in a member, which waits for its ``reply`` if it is joining."""
        if member.group_instance_id is not None:
            if member.group_instance_id in self.static_members:
                raise ValueError(f"{member.group_instance_id} is in group {self.group_id} already")
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self._protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        member.awaiting_join = reply
        if reply is not None:
            self.awaiting_join_count += 1
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Forget a member, or one that was to come; the next member leads if it was the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member.protocols, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        reply: Reply[JoinGroupResponse] | None,
    ) -> None:
        """A member joins again, with what it says now."""
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.awaiting_join_count += (reply is not None) - (member.awaiting_join is not None)
        member.awaiting_join = reply

    def replace_static(self, group_instance_id: str, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member's place to its next incarnation; who still waits as the old one is fenced."""
        old = self.members.pop(old_id)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.settle_join(old, JoinGroupResponse(error_code=fenced, member_id=old_id, protocol_name=None))
        self.settle_sync(old, SyncGroupResponse(error_code=fenced, protocol_name=None))
        new = ClassicMember(
            new_id,
            group_instance_id=old.group_instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[new_id] = new
        if self.is_leader(old_id):
            self.leader_id = new_id
        self.static_members[group_instance_id] = new_id
        return new

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise unless the member is in the group: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise unknown_member(self.group_id, member_id)
            if current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Another member {current} has taken the group.instance.id {group_instance_id}.",
                )
        if member_id not in self.members:
            raise unknown_member(self.group_id, member_id)

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader, if the leader has not; False if there is none."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                logger.info(
                    "Group %s: %s leads, %s did not join", self.group_id, member.member_id, self.leader_id
                )
                self.leader_id = member.member_id
                return True
        return False

    # Waiting requests

    def settle_join(self, member: ClassicMember, response: JoinGroupResponse) -> bool:
        """Answer a member's waiting JoinGroup; False if none waits."""
        reply = member.awaiting_join
        if reply is None:
            return False
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        if not reply.done:
            reply.resolve(response)
        return True

    def settle_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answer a member's waiting SyncGroup; False if none waits."""
        reply = member.awaiting_sync
        if reply is None:
            return False
        member.awaiting_sync = None
        if not reply.done:
            reply.resolve(response)
        return True

    def settle_all(self, error: ErrorCode) -> None:
        """Answer everybody who waits with one error."""
        for member in list(self.members.values()):
            self.settle_join(member, JoinGroupResponse(error_code=error, member_id=member.member_id))
            self.settle_sync(member, SyncGroupResponse(error_code=error))

    # Protocols

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols can be in the group with those that are."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return self._protocol_type == protocol_type and any(
            self._supported[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """The protocol that all members support and most of them want; there must be members."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

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

    def _count_protocols(self, protocols: Protocols, step: int) -> None:
        for name in {protocol.name for protocol in protocols}:
            self._supported[name] += step
            if not self._supported[name]:
                del self._supported[name]

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
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.find_subscribed_topics()
        self.transition_to(
            ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY,
        )
        self.pending_sync.clear()

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
            self.check_member(member_id, group_instance_id)
            if generation_or_epoch != self.generation_id:
                raise illegal_generation(self.group_id, generation_or_epoch, self.generation_id)
        elif not transactional and not self.is_empty:
            raise unknown_member(self.group_id, member_id)
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


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    """The refusal for somebody who is not in the group."""
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of group {group_id}: join it again."
    )


def illegal_generation(group_id: str, told: int, current: int) -> KafkaError:
    """The refusal for a member of another generation."""
    return KafkaError(
        ErrorCode.ILLEGAL_GENERATION, f"Group {group_id} is in generation {current}, not {told}: rejoin it."
    )


def _not_empty(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} has members: stop them first.")
