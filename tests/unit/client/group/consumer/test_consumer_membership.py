"""Membership in a consumer group (KIP-848) before a scripted coordinator, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import pytest
from tests.unit.client.group import virtual_time
from tests.unit.client.group.scripted_group import Recorder, Rig, committed, topic_id

from tidelog.client._network.retry import Deadline
from tidelog.client.errors import ConnectionLostError
from tidelog.client.group.errors import CommitFailedError
from tidelog.client.subscription._subscription_state import SubscriptionPattern
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tidelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

Scene = Callable[..., None]
T0 = TopicPartition("t", 0)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Runs a story with a rig in virtual time; the broker assigns t-0 and t-1."""

    def tell(story: Callable[[Rig], Awaitable[None]], **options: object) -> None:
        async def main() -> None:
            async with Rig("t", group_protocol="consumer", **options) as rig:
                rig.cluster.set_topics(t=2)
                rig.cluster.target = {topic_id("t"): [0, 1]}
                await story(rig)

        virtual_time.run(main(), monkeypatch)

    return tell


def refusal(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def owned(request: ConsumerGroupHeartbeatRequest) -> list[list[int]] | None:
    if request.topic_partitions is None:
        return None
    return [each.partitions for each in request.topic_partitions]


def beats(rig: Rig) -> list[ConsumerGroupHeartbeatRequest]:
    return rig.cluster.requests(ConsumerGroupHeartbeatRequest)


def test_a_member_joins_with_everything_and_acknowledges_what_it_got(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1"]
        await virtual_time.later(0.1)
        join, acknowledgement = beats(rig)
        assert (join.member_epoch, join.subscribed_topic_names, join.rebalance_timeout_ms) == (
            0,
            ["t"],
            300_000,
        )
        assert (join.server_assignor, join.rack_id, owned(join)) == ("uniform", "r1", [])
        assert len(join.member_id) == 22
        assert (acknowledgement.member_epoch, owned(acknowledgement)) == (1, [[0, 1]])
        assert acknowledgement.member_id == join.member_id
        assert acknowledgement.subscribed_topic_names is None
        assert (acknowledgement.server_assignor, acknowledgement.rebalance_timeout_ms) == (None, -1)
        await virtual_time.later(21)
        assert len(beats(rig)) == 6
        assert owned(beats(rig)[-1]) is None
        metadata = rig.membership.group_metadata()
        assert (metadata.generation_id, metadata.member_id) == (1, join.member_id)

    scene(story, group_remote_assignor="uniform", client_rack="r1")


def test_what_goes_is_committed_and_revoked_before_it_is_acknowledged(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.consume(t_0=3, t_1=4)
        rig.cluster.target, rig.cluster.epoch = {topic_id("t"): [0]}, 2
        seen: list[str] = []

        def committing(request: OffsetCommitRequest) -> OffsetCommitResponse:
            seen.append(f"{rig.events[-1]}, owning {owned(beats(rig)[-1])}")
            return committed(request)

        rig.cluster.script(OffsetCommitRequest, committing)
        await rig.poll_for(4)
        await rig.poll_for(2)
        assert seen == ["assigned t-0 t-1, owning [[0, 1]]"]
        assert rig.events == ["assigned t-0 t-1", "revoked t-1", "assigned"]
        (commit,) = rig.cluster.requests(OffsetCommitRequest)
        assert [(each.partition_index, each.committed_offset) for each in commit.topics[0].partitions] == [
            (1, 4)
        ]
        assert [each for each in map(owned, beats(rig)) if each is not None] == [[], [[0, 1]], [[0]]]
        assert rig.assigned() == ["t-0"]

    scene(story, enable_auto_commit=True, auto_commit_interval_ms=60_000)


def test_a_changed_subscription_is_told_at_once(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        await virtual_time.later(0.1)
        before = len(beats(rig))
        rig.subscription.subscribe(["t", "u"], rig.listener)
        await rig.poll_for(0.1)
        assert len(beats(rig)) == before + 1
        assert beats(rig)[-1].subscribed_topic_names == ["t", "u"]

    scene(story)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_its_partitions_and_joins_again(scene: Scene, code: ErrorCode) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(ConsumerGroupHeartbeatRequest, refusal(code))
        await virtual_time.later(6)
        with pytest.raises(CommitFailedError):
            await rig.membership.commit({T0: OffsetAndMetadata(1)}, Deadline(1000))
        assert rig.membership.group_metadata().generation_id == 1
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1", "lost t-0 t-1", "assigned t-0 t-1"]
        joins = [each for each in beats(rig) if each.member_epoch == 0]
        assert len(joins) == 2
        assert (owned(joins[1]), joins[1].subscribed_topic_names) == ([], ["t"])

    scene(story)


def test_a_member_that_does_not_poll_leaves_and_joins_again_when_it_polls(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        await virtual_time.later(12)
        assert beats(rig)[-1].member_epoch == -1
        quiet = len(beats(rig))
        await virtual_time.later(60)
        assert len(beats(rig)) == quiet
        assert await rig.poll()
        assert rig.events == ["assigned t-0 t-1", "lost t-0 t-1", "assigned t-0 t-1"]

    scene(story, max_poll_interval_ms=10_000)


def test_a_poll_that_waits_for_records_is_no_reason_to_leave(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll_for(60)
        assert rig.events == ["assigned t-0 t-1"]
        assert all(each.member_epoch >= 0 for each in beats(rig))

    scene(story, max_poll_interval_ms=2000)


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("one", -2)])
def test_a_member_that_leaves_says_good_bye(scene: Scene, instance: str | None, epoch: int) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        await rig.membership.leave(Deadline(1000))
        assert rig.events == ["assigned t-0 t-1", "revoked t-0 t-1"]
        last = beats(rig)[-1]
        assert (last.member_epoch, last.instance_id, owned(last)) == (epoch, instance, None)
        quiet = len(rig.cluster.asked)
        await virtual_time.later(30)
        assert len(rig.cluster.asked) == quiet
        assert await rig.poll()

    scene(story, group_instance_id=instance)


def test_errors_that_pass_are_waited_out_and_everything_is_said_again(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(
            ConsumerGroupHeartbeatRequest,
            refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            refusal(ErrorCode.NOT_COORDINATOR),
            ConnectionLostError("gone"),
        )
        await virtual_time.later(8)
        assert len(rig.cluster.requests(FindCoordinatorRequest)) == 3
        again = beats(rig)[4]
        assert (again.member_epoch, again.subscribed_topic_names, owned(again)) == (1, ["t"], [[0, 1]])
        assert rig.events == ["assigned t-0 t-1"]

    scene(story)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ],
)
def test_errors_that_stay_are_raised(scene: Scene, code: ErrorCode) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        rig.cluster.script(ConsumerGroupHeartbeatRequest, refusal(code, "so it is"))
        await virtual_time.later(6)
        with pytest.raises(KafkaError, match="so it is") as raised:
            await rig.poll()
        assert raised.value.code is code
        assert rig.events == ["assigned t-0 t-1", "lost t-0 t-1"]

    scene(story)


def test_a_cluster_that_does_not_know_the_protocol_is_named(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        unknown = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "no such API")
        rig.cluster.script(ConsumerGroupHeartbeatRequest, unknown)
        with pytest.raises(KafkaError, match=r"group\.protocol=classic"):
            await rig.poll()

    scene(story)


def test_a_commit_under_an_old_epoch_is_made_again_under_the_new_one(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        await rig.poll()
        await virtual_time.later(0.1)
        rig.cluster.epoch = 2
        rig.cluster.script(
            OffsetCommitRequest, lambda request: committed(request, ErrorCode.STALE_MEMBER_EPOCH)
        )
        await rig.membership.commit({T0: OffsetAndMetadata(1)}, Deadline(3000))
        epochs = [each.generation_id_or_member_epoch for each in rig.cluster.requests(OffsetCommitRequest)]
        assert epochs == [1, 2]

    scene(story)


def test_a_pattern_is_the_brokers_and_its_topics_are_named_by_their_ids(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.subscription.unsubscribe()
        rig.subscription.subscribe_broker_pattern(SubscriptionPattern("x.*"), rig.listener)
        rig.cluster.target = {topic_id("xy"): [0], topic_id("gone"): [0]}
        known = MetadataResponseTopic(name="xy", topic_id=topic_id("xy"))
        rig.cluster.script(MetadataRequest, MetadataResponse(topics=[known]))
        assert await rig.poll()
        assert rig.events == ["assigned xy-0"]
        await virtual_time.later(0.1)
        join, acknowledgement = beats(rig)
        assert (join.subscribed_topic_regex, join.subscribed_topic_names) == ("x.*", [])
        assert owned(acknowledgement) == [[0]]
        assert rig.cluster.updates.topics == {"xy"}
        rig.subscription.unsubscribe()
        rig.subscription.subscribe(["t"], rig.listener)
        await rig.poll_for(0.1)
        assert (beats(rig)[-1].subscribed_topic_regex, beats(rig)[-1].subscribed_topic_names) == ("", ["t"])

    scene(story)


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again_and_read_when_it_has_a_name(
    scene: Scene,
) -> None:
    async def story(rig: Rig) -> None:
        rig.subscription.subscribe(["t", "new"], rig.listener)
        rig.cluster.target = {topic_id("t"): [0, 1], topic_id("new"): [0]}
        known = MetadataResponseTopic(name="new", topic_id=topic_id("new"))
        rig.cluster.script(
            MetadataRequest, MetadataResponse(), MetadataResponse(), MetadataResponse(topics=[known])
        )
        assert await rig.poll()
        # What has a name is read meanwhile, and the broker hears what this member has.
        assert rig.events == ["assigned t-0 t-1"]
        assert rig.membership.needs_poll
        await virtual_time.later(0.1)
        assert owned(beats(rig)[-1]) == [[0, 1]]
        await rig.poll_for(10)
        assert rig.events == ["assigned t-0 t-1", "assigned new-0"]
        assert not rig.membership.needs_poll
        assert len(rig.cluster.requests(MetadataRequest)) == 3
        assert [each for each in map(owned, beats(rig)) if each is not None] == [[], [[0, 1]], [[0], [0, 1]]]

    scene(story)


def test_an_assignment_without_the_topic_that_had_no_name_is_acknowledged(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.target = {topic_id("t"): [0, 1], topic_id("gone"): [0]}
        assert await rig.poll()
        await rig.poll_for(6)
        rig.cluster.target, rig.cluster.epoch = {topic_id("t"): [0, 1]}, 2
        await rig.poll_for(10)
        assert not rig.membership.needs_poll
        assert rig.assigned() == ["t-0", "t-1"]
        # Otherwise the broker would wait for it to give up what it never had.
        assert [each for each in map(owned, beats(rig)) if each is not None] == [[], [[0, 1]], [[0, 1]]]
        asked = len(rig.cluster.requests(MetadataRequest))
        await rig.poll_for(10)
        assert len(rig.cluster.requests(MetadataRequest)) == asked

    scene(story)


@pytest.mark.parametrize("at", ["revoked", "assigned"])
def test_a_poll_that_is_cancelled_in_a_rebalance_leaves_the_rest_to_the_next(scene: Scene, at: str) -> None:
    async def story(rig: Rig) -> None:
        rig.cluster.target = {topic_id("t"): [0]}
        assert await rig.poll()
        rig.cluster.target, rig.cluster.epoch = {topic_id("t"): [1]}, 2
        polling = asyncio.ensure_future(rig.poll_for(20))

        def interrupted(what: str) -> Callable[[Collection[TopicPartition]], Awaitable[None]]:
            async def told(partitions: Collection[TopicPartition]) -> None:
                Recorder._note(rig.listener, what, partitions)
                if at == what and not polling.done():
                    polling.cancel()
                    await asyncio.sleep(0)

            return told

        rig.listener.on_partitions_revoked = interrupted("revoked")  # type: ignore[assignment,method-assign]
        rig.listener.on_partitions_assigned = interrupted("assigned")  # type: ignore[assignment,method-assign]
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert rig.membership.needs_poll
        assert await rig.poll()
        assert rig.assigned() == ["t-1"]
        await virtual_time.later(0.1)
        assert owned(beats(rig)[-1]) == [[1]]

    scene(story)


def test_a_listener_that_fails_is_raised_and_the_assignment_is_acknowledged(scene: Scene) -> None:
    async def story(rig: Rig) -> None:
        rig.listener.failing = "assigned"
        with pytest.raises(RuntimeError, match="assigned failed"):
            await rig.poll()
        await virtual_time.later(0.1)
        assert owned(beats(rig)[-1]) == [[0, 1]]
        assert await rig.poll()

    scene(story)
