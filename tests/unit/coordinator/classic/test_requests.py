"""The requests of classic groups over a connection, in every version that there is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.unit.coordinator.classic.members import subscription

from tidelog.errors import ErrorCode
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
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

OPTIONS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
NOT_ASKED = -(2**31)
DEADLINE_S = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(Path(tmp_path_factory.mktemp("data")), options=OPTIONS) as running:
        with RawClient(running.host, running.port) as client:
            wait_for_coordinators(client)
        yield running


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient(broker.host, broker.port, client_id="raw") as connected:
        yield connected


def wait_for_coordinators(client: RawClient) -> None:
    """Until every shard is there."""
    client.ask(0, FindCoordinatorRequest(key="g"), FindCoordinatorResponse)
    deadline = time.monotonic() + DEADLINE_S
    waiting = {f"g{n}" for n in range(30)}
    while waiting:
        assert time.monotonic() < deadline, f"nobody coordinates {waiting}"
        for group in client.ask(
            6, DescribeGroupsRequest(groups=sorted(waiting)), DescribeGroupsResponse
        ).groups:
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                waiting.discard(group.group_id)


def join(client: RawClient, group_id: str, version: int) -> JoinGroupResponse:
    """Join as the only member, with an id if one is required."""
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    )
    response = client.ask(version, request, JoinGroupResponse)
    if version >= 4:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert response.protocol_name == (None if version >= 7 else "")
        request.member_id = response.member_id
        response = client.ask(version, request, JoinGroupResponse)
    return response


def leave(client: RawClient, group_id: str, member_id: str, version: int) -> LeaveGroupResponse:
    if version < 3:
        request = LeaveGroupRequest(group_id=group_id, member_id=member_id)
    else:
        request = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id)])
    return client.ask(version, request, LeaveGroupResponse)


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_beats_and_leaves_in_every_version(client: RawClient, version: int) -> None:
    group_id = f"all-{version}"
    joined = join(client, group_id, version)
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_id.startswith("raw-")
    assert (joined.leader, joined.generation_id, joined.protocol_name) == (joined.member_id, 1, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert [member.metadata for member in joined.members] == [subscription("t")]

    sync_version = min(version, 5)
    synced = client.ask(
        sync_version,
        SyncGroupRequest(
            group_id=group_id,
            generation_id=1,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        ),
        SyncGroupResponse,
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all")
    assert synced.protocol_name == ("range" if sync_version >= 5 else None)

    beat = HeartbeatRequest(group_id=group_id, generation_id=1, member_id=joined.member_id)
    assert client.ask(min(version, 4), beat, HeartbeatResponse).error_code == ErrorCode.NONE

    leave_version = min(version, 5)
    left = leave(client, group_id, joined.member_id, leave_version)
    assert left.error_code == ErrorCode.NONE
    assert [each.error_code for each in left.members] == ([0] if leave_version >= 3 else [])
    again = leave(client, group_id, joined.member_id, leave_version)
    code = again.members[0].error_code if leave_version >= 3 else again.error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_names_no_protocol(client: RawClient, version: int) -> None:
    request = JoinGroupRequest(
        group_id="", session_timeout_ms=10_000, member_id="m", protocol_type="consumer", protocols=[]
    )
    response = client.ask(version, request, JoinGroupResponse)
    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")
    assert response.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(client: RawClient, version: int) -> None:
    group_id = f"listed-{version}"
    joined = join(client, group_id, 9)
    response = client.ask(version, ListGroupsRequest(), ListGroupsResponse)
    assert response.error_code == ErrorCode.NONE
    (group,) = [group for group in response.groups if group.group_id == group_id]
    assert group.protocol_type == "consumer"
    assert group.group_state == ("CompletingRebalance" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        stable = client.ask(version, ListGroupsRequest(states_filter=["Stable"]), ListGroupsResponse)
        assert group_id not in {group.group_id for group in stable.groups}
    leave(client, group_id, joined.member_id, 5)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(client: RawClient, version: int) -> None:
    group_id = f"described-{version}"
    joined = join(client, group_id, 9)
    request = DescribeGroupsRequest(groups=[group_id, "none"], include_authorized_operations=version >= 3)
    response = client.ask(version, request, DescribeGroupsResponse)
    described = {group.group_id: group for group in response.groups}
    assert described[group_id].group_state == "CompletingRebalance"
    assert [member.member_id for member in described[group_id].members] == [joined.member_id]
    assert described[group_id].members[0].client_host == "/127.0.0.1"
    assert described[group_id].authorized_operations == (GROUP_OPERATIONS if version >= 3 else NOT_ASKED)
    gone = described["none"]
    assert gone.group_state == "Dead"
    assert gone.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert gone.error_message == ("Group none not found." if version >= 6 else None)
    assert gone.authorized_operations == (GROUP_OPERATIONS if 3 <= version < 6 else NOT_ASKED)
    leave(client, group_id, joined.member_id, 5)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_in_every_version(client: RawClient, version: int) -> None:
    group_id = f"deleted-{version}"
    joined = join(client, group_id, 9)
    request = DeleteGroupsRequest(groups_names=[group_id, "none", group_id])

    def delete() -> dict[str, int]:
        response = client.ask(version, request, DeleteGroupsResponse)
        assert len(response.results) == 2, "each name is answered once"
        return {result.group_id: result.error_code for result in response.results}

    assert delete() == {group_id: ErrorCode.NON_EMPTY_GROUP, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    leave(client, group_id, joined.member_id, 5)
    assert delete() == {group_id: ErrorCode.NONE, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    assert delete()[group_id] == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_waiting_join_holds_no_other_connection_up(broker: BrokerThread) -> None:
    with (
        RawClient(broker.host, broker.port) as first,
        RawClient(broker.host, broker.port) as second,
    ):
        old = join(first, "two", 3)
        request = JoinGroupRequest(
            group_id="two",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        second.send_request(ApiKey.JOIN_GROUP, 3, request)
        deadline = time.monotonic() + DEADLINE_S
        code = ErrorCode.NONE
        while code != ErrorCode.REBALANCE_IN_PROGRESS:
            assert time.monotonic() < deadline, "the first member is never told of the second"
            beat = HeartbeatRequest(group_id="two", generation_id=1, member_id=old.member_id)
            code = ErrorCode(first.ask(3, beat, HeartbeatResponse).error_code)
        request.member_id = old.member_id
        rejoined = first.ask(3, request, JoinGroupResponse)
        assert rejoined.generation_id == 2
        assert len(rejoined.members) == 2
        assert second.receive(), "the second is answered with it"


def test_a_group_outlives_its_broker(tmp_path: Path) -> None:
    with BrokerThread(tmp_path, options=OPTIONS) as broker, RawClient(broker.host, broker.port) as client:
        wait_for_coordinators(client)
        joined = join(client, "g", 9)
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        )
        client.ask(5, sync, SyncGroupResponse)
    with BrokerThread(tmp_path, options=OPTIONS) as broker, RawClient(broker.host, broker.port) as client:
        wait_for_coordinators(client)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert client.ask(4, beat, HeartbeatResponse).error_code == ErrorCode.NONE
        sync.assignments = []
        assert client.ask(5, sync, SyncGroupResponse).assignment == b"all"


def test_a_commit_of_very_many_partitions_is_answered_for_each_and_deleted_again(client: RawClient) -> None:
    client.ask(
        7,
        CreateTopicsRequest(topics=[CreatableTopic(name="wide", num_partitions=3, replication_factor=1)]),
        CreateTopicsResponse,
    )
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in range(2000)
    ]
    request = OffsetCommitRequest(
        group_id="wide", topics=[OffsetCommitRequestTopic(name="wide", partitions=partitions)]
    )
    (answered,) = client.ask(8, request, OffsetCommitResponse).topics
    codes = {each.partition_index: each.error_code for each in answered.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {index: 0 if index < 3 else unknown for index in range(2000)}
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="wide", topics=None)])
    (group,) = client.ask(9, asked, OffsetFetchResponse).groups
    (found,) = group.topics
    assert {each.partition_index: each.committed_offset for each in found.partitions} == {0: 0, 1: 1, 2: 2}
    (deleted,) = client.ask(2, DeleteGroupsRequest(groups_names=["wide"]), DeleteGroupsResponse).results
    assert deleted.error_code == 0
    names = [f"nobody-{number}" for number in range(3000)]
    described = client.ask(6, DescribeGroupsRequest(groups=[*names, "wide"]), DescribeGroupsResponse).groups
    assert [each.group_id for each in described] == [*names, "wide"]
    assert {each.error_code for each in described} == {ErrorCode.GROUP_ID_NOT_FOUND}
