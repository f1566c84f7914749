"""One member of a classic group: what it said when it joined, what it was assigned, and whether it waits.

Owned by the ``GroupMembers`` of its group, which count the members that wait: promises are made and settled
through them alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from tidelog.scheduling.promise import Promise
from tidelog.wire.messages.describe_groups import DescribedGroupMember
from tidelog.wire.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse

EMPTY_ASSIGNMENT = b""


class MemberProtocol(NamedTuple):
    """An assignment protocol that a member supports, with what the member tells its leader in it."""

    name: str
    metadata: bytes


Protocols = tuple[MemberProtocol, ...]


def protocols_of(requested: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The protocols of a JoinGroup, most wanted first."""
    return tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in requested)


class ClassicMember(msgspec.Struct, kw_only=True, eq=False):
    """A member by its id."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = EMPTY_ASSIGNMENT
    awaiting_join: Promise[JoinGroupResponse] | None = None
    awaiting_sync: Promise[SyncGroupResponse] | None = None
    is_new: bool = False
    """Joined and not yet part of a generation: the waiting JoinGroup itself may expire."""

    @property
    def is_static(self) -> bool:
        """Whether it has a ``group.instance.id`` (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether it counts as alive without heartbeats, because it waits for the coordinator."""
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it says in one protocol; it must support that protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise LookupError(f"member {self.member_id} does not support protocol {protocol_name}")

    def vote(self, candidates: Collection[str]) -> str:
        """The first of its protocols that is a candidate; one must be."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise LookupError(f"member {self.member_id} supports none of the candidate protocols")

    def described(self, protocol_name: str | None) -> DescribedGroupMember:
        """The member as DescribeGroups shows it; without metadata where there is no protocol."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            member_assignment=self.assignment,
        )
