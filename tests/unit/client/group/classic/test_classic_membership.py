"""Membership in a classic group before a scripted coordinator, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

import pytest
from tests.unit.client.group import virtual_time
from tests.unit.client.group.scripted_group import Recorder, Rig, committed

from tidelog.client._network.retry import Deadline
from tidelog.client.consumer.errors import IllegalStateError
from tidelog.client.errors import AuthenticationError, ConnectionLostError, RequestTimeoutError
from tidelog.client.group._classic.consumer_protocol import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.group.assignor import Assignment, Assignor, RebalanceProtocol, Subscription
from tidelog.client.group.assignors.range import RangeAssignor
from tidelog.client.group.errors import CommitFailedError
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.subscription._subscription_state import SubscriptionPattern
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

Test = Callable[[Callable[[Rig], Awaitable[None]]], None]
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a story with a rig in virtual time; the topic ``t`` has two partitions."""

    def tell(story: Callable[[Rig], Awaitable[None]], *topics: str, **options: object) -> None:
        async def main() -> None:
            async with Rig(*(topics or ("t",)), **options) as rig:
                rig.cluster.set_topics(t=2, u=1)
                await story(rig)

        virtual_time.run(main(), monkeypatch)

    return tell


Scene = Callable[..., None]


def refusal(code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code)


def beat(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


def given(*partitions: TopicPartition) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=encode_assignment(Assignment(partitions)))


def positions(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("t", int(name[1:])): OffsetAndMetadata(at) for name, at in offsets.items()}


# Joining


def test_a_member_joins_with_the_id_that_it_is_given(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="mine")
        rig.cluster.script(JoinGroupRequest, required)
        assert await rig.poll()
        first, second = rig.cluster.requests(JoinGroupRequest)
        assert (first.member_id, second.member_id) == ("", "mine")
        assert first.rebalance_timeout_ms == 300_000
        assert first.session_timeout_ms == 45_000
        assert rig.events == ["assigned t-0 t-1"]
        metadata = rig.membership.group_metadata()
        assert (metadata.generation_id, metadata.member_id) == (1, "mine")

    scene(story)


def test_assignors_are_offered_in_order_with_what_is_owned_and_the_rack(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        await rig.poll_for(4)
        (offered,) = rig.cluster.requests(JoinGroupRequest)[1].protocols
        assert offered.name == "cooperative-sticky"
        subscription = decode_subscription(offered.metadata, "m")
        assert subscription.owned_partitions == (T0, T1)
        assert (subscription.generation_id, subscription.rack_id) == (1, "r1")

    scene(story, partition_assignment_strategy="cooperative-sticky", client_rack="r1")


def test_errors_that_pass_are_waited_out(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.script(FindCoordinatorRequest, _no_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        rig.cluster.script(
            JoinGroupRequest,
            refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            refusal(ErrorCode.NOT_COORDINATOR),
            ConnectionLostError("gone"),
        )
        assert await rig.poll()
        # Twice before the first answer, once after NOT_COORDINATOR, once after the lost connection.
        assert len(rig.cluster.requests(FindCoordinatorRequest)) == 4
        assert rig.events == ["assigned t-0 t-1"]

    scene(story)


def _no_coordinator(code: ErrorCode) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=-1, error_code=code)])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_errors_that_stay_are_raised(scene: Scene, code: ErrorCode) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.script(JoinGroupRequest, refusal(code))
        with pytest.raises(KafkaError) as raised:
            await rig.poll()
        assert raised.value.code is code

    scene(story)


def test_a_coordinator_that_may_not_be_looked_for_is_raised(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.script(FindCoordinatorRequest, _no_coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        with pytest.raises(KafkaError) as raised:
            await rig.poll()
        assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED

    scene(story)


def test_nothing_hangs_when_nobody_answers(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.script(FindCoordinatorRequest, *[ConnectionLostError("no broker")] * 1000)
        assert not await rig.poll(3)
        with pytest.raises(RequestTimeoutError, match="no broker"):
            await rig.membership.fetch_committed([T0], Deadline(2000))

    scene(story)


def test_a_rebalance_that_is_overtaken_is_joined_again_without_telling_the_listener(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.script(SyncGroupRequest, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        assert await rig.poll()
        assert len(rig.cluster.requests(JoinGroupRequest)) == 2
        assert rig.events == ["assigned t-0 t-1"]

    scene(story)


# Heartbeats


def test_heartbeats_go_on_while_the_application_works(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        await virtual_time.later(31)
        beats = rig.cluster.requests(HeartbeatRequest)
        assert len(beats) == 10
        assert {(each.generation_id, each.member_id) for each in beats} == {(1, "member-1")}

    scene(story)


def test_a_member_that_does_not_poll_leaves_and_joins_again_when_it_polls(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        await virtual_time.later(12)
        (leave,) = rig.cluster.requests(LeaveGroupRequest)
        assert leave.members[0].reason == "consumer poll timeout has expired."
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            await rig.membership.commit(positions(p0=1), Deadline(1000))
        quiet = len(rig.cluster.requests(HeartbeatRequest))
        await virtual_time.later(60)
        assert len(rig.cluster.requests(HeartbeatRequest)) == quiet
        assert rig.membership.needs_poll
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1", "lost t-0 t-1", "assigned t-0 t-1"]

    scene(story, max_poll_interval_ms=10_000, session_timeout_ms=6000)


def test_a_poll_that_waits_for_records_is_no_reason_to_leave(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll_for(60)
        assert not rig.cluster.requests(LeaveGroupRequest)
        assert rig.events == ["assigned t-0 t-1"]

    scene(story, max_poll_interval_ms=2000, session_timeout_ms=2000, heartbeat_interval_ms=1500)


def test_a_heartbeat_tells_of_a_rebalance(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        await virtual_time.later(3.5)
        assert rig.membership.needs_poll
        assert rig.woken.is_set()
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1", "revoked t-0 t-1", "assigned t-0 t-1"]
        again = rig.cluster.requests(JoinGroupRequest)[1]
        assert (again.member_id, again.reason) == ("member-1", "group is already rebalancing")
        assert rig.membership.group_metadata().generation_id == 2

    scene(story)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "member-1")]
)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_that_is_thrown_out_loses_its_partitions(
    scene: Scene, code: ErrorCode, member_id: str, strategy: str
) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(HeartbeatRequest, beat(code))
        await virtual_time.later(3.5)
        # Offsets of a transaction must be refused for the old generation, not taken from nobody.
        assert rig.membership.group_metadata().generation_id == 1
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1", "lost t-0 t-1", "assigned t-0 t-1"]
        assert rig.cluster.requests(JoinGroupRequest)[1].member_id == member_id

    scene(story, partition_assignment_strategy=strategy)


@pytest.mark.parametrize("request_type", [JoinGroupRequest, SyncGroupRequest])
def test_a_cooperative_member_that_is_thrown_out_while_it_joins_loses_its_partitions(
    scene: Scene, request_type: type[JoinGroupRequest] | type[SyncGroupRequest]
) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        response = JoinGroupResponse if request_type is JoinGroupRequest else SyncGroupResponse
        rig.cluster.script(request_type, response(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        await rig.poll_for(4)
        assert rig.events == ["assigned t-0 t-1", "lost t-0 t-1", "assigned t-0 t-1"]

    scene(story, partition_assignment_strategy="cooperative-sticky")


def test_a_fenced_static_member_is_told_so_and_does_not_take_its_name_back(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.FENCED_INSTANCE_ID))
        await virtual_time.later(4)
        joins = len(rig.cluster.requests(JoinGroupRequest))
        for _ in range(3):
            with pytest.raises(KafkaError, match="'one'") as raised:
                await rig.poll()
            assert raised.value.code is ErrorCode.FENCED_INSTANCE_ID
        assert rig.events == ["assigned t-0 t-1", "lost t-0 t-1"]
        assert len(rig.cluster.requests(JoinGroupRequest)) == joins

    scene(story, group_instance_id="one")


def test_heartbeats_look_for_a_coordinator_that_is_gone(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(
            HeartbeatRequest, ConnectionLostError("gone"), beat(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
        await virtual_time.later(10)
        assert len(rig.cluster.requests(FindCoordinatorRequest)) == 3
        assert len(rig.cluster.requests(HeartbeatRequest)) >= 4
        assert not rig.membership.needs_poll

    scene(story)


def test_a_heartbeat_that_no_waiting_mends_is_raised(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(HeartbeatRequest, AuthenticationError("who are you"))
        await virtual_time.later(4)
        with pytest.raises(AuthenticationError):
            await rig.poll()

    scene(story)


# Listeners and assignments


def test_a_listener_that_fails_is_raised_and_the_rebalance_is_done_all_the_same(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.listener.failing = "assigned"
        with pytest.raises(RuntimeError, match="assigned failed"):
            await rig.poll()
        assert rig.assigned() == ["t-0", "t-1"]
        assert await rig.poll()
        rig.listener.failing = "revoked"
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        await virtual_time.later(4)
        with pytest.raises(RuntimeError, match="revoked failed"):
            await rig.poll()
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1", "revoked t-0 t-1", "assigned t-0 t-1"]

    scene(story)


def test_a_cooperative_member_gives_up_what_was_taken_and_rejoins(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.consume(t_0=5, t_1=7)
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        rig.cluster.script(SyncGroupRequest, given(T0), given(T0))
        await rig.poll_for(5)
        assert rig.events == ["assigned t-0 t-1", "revoked t-1", "assigned", "assigned"]
        assert rig.assigned() == ["t-0"]
        assert [each.reason for each in rig.cluster.requests(JoinGroupRequest)][1:] == [
            "group is already rebalancing",
            "need to revoke partitions and re-join",
        ]
        before, last, _ = rig.cluster.requests(OffsetCommitRequest)
        assert [(each.partition_index, each.committed_offset) for each in before.topics[0].partitions] == [
            (0, 5),
            (1, 7),
        ]
        # What was consumed while the others joined is committed before the partition goes.
        assert [(each.partition_index, each.committed_offset) for each in last.topics[0].partitions] == [
            (1, 7)
        ]
        assert last.generation_id_or_member_epoch == 2

    scene(story, partition_assignment_strategy="cooperative-sticky", enable_auto_commit=True)


@pytest.mark.parametrize("at", ["commit", "revoked", "assigned"])
def test_a_poll_that_is_cancelled_in_a_cooperative_rebalance_leaves_the_rest_to_the_next(
    scene: Scene, at: str
) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.set_topics(t=3)
        rig.cluster.script(SyncGroupRequest, given(T0, T1))
        await rig.poll()
        rig.consume(t_0=5, t_1=7)
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        rig.cluster.script(SyncGroupRequest, given(T0, T2), given(T0, T2))
        polling = asyncio.ensure_future(rig.poll_for(5))

        def interrupted(what: str) -> Callable[[Collection[TopicPartition]], Awaitable[None]]:
            async def told(partitions: Collection[TopicPartition]) -> None:
                Recorder._note(rig.listener, what, partitions)
                if at == what and not polling.done():
                    polling.cancel()
                    await asyncio.sleep(0)

            return told

        rig.listener.on_partitions_revoked = interrupted("revoked")  # type: ignore[assignment,method-assign]
        rig.listener.on_partitions_assigned = interrupted("assigned")  # type: ignore[assignment,method-assign]
        while at == "commit" and not polling.done():
            await virtual_time.later(0.0005)
            if len(rig.cluster.requests(OffsetCommitRequest)) == 2:
                polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert rig.membership.needs_poll
        assert await rig.poll()
        assert rig.assigned() == ["t-0", "t-2"]
        assert "revoked t-1" in rig.events
        assert "assigned t-2" in rig.events
        assert [each.reason for each in rig.cluster.requests(JoinGroupRequest)][1:] == [
            "group is already rebalancing",
            "need to revoke partitions and re-join",
        ]

    scene(story, partition_assignment_strategy="cooperative-sticky", enable_auto_commit=True)


def test_an_assignor_that_fails_on_its_assignment_is_raised_and_the_assignment_holds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(rig: Rig) -> None:
        def fail(*ignored: object) -> None:
            raise RuntimeError("no thanks")

        monkeypatch.setattr(RangeAssignor, "on_assignment", fail)
        with pytest.raises(RuntimeError, match="no thanks"):
            await rig.poll()
        assert rig.assigned() == ["t-0", "t-1"]
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1"]

    scene(story)


def test_an_eager_member_commits_before_it_revokes_and_revokes_before_it_joins(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.consume(t_0=5)
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        order: list[str] = []

        def joining(request: JoinGroupRequest) -> JoinGroupResponse:
            order.append(f"JoinGroup after {rig.events[-1]}")
            return rig.cluster.joined(request)

        def committing(request: OffsetCommitRequest) -> object:
            order.append(f"OffsetCommit after {rig.events[-1]}")
            return committed(request)

        rig.cluster.script(JoinGroupRequest, joining)
        rig.cluster.script(OffsetCommitRequest, committing)  # type: ignore[arg-type]
        await rig.poll_for(4)
        assert order == ["OffsetCommit after assigned t-0 t-1", "JoinGroup after revoked t-0 t-1"]

    scene(story, enable_auto_commit=True)


def test_an_assignment_of_what_is_no_longer_read_is_refused_by_rejoining(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.script(SyncGroupRequest, given(TopicPartition("other", 0)))
        assert await rig.poll()
        assert rig.events == ["revoked", "assigned t-0 t-1"]
        assert len(rig.cluster.requests(JoinGroupRequest)) == 2

    scene(story)


def test_another_subscription_is_another_rebalance(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.subscription.subscribe(["t", "u"], rig.listener)
        assert await rig.poll()
        assert rig.assigned() == ["t-0", "t-1", "u-0"]
        rig.subscription.subscribe(["u"], rig.listener)
        assert await rig.poll()
        assert rig.events[-2:] == ["revoked t-0 t-1", "assigned"]
        assert rig.assigned() == ["u-0"]

    scene(story, partition_assignment_strategy="cooperative-sticky")


def test_the_leader_assigns_to_all_and_watches_what_they_read(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        others = {"zz-other": encode_subscription(Subscription(("u",)))}
        rig.cluster.script(JoinGroupRequest, lambda request: rig.cluster.joined(request, others))
        assert await rig.poll()
        (sync,) = rig.cluster.requests(SyncGroupRequest)
        assert {each.member_id for each in sync.assignments} == {"member-1", "zz-other"}
        assert rig.cluster.updates.topics == {"t", "u"}
        rig.cluster.set_topics(t=2, u=1)
        await virtual_time.later(0.1)
        assert not rig.membership.needs_poll
        rig.cluster.set_topics(t=2, u=3)
        await virtual_time.later(0.1)
        assert rig.membership.needs_poll
        assert await rig.poll()
        assert rig.cluster.requests(JoinGroupRequest)[1].reason == "cached metadata has changed"
        assert rig.cluster.updates.topics == {"t"}

    scene(story)


def test_a_follower_watches_nothing(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        def following(request: JoinGroupRequest) -> JoinGroupResponse:
            response = rig.cluster.joined(request)
            response.leader, response.members = "somebody else", []
            return response

        rig.cluster.script(JoinGroupRequest, following)
        rig.cluster.script(SyncGroupRequest, given(T1))
        assert await rig.poll()
        assert rig.assigned() == ["t-1"]
        assert not rig.cluster.requests(SyncGroupRequest)[0].assignments
        rig.cluster.set_topics(t=9)
        await virtual_time.later(0.1)
        assert not rig.membership.needs_poll

    scene(story)


class Greedy(Assignor):
    """Says that it is cooperative and is not."""

    name = "greedy"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def assign(
        self, metadata: ClusterMetadata, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        return {member: Assignment((T0,) if member == "new" else ()) for member in members}


def test_an_own_assignor_must_not_move_what_is_still_owned(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        others = {
            "new": encode_subscription(Subscription(("t",))),
            "old": encode_subscription(Subscription(("t",), None, (T0,), 1)),
        }
        rig.cluster.script(JoinGroupRequest, lambda request: rig.cluster.joined(request, others))
        with pytest.raises(KafkaError, match="greedy is cooperative but moves t-0"):
            await rig.poll_for(4)

    scene(story, partition_assignment_strategy=[Greedy()])


# Leaving


def test_a_member_that_leaves_gives_up_its_partitions_and_says_good_bye(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.consume(t_0=3)
        await rig.membership.leave(Deadline(1000))
        assert rig.events == ["assigned t-0 t-1", "revoked t-0 t-1"]
        (leave,) = rig.cluster.requests(LeaveGroupRequest)
        assert leave.members[0].member_id == "member-1"
        (commit,) = rig.cluster.requests(OffsetCommitRequest)
        assert commit.topics[0].partitions[0].committed_offset == 3
        quiet = len(rig.cluster.asked)
        await virtual_time.later(30)
        assert len(rig.cluster.asked) == quiet
        assert await rig.poll()

    scene(story, enable_auto_commit=True)


def test_old_coordinators_are_left_one_member_at_a_time(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.versions[LeaveGroupResponse] = 2
        await rig.poll()
        await rig.membership.leave(Deadline(1000))
        (leave,) = rig.cluster.requests(LeaveGroupRequest)
        assert (leave.member_id, leave.members) == ("member-1", [])

    scene(story)


def test_a_static_member_does_not_leave(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        await rig.membership.leave(Deadline(1000))
        assert rig.events == ["assigned t-0 t-1", "revoked t-0 t-1"]
        assert not rig.cluster.requests(LeaveGroupRequest)

    scene(story, group_instance_id="one")


def test_a_member_may_leave_while_it_joins(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        required = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="mine")
        rig.cluster.script(
            JoinGroupRequest, required, *[refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 99
        )
        assert not await rig.poll(1)
        await rig.membership.leave(Deadline(1000))
        (leave,) = rig.cluster.requests(LeaveGroupRequest)
        assert leave.members[0].member_id == "mine"
        joins = len(rig.cluster.requests(JoinGroupRequest))
        await virtual_time.later(10)
        assert len(rig.cluster.requests(JoinGroupRequest)) == joins

    scene(story)


# Offsets


def test_automatic_commits_come_at_intervals_and_after_failures_sooner(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.consume(t_0=1)
        loop = asyncio.get_running_loop()
        started, times = loop.time(), []

        def failing(request: OffsetCommitRequest) -> object:
            times.append(round(loop.time() - started))
            return committed(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        rig.cluster.script(OffsetCommitRequest, failing)  # type: ignore[arg-type]
        for _ in range(110):
            await rig.poll()
            await virtual_time.later(0.1)
        commits = rig.cluster.requests(OffsetCommitRequest)
        assert times == [5]
        assert len(commits) == 3

    scene(story, enable_auto_commit=True)


@pytest.mark.parametrize(
    ("code", "kind", "rejoins"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, True),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, True),
        (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.OFFSET_METADATA_TOO_LARGE, False),
    ],
)
def test_refused_commits_raise_what_the_application_can_act_on(
    scene: Scene, code: ErrorCode, kind: ErrorCode | type[CommitFailedError], rejoins: bool
) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(OffsetCommitRequest, lambda request: committed(request, code))
        with pytest.raises(CommitFailedError if isinstance(kind, type) else KafkaError) as raised:
            await rig.membership.commit(positions(p0=1), Deadline(5000))
        if isinstance(raised.value, KafkaError):
            assert raised.value.code is kind
        assert rig.membership.needs_poll is rejoins

    scene(story)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_commits_are_tried_again_after_errors_that_pass(scene: Scene, code: ErrorCode) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(OffsetCommitRequest, *[lambda request: committed(request, code)] * 3)
        await rig.membership.commit(positions(p0=1), Deadline(5000))
        assert len(rig.cluster.requests(OffsetCommitRequest)) == 4
        rig.cluster.script(OffsetCommitRequest, *[lambda request: committed(request, code)] * 99)
        with pytest.raises(KafkaError) as raised:
            await rig.membership.commit(positions(p0=1), Deadline(5000))
        assert raised.value.code is code

    scene(story)


def test_a_commit_during_a_rebalance_says_so(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.script(JoinGroupRequest, *[refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 50)
        assert not await rig.poll(1)
        with pytest.raises(KafkaError, match="poll, then commit again") as raised:
            await rig.membership.commit(positions(p0=1), Deadline(1000))
        assert raised.value.code is ErrorCode.REBALANCE_IN_PROGRESS

    scene(story)


def test_a_consumer_that_assigns_by_hand_commits_as_nobody(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.subscription.unsubscribe()
        rig.subscription.assign([T0])
        await rig.membership.commit(positions(p0=4), Deadline(1000))
        (commit,) = rig.cluster.requests(OffsetCommitRequest)
        assert (commit.generation_id_or_member_epoch, commit.member_id) == (-1, "")
        rig.cluster.script(
            OffsetCommitRequest, lambda request: committed(request, ErrorCode.UNKNOWN_MEMBER_ID)
        )
        with pytest.raises(CommitFailedError, match="by hand"):
            await rig.membership.commit(positions(p0=4), Deadline(1000))
        assert not rig.cluster.requests(JoinGroupRequest)

    scene(story)


def _fetched(offset: int, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3, metadata="note", error_code=code
    )
    topic = OffsetFetchResponseTopics(name="t", partitions=[partition])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


def test_committed_offsets_of_open_transactions_are_waited_for(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        unstable = _fetched(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        rig.cluster.script(OffsetFetchRequest, unstable, unstable, _fetched(5))
        found = await rig.membership.fetch_committed([T0, T1], Deadline(5000))
        assert found == {T0: OffsetAndMetadata(5, 3, "note"), T1: None}
        assert all(each.require_stable for each in rig.cluster.requests(OffsetFetchRequest))

    scene(story)


def test_old_coordinators_are_asked_for_offsets_in_their_way(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.versions[OffsetFetchResponse] = 5
        await rig.membership.fetch_committed([T0], Deadline(5000))
        (request,) = rig.cluster.requests(OffsetFetchRequest)
        assert request.group_id == "g"
        assert request.topics is not None
        assert request.topics[0].partition_indexes == [0]
        assert not request.require_stable

    scene(story)


def test_interceptors_hear_of_automatic_commits_and_figures_are_kept(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        heard: list[object] = []
        rig.membership.subscribe_commits(heard.append)
        await rig.poll()
        rig.consume(t_0=5)
        await virtual_time.later(6)
        await rig.poll_for(6)
        await virtual_time.later(0.1)
        assert heard == [positions(p0=5)] * len(rig.cluster.requests(OffsetCommitRequest))
        figures = rig.cluster.metrics.snapshot()
        assert figures["join-total"] == figures["sync-total"] == figures["rebalance-total"] == 1
        assert figures["heartbeat-total"] == len(rig.cluster.requests(HeartbeatRequest))
        assert figures["commit-total"] == len(heard) > 0
        assert 0 <= figures["last-heartbeat-seconds-ago"] <= 3

    scene(story, enable_auto_commit=True)


def test_patterns_for_the_broker_need_the_consumer_protocol(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.subscription.unsubscribe()
        rig.subscription.subscribe_broker_pattern(SubscriptionPattern("t.*"))
        with pytest.raises(IllegalStateError, match="consumer"):
            await rig.poll()

    scene(story)


def test_a_member_that_is_thrown_out_before_it_has_seen_its_assignment_never_gets_it(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.UNKNOWN_MEMBER_ID))
        while not rig.cluster.requests(JoinGroupRequest):
            await rig.membership.ensure_active(Deadline(0))
            await asyncio.sleep(0.0005)
        await virtual_time.later(4)
        assert rig.events == []
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1"]
        assert rig.membership.group_metadata().generation_id == 2

    scene(story)


def test_a_deleted_topic_does_not_hold_a_rebalance_up(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.consume(t_0=5)
        rig.cluster.script(HeartbeatRequest, beat(ErrorCode.REBALANCE_IN_PROGRESS))
        gone = [lambda request: committed(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * 99
        rig.cluster.script(OffsetCommitRequest, *gone)
        await rig.poll_for(4)
        assert rig.events[-2:] == ["revoked t-0 t-1", "assigned t-0 t-1"]
        assert len(rig.cluster.requests(OffsetCommitRequest)) == 1

    scene(story, enable_auto_commit=True, auto_commit_interval_ms=60_000)
