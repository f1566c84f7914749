"""What groups refuse, untouched by it: unknown members, stale generations and epochs, strangers' protocols.

Spoken with bare requests, because no client library would send them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import TypedDict, Unpack

import pytest
from tests.rigs.group_members.topics import create
from tests.rigs.raw_client import RawClient

from tidelog.errors import ErrorCode
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SUBSCRIPTION = bytes.fromhex("000100000000ffffffff00000000")


class Beat(TypedDict, total=False):
    """What a heartbeat of the consumer protocol may say besides who sends it."""

    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[TopicPartitions] | None


class Session:
    """A connection with the requests of a member, each answered by its error."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.client = RawClient(host, int(port))
        self.topic = topic
        self.group = f"refusals-{uuid.uuid4().hex[:8]}"
        self._wait_for_coordinator()

    def _wait_for_coordinator(self) -> None:
        """The first question makes the internal topic."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        deadline = time.monotonic() + 20
        while True:
            (found,) = self.client.ask(4, request, FindCoordinatorResponse).coordinators
            if found.error_code == 0:
                probe = ErrorCode(self.heartbeat("nobody", 1))
                if probe in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                    return
            assert time.monotonic() < deadline, ErrorCode(found.error_code)

    def join(
        self, member: str = "", *, protocol: str = "range", kind: str = "consumer", session_ms: int = 10_000
    ) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=SUBSCRIPTION)],
        )
        return self.client.ask(9, request, JoinGroupResponse)

    def joined(self) -> JoinGroupResponse:
        """The only member of a stable group."""
        given = self.join()
        assert ErrorCode(given.error_code) is ErrorCode.MEMBER_ID_REQUIRED
        answer = self.join(given.member_id)
        assert (answer.error_code, answer.leader) == (0, given.member_id)
        assert self.sync(answer.member_id, answer.generation_id) is ErrorCode.NONE
        return answer

    def sync(self, member: str, generation: int, *, protocol: str = "range") -> ErrorCode:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"")],
        )
        return ErrorCode(self.client.ask(5, request, SyncGroupResponse).error_code)

    def heartbeat(self, member: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=member)
        return ErrorCode(self.client.ask(4, request, HeartbeatResponse).error_code)

    def leave(self, member: str) -> ErrorCode:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=member)])
        answer = self.client.ask(5, request, LeaveGroupResponse)
        return ErrorCode(answer.error_code or answer.members[0].error_code)

    def commit(self, member: str, generation: int, *, offset: int = 1, metadata: str = "") -> ErrorCode:
        place = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[place])],
        )
        return ErrorCode(self.client.ask(9, request, OffsetCommitResponse).topics[0].partitions[0].error_code)

    def committed(self) -> list[int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=None)])
        (group,) = self.client.ask(9, request, OffsetFetchResponse).groups
        return [each.committed_offset for topic in group.topics for each in topic.partitions]

    def beat(self, member: str, epoch: int, **fields: Unpack[Beat]) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat of the consumer protocol; with epoch 0 it joins."""
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": 10_000,
                "subscribed_topic_names": [self.topic],
                "topic_partitions": [],
                **fields,
            }
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=member, member_epoch=epoch, **fields
        )
        return self.client.ask(1, request, ConsumerGroupHeartbeatResponse)


@pytest.fixture(scope="module")
def topic(group_bootstrap: str) -> str:
    name = f"refusals-{uuid.uuid4().hex[:8]}"
    create(group_bootstrap, name, 1)
    return name


@pytest.fixture
def session(group_bootstrap: str, topic: str) -> Iterator[Session]:
    session = Session(group_bootstrap, topic)
    with session.client:
        yield session


def test_unknown_members_are_told_so(session: Session) -> None:
    session.joined()
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert session.heartbeat("nobody", 1) is unknown
    assert session.sync("nobody", 1) is unknown
    assert session.leave("nobody") is unknown
    assert session.commit("nobody", 1) is unknown
    assert ErrorCode(session.join("nobody").error_code) is unknown
    assert session.committed() == []


@pytest.mark.parametrize("away", [-1, 1])
def test_another_generation_is_refused(session: Session, away: int) -> None:
    member = session.joined()
    stale = ErrorCode.ILLEGAL_GENERATION
    assert session.heartbeat(member.member_id, member.generation_id + away) is stale
    assert session.sync(member.member_id, member.generation_id + away) is stale
    assert session.commit(member.member_id, member.generation_id + away) is stale
    assert session.committed() == []
    assert session.heartbeat(member.member_id, member.generation_id) is ErrorCode.NONE
    assert session.commit(member.member_id, member.generation_id) is ErrorCode.NONE
    assert session.committed() == [1]


def test_a_commit_without_a_member_is_for_empty_groups(session: Session) -> None:
    assert session.commit("", -1, offset=7) is ErrorCode.NONE
    member = session.joined()
    assert session.commit("", -1, offset=8) is ErrorCode.UNKNOWN_MEMBER_ID
    assert session.committed() == [7]
    assert session.leave(member.member_id) is ErrorCode.NONE
    assert session.commit("", -1, offset=9) is ErrorCode.NONE
    assert session.commit("ghost", 3, offset=9) is ErrorCode.UNKNOWN_MEMBER_ID
    assert session.committed() == [9]


def test_metadata_beyond_the_limit_is_refused(session: Session) -> None:
    assert session.commit("", -1, metadata="x" * 4096) is ErrorCode.NONE
    assert session.commit("", -1, offset=2, metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert session.committed() == [1]


def test_a_stranger_with_another_protocol_is_not_let_in(session: Session) -> None:
    member = session.joined()
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ErrorCode(session.join(kind="connect").error_code) is inconsistent
    assert ErrorCode(session.join(protocol="roundrobin").error_code) is inconsistent
    assert session.sync(member.member_id, member.generation_id, protocol="roundrobin") is inconsistent
    assert session.heartbeat(member.member_id, member.generation_id) is ErrorCode.NONE


@pytest.mark.parametrize("session_ms", [1, 10_000_000])
def test_a_session_beyond_the_brokers_limits_is_refused(session: Session, session_ms: int) -> None:
    refused = session.join(session_ms=session_ms)
    assert ErrorCode(refused.error_code) is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_without_a_name_has_no_members(session: Session) -> None:
    session.group = ""
    assert ErrorCode(session.join().error_code) is ErrorCode.INVALID_GROUP_ID
    assert session.heartbeat("nobody", 1) is ErrorCode.INVALID_GROUP_ID


def test_the_consumer_protocol_fences_by_epoch(session: Session) -> None:
    member = str(uuid.uuid4())
    first = session.beat(member, 0)
    assert first.error_code == 0
    epoch = first.member_epoch
    assert ErrorCode(session.beat(member, 7).error_code) is ErrorCode.FENCED_MEMBER_EPOCH
    assert ErrorCode(session.beat("nobody", 1).error_code) is ErrorCode.UNKNOWN_MEMBER_ID
    assert session.commit(member, 7) is ErrorCode.STALE_MEMBER_EPOCH
    assert session.commit("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert session.committed() == []
    assert session.commit(member, epoch) is ErrorCode.NONE
    assert session.beat(member, -1).member_epoch == -1
    assert ErrorCode(session.beat(member, epoch).error_code) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_consumer_protocol_refuses_what_makes_no_sense(session: Session) -> None:
    member = str(uuid.uuid4())
    invalid = ErrorCode.INVALID_REQUEST
    assert ErrorCode(session.beat("", 0).error_code) is invalid
    assert ErrorCode(session.beat(member, 0, rebalance_timeout_ms=-1).error_code) is invalid
    assert ErrorCode(session.beat(member, 0, subscribed_topic_names=None).error_code) is invalid
    assert ErrorCode(session.beat(member, 0, topic_partitions=None).error_code) is invalid
    assert ErrorCode(session.beat(member, -3).error_code) is invalid
    unsupported = session.beat(member, 0, server_assignor="magic")
    assert ErrorCode(unsupported.error_code) is ErrorCode.UNSUPPORTED_ASSIGNOR
    regex = session.beat(member, 0, subscribed_topic_regex="[a")
    assert ErrorCode(regex.error_code) is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_classic_group_is_none_of_the_consumer_protocols(session: Session) -> None:
    session.joined()
    request = ConsumerGroupDescribeRequest(group_ids=[session.group])
    (group,) = session.client.ask(1, request, ConsumerGroupDescribeResponse).groups
    assert ErrorCode(group.error_code) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_of_the_consumer_protocol_is_no_classic_one(session: Session) -> None:
    member = str(uuid.uuid4())
    epoch = session.beat(member, 0).member_epoch
    assert session.heartbeat(member, epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert session.sync(member, epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert session.beat(member, epoch).error_code == 0
