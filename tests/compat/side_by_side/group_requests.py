"""Requests of the classic group protocol, and groups that are brought to a state first.

Who is in a group is told by ``Member``: somebody with a connection of his own, since a join or a sync may
wait for the others. What a broker answers to each request, and the group as DescribeGroups shows it
afterwards, are what cases compare.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.compat.side_by_side.side import TIMEOUT_S, Side

from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import encode
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.schema import Payload

JOIN_VERSIONS = range(10)
MEMBER_ID_REQUIRED_SINCE = 4
PROTOCOL_TYPE_SINCE = 7
SESSION_MS = 30_000


def group_of(side: Side, stem: str = "g") -> str:
    """The name under which this case knows a group."""
    return f"{side.prefix}-{stem}"


def subscription(*topics: str, version: int = 1) -> bytes:
    """What a consumer says of itself to the group's leader."""
    body = encode(ConsumerProtocolSubscription(topics=list(topics)), version)
    return version.to_bytes(2, "big") + bytes(body)


METADATA = subscription("read-by-members")
"""A member's metadata unless said otherwise: Kafka fails over a consumer's that it cannot read."""


def protocols(*named: tuple[str, bytes]) -> list[JoinGroupRequestProtocol]:
    """A member's protocols, the preferred one first."""
    return [JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in named]


def join_request(group_id: str, member_id: str = "", /, **more: object) -> JoinGroupRequest:
    """A request to join, right unless ``more`` says otherwise."""
    fields: dict[str, object] = {
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "protocol_type": "consumer",
        "protocols": protocols(("range", METADATA)),
    }
    return JoinGroupRequest(group_id=group_id, member_id=member_id, **{**fields, **more})  # type: ignore[arg-type]


def sync_request(
    group_id: str,
    generation: int,
    member_id: str,
    *assignments: tuple[str, bytes],
    **more: str | None,
) -> SyncGroupRequest:
    """A request for one's part, with everybody's where the leader asks."""
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=who, assignment=part) for who, part in assignments],
        **more,
    )


def heartbeat_request(
    group_id: str, generation: int, member_id: str, instance_id: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )


def leave_request(group_id: str, *members: tuple[str, str | None], version: int = 5) -> LeaveGroupRequest:
    """A request to leave: one member by id, or since version 3 several by (member id, instance id)."""
    if version < 3:
        return LeaveGroupRequest(group_id=group_id, member_id=members[0][0])
    named = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
    return LeaveGroupRequest(group_id=group_id, members=named)


def settled(side: Side) -> None:
    """Wait until all that was written before is committed: Kafka shows groups as of the last commit."""
    place = OffsetCommitRequestTopic(
        name="__consumer_offsets", partitions=[OffsetCommitRequestPartition(partition_index=0)]
    )
    side.expect(9, OffsetCommitRequest(group_id="settled", topics=[place]))


def described(side: Side, *group_ids: str, version: int = 6) -> object:
    """Groups as DescribeGroups shows them, once nothing moves any more."""
    before = None
    while (found := _described(side, group_ids, version)) != before:
        before = found
        time.sleep(0.01)
    return found


def _described(side: Side, group_ids: Sequence[str], version: int) -> object:
    """With the members in the order of their metadata."""
    settled(side)
    answer = side.ask(version, DescribeGroupsRequest(groups=list(group_ids)))
    if isinstance(answer, dict):
        for group in answer["groups"]:
            group["members"].sort(key=lambda each: (each["member_metadata"], each["member_id"]))
    return answer


def state_of(side: Side, group_id: str) -> str:
    """The word DescribeGroups has for a group's state."""
    response = side.expect(5, DescribeGroupsRequest(groups=[group_id]))
    return str(response.groups[0].group_state)  # type: ignore[attr-defined]


def wait_for_state(side: Side, group_id: str, *wanted: str, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until the group is in one of the states."""
    deadline = time.monotonic() + timeout_s
    while (state := state_of(side, group_id)) not in wanted:
        assert time.monotonic() < deadline, f"{side.name}: {group_id} is {state}, not {' or '.join(wanted)}"
        time.sleep(0.01)


@dataclass
class Member:
    """Somebody who is in a group, or on the way into it."""

    side: Side
    group_id: str
    metadata: bytes = METADATA
    instance_id: str | None = None
    version: int = 9
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    protocol_type: str | None = "consumer"
    protocol_name: str | None = "range"

    def request(self, **more: object) -> JoinGroupRequest:
        """What this member sends to join."""
        fields: dict[str, object] = {"protocols": protocols(("range", self.metadata))}
        if self.version >= 5:
            fields["group_instance_id"] = self.instance_id
        return join_request(self.group_id, self.member_id, **{**fields, **more})

    def take_an_id(self, **more: object) -> Member:
        """The first round since version 4: ask, be refused, and know one's id."""
        if self.version >= MEMBER_ID_REQUIRED_SINCE and self.instance_id is None and not self.member_id:
            response = self.side.expect(self.version, self.request(**more))
            found = response.error_code  # type: ignore[attr-defined]
            assert found == ErrorCode.MEMBER_ID_REQUIRED, found
            self._is_called(response.member_id)  # type: ignore[attr-defined]
        return self

    def _is_called(self, member_id: str) -> None:
        self.member_id = member_id
        self.side.text(member_id)

    def send_join(self, **more: object) -> Member:
        """Ask to join and do not wait for the others."""
        self.take_an_id(**more)
        self.side.send(self.version, self.request(**more))
        return self

    def receive_join(self) -> Payload | str:
        """The answer to the join that was sent, which says who one is."""
        found = self.side.receive(ApiKey.JOIN_GROUP, self.version)
        if not isinstance(found, str) and found.error_code == 0:  # type: ignore[attr-defined]
            self._is_in(found)
        return found

    def _is_in(self, answer: Payload) -> None:
        assert isinstance(answer, JoinGroupResponse)
        self._is_called(answer.member_id)
        self.generation = answer.generation_id
        self.leader = answer.leader
        self.protocol_name = answer.protocol_name
        if self.version >= PROTOCOL_TYPE_SINCE:
            self.protocol_type = answer.protocol_type

    def await_join(self) -> object:
        """The same as plain data."""
        return self.shown(self.receive_join())

    def shown(self, found: Payload | str) -> object:
        """An answer to a join as plain data, the members in the order of their metadata."""
        if isinstance(found, str):
            return found
        answer = self.side.plain(found, self.version)
        assert isinstance(answer, dict)
        answer["members"].sort(key=lambda each: (each["metadata"], each["member_id"]))
        return answer

    def join(self, **more: object) -> object:
        return self.send_join(**more).await_join()

    def try_to_join(self, **more: object) -> list[object]:
        """The answers until one is neither in need of an id nor in."""
        first = self.side.ask_raw(self.version, self.request(**more))
        seen = [self.shown(first)]
        if not isinstance(first, str):
            if first.error_code == ErrorCode.MEMBER_ID_REQUIRED:  # type: ignore[attr-defined]
                self._is_called(first.member_id)  # type: ignore[attr-defined]
                seen.append(self.join(**more))
            elif first.error_code == 0:  # type: ignore[attr-defined]
                self._is_in(first)
        return seen

    def sync(self, *assignments: tuple[str, bytes], version: int = 5, **more: str | None) -> object:
        return self.side.ask(version, self.sync_request(*assignments, **more))

    def sync_request(self, *assignments: tuple[str, bytes], **more: str | None) -> SyncGroupRequest:
        """With the protocol that was chosen, without which version 5 is refused."""
        named = {"protocol_type": self.protocol_type, "protocol_name": self.protocol_name, **more}
        return sync_request(self.group_id, self.generation, self.member_id, *assignments, **named)

    def heartbeat(self, version: int = 4) -> object:
        return self.side.ask(version, heartbeat_request(self.group_id, self.generation, self.member_id))

    def wait_until_told_to_rejoin(self) -> None:
        """Wait until a heartbeat says that the others are joining."""
        deadline = time.monotonic() + TIMEOUT_S
        request = heartbeat_request(self.group_id, self.generation, self.member_id)
        while (
            self.side.expect(4, request).error_code  # type: ignore[attr-defined]
            != ErrorCode.REBALANCE_IN_PROGRESS
        ):
            assert time.monotonic() < deadline, f"{self.side.name}: no rebalance of {self.group_id}"
            time.sleep(0.005)

    def leave(self, version: int = 5) -> object:
        return self.side.ask(version, leave_request(self.group_id, (self.member_id, None), version=version))


def alone(side: Side, group_id: str | None = None, **more: object) -> Member:
    """A group of one member, stable."""
    member = Member(side, group_id or group_of(side), **more)  # type: ignore[arg-type]
    member.join()
    assert member.generation > 0, f"{side.name}: could not join"
    member.sync((member.member_id, b"all of it"))
    wait_for_state(side, member.group_id, "Stable")
    return member


def together(side: Side, group_id: str | None = None, count: int = 2, **more: object) -> list[Member]:
    """A group of several members, stable; the first one leads, each has ``b"part <n>"``."""
    name = group_id or group_of(side)
    first = alone(side, name, metadata=subscription("topic-0"), **more)
    members = [first]
    for number in range(1, count):
        metadata = subscription(f"topic-{number}")
        members.append(Member(side.another(), name, metadata=metadata, **more))  # type: ignore[arg-type]
    rebalance(members[:1], members[1:])
    return members


def rebalance(present: Sequence[Member], new: Sequence[Member]) -> list[object]:
    """New members join, those who are there join again, the first assigns; the answers to all joins."""
    for member in new:
        member.take_an_id()
    for member in new:
        member.send_join()
    for member in present:
        member.wait_until_told_to_rejoin()
    for member in present:
        member.send_join()
    everybody = [*present, *new]
    found = [member.receive_join() for member in everybody]
    answers = [member.shown(answer) for member, answer in zip(everybody, found, strict=True)]
    shares = [(member.member_id, b"part %d" % number) for number, member in enumerate(everybody)]
    leader = next(member for member in everybody if member.member_id == member.leader)
    leader.sync(*shares)
    for member in everybody:
        if member is not leader:
            member.sync()
    wait_for_state(leader.side, leader.group_id, "Stable")
    return answers
