"""Who is in a classic group: members, those to come, their leader, and the requests of theirs that wait.

Members are in the order they came, so the next leader is the eldest.

Invariants: every static member's instance id leads to a member; ``awaiting_join_count`` is the number of
members whose JoinGroup waits; if there are members one of them leads; whoever is pending is no member.

Difference: a member that asks again while its request waits gets REBALANCE_IN_PROGRESS for the first one,
which Kafka never answers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from tidelog.coordinator.group.classic.member import ClassicMember, Protocols
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)


class GroupMembers(Mapping[str, ClassicMember]):
    """The members of one group, by id."""

    def __init__(self, leader_id: str | None = None) -> None:
        self.leader_id = leader_id
        self._by_id: dict[str, ClassicMember] = {}
        self.by_instance_id: dict[str, str] = {}
        """Member ids by ``group.instance.id``."""
        self.pending_join: set[str] = set()
        """Ids given out with MEMBER_ID_REQUIRED (KIP-394) whose owners have not come back yet."""
        self.pending_sync: set[str] = set()
        """Members that have been told the generation and have not sent their SyncGroup yet."""
        self.awaiting_join_count = 0
        self._supported: Counter[str] = Counter()

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._by_id[member_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: as long as its slowest member asks for."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether nobody is missing in the rebalance."""
        return self.awaiting_join_count == len(self._by_id) and not self.pending_join

    def is_leader(self, member_id: str) -> bool:
        """Whether this member computes the assignment."""
        return self.leader_id is not None and self.leader_id == member_id

    # Members

    def add(self, member: ClassicMember, join_answer: Promise[JoinGroupResponse] | None = None) -> None:
        """Take in a member, which waits for its ``join_answer`` if it is joining."""
        if member.group_instance_id is not None:
            if member.group_instance_id in self.by_instance_id:
                raise ValueError(f"{member.group_instance_id} is in the group already")
            self.by_instance_id[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._by_id[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        member.awaiting_join = join_answer
        if join_answer is not None:
            self.awaiting_join_count += 1
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Forget a member, or one that was to come; the next member leads if it was the leader."""
        member = self._by_id.pop(member_id, None)
        if member is not None:
            self._count_protocols(member.protocols, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.by_instance_id.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self._by_id), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        join_answer: Promise[JoinGroupResponse] | None,
    ) -> None:
        """A member joins again, with what it says now; an earlier JoinGroup of it waits no longer."""
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.settle_join(
            member,
            JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id),
        )
        if join_answer is not None:
            member.awaiting_join = join_answer
            self.awaiting_join_count += 1

    def await_sync(self, member: ClassicMember, sync_answer: Promise[SyncGroupResponse]) -> None:
        """A member waits for its assignment."""
        self.settle_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = sync_answer

    def replace_static(self, group_instance_id: str, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member's place to its next incarnation; who still waits as the old one is fenced."""
        old = self._by_id.pop(old_id)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.settle_join(old, JoinGroupResponse(error_code=fenced, member_id=old_id, protocol_name=None))
        self.settle_sync(old, SyncGroupResponse(error_code=fenced, protocol_name=None))
        new = msgspec.structs.replace(old, member_id=new_id, is_new=False)
        self._by_id[new_id] = new
        if self.is_leader(old_id):
            self.leader_id = new_id
        self.by_instance_id[group_instance_id] = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        return new

    def check(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise unless the member is in the group: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if group_instance_id is not None:
            current = self.by_instance_id.get(group_instance_id)
            if current is None:
                raise unknown_member(member_id)
            if current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Another member {current} has taken the group.instance.id {group_instance_id}.",
                )
        if member_id not in self._by_id:
            raise unknown_member(member_id)

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader, if the leader has not; False if there is none."""
        if self.leader_id is None:
            return False
        if self._by_id[self.leader_id].awaiting_join is not None:
            return True
        for member in self._by_id.values():
            if member.awaiting_join is not None:
                logger.info("%s leads now, because %s did not join", member.member_id, self.leader_id)
                self.leader_id = member.member_id
                return True
        return False

    # Waiting requests

    def settle_join(self, member: ClassicMember, response: JoinGroupResponse) -> bool:
        """Answer a member's waiting JoinGroup; False if none waits."""
        join_answer = member.awaiting_join
        if join_answer is None:
            return False
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        if not join_answer.done:
            join_answer.resolve(response)
        return True

    def settle_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answer a member's waiting SyncGroup; False if none waits."""
        sync_answer = member.awaiting_sync
        if sync_answer is None:
            return False
        member.awaiting_sync = None
        if not sync_answer.done:
            sync_answer.resolve(response)
        return True

    def settle_all(self, error: ErrorCode) -> None:
        """Answer everybody who waits with one error."""
        for member in list(self._by_id.values()):
            self.settle_join(member, JoinGroupResponse(error_code=error, member_id=member.member_id))
            self.settle_sync(member, SyncGroupResponse(error_code=error))

    # Protocols

    def supported_by_all(self, protocol_name: str) -> bool:
        """Whether every member supports a protocol."""
        return self._supported[protocol_name] == len(self._by_id)

    def select_protocol(self) -> str:
        """The protocol that all members support and most of them want; there must be members."""
        candidates = {name for name, count in self._supported.items() if count == len(self._by_id)}
        votes = Counter(member.vote(candidates) for member in self._by_id.values())
        return votes.most_common(1)[0][0]

    def _count_protocols(self, protocols: Protocols, step: int) -> None:
        for name in {protocol.name for protocol in protocols}:
            self._supported[name] += step
            if not self._supported[name]:
                del self._supported[name]


def unknown_member(member_id: str) -> KafkaError:
    """The refusal for somebody who is not in the group."""
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of the group: join it again.")
