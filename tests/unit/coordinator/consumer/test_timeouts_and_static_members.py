"""Sessions and rebalance timeouts, and static members that go and come again."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import answer
from tests.unit.coordinator.consumer.scene import (
    ASSIGNMENT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    Consumer,
    Scene,
)

from tidelog.coordinator.group.consumer.member import MemberState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.internal_topics import consumer_offsets as stored
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def refusal(action: object) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        action()  # type: ignore[operator]
    return raised.value.code


def test_a_silent_member_is_fenced_when_its_session_ends(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second = Consumer(scene, "b", "t").join()
    scene.settle(first, second)
    for _ in range(8):
        scene.advance(SESSION_TIMEOUT_MS // 8)
        second.beat()
    scene.advance(1)
    assert not scene.group().has_member("a")
    assert refusal(first.beat) is ErrorCode.UNKNOWN_MEMBER_ID
    second.beat()
    assert second.size == 6


def refuse_next(scene: Scene) -> None:
    scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")


def test_a_member_whose_fencing_is_refused_is_fenced_a_moment_later(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second = Consumer(scene, "b", "t").join()
    scene.settle(first, second)
    scene.advance(SESSION_TIMEOUT_MS - 1)
    second.beat()
    refuse_next(scene)
    scene.advance(1)
    assert scene.group().has_member("a")
    scene.advance(1_000)
    assert not scene.group().has_member("a")
    second.beat()
    assert second.size == 6


def test_one_that_is_heard_of_before_that_stays(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    refuse_next(scene)
    scene.advance(SESSION_TIMEOUT_MS)
    consumer.beat()
    scene.advance(SESSION_TIMEOUT_MS - 1)
    assert scene.group().has_member("a")


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_member_whose_leave_is_refused_goes_with_its_session(scene: Scene, instance_id: str | None) -> None:
    leaving = Consumer(scene, "a", "t", instance_id=instance_id).join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    staying = Consumer(scene, "b", "t").join()
    scene.settle(leaving, staying)
    refuse_next(scene)
    assert refusal(leaving.leave) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.group().has_member("a")
    scene.advance(SESSION_TIMEOUT_MS - 1)
    staying.beat()
    scene.advance(1)
    assert not scene.group().has_member("a")


def test_one_that_comes_back_before_its_leave_is_committed_has_a_session_again(scene: Scene) -> None:
    Consumer(scene, "b", "t").join()
    Consumer(scene, "a", "t").join()
    log = scene.log_of("g")
    log.autocommit = False
    scene.send(ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=-1))
    assert not scene.group().has_member("a")
    joining = scene.send(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
    )
    log.autocommit = True
    log.commit()
    assert answer(joining).member_epoch > 0
    scene.advance(SESSION_TIMEOUT_MS)
    assert scene.group().is_empty


def test_every_heartbeat_gives_a_member_its_whole_session_again(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    for _ in range(3):
        scene.advance(SESSION_TIMEOUT_MS - 1)
        consumer.beat()
    assert scene.group().has_member("a")
    scene.advance(SESSION_TIMEOUT_MS)
    assert scene.group().is_empty


def test_a_member_that_does_not_give_partitions_up_in_time_is_fenced(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", rebalance_timeout_ms=7_000).join()
    first.stuck = True
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second = Consumer(scene, "b", "t").join()
    first.beat()
    for _ in range(6):
        scene.advance(1_000)
        first.beat()
        second.beat()
    assert scene.member("a").state is MemberState.UNREVOKED_PARTITIONS
    assert second.size == 0
    scene.advance(1_000)
    assert not scene.group().has_member("a")
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second.beat()
    assert second.size == 6


def test_one_that_does_is_not(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", rebalance_timeout_ms=7_000).join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    Consumer(scene, "b", "t").join()
    first.beat()
    first.beat()
    scene.advance(8_000)
    assert scene.group().has_member("a")


def test_timers_begin_anew_when_a_group_is_loaded(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", rebalance_timeout_ms=7_000).join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    Consumer(scene, "b", "t").join()
    first.beat()
    scene.move()
    scene.advance(7_000)
    assert not scene.group().has_member("a")
    scene.advance(SESSION_TIMEOUT_MS)
    assert scene.group().is_empty


def test_a_static_member_that_leaves_for_a_while_finds_its_partitions_again(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", instance_id="i1").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second = Consumer(scene, "b", "t", instance_id="i2").join()
    scene.settle(first, second)
    had, epoch = first.has("t"), scene.group().epoch
    first.leave(-2)
    assert scene.member("a").epoch == -2
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second.beat()
    assert second.size == 3

    again = Consumer(scene, "a2", "t", instance_id="i1").join()
    assert again.has("t") == had
    assert scene.group().epoch == epoch
    assert not scene.group().has_member("a")
    assert scene.group().static_members == {"i1": "a2", "i2": "b"}


def test_taking_over_writes_kafkas_records_in_kafkas_order(scene: Scene) -> None:
    Consumer(scene, "a", "t", instance_id="i").join().leave(-2)
    before = len(scene.records())
    Consumer(scene, "a2", "t", instance_id="i").join()
    written = [(type(each.key), each.value is None) for each in scene.records()[before:]]
    assert written == [
        (stored.ConsumerGroupCurrentMemberAssignmentKey, True),
        (stored.ConsumerGroupTargetAssignmentMemberKey, True),
        (stored.ConsumerGroupMemberMetadataKey, True),
        (stored.ConsumerGroupMemberMetadataKey, False),
        (stored.ConsumerGroupTargetAssignmentMemberKey, False),
        (stored.ConsumerGroupCurrentMemberAssignmentKey, False),
        (stored.ConsumerGroupCurrentMemberAssignmentKey, False),
    ]


def test_an_instance_that_is_in_use_is_not_given_away(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", instance_id="i").join()
    assert refusal(Consumer(scene, "a2", "t", instance_id="i").join) is ErrorCode.UNRELEASED_INSTANCE_ID
    first.beat()


def test_the_one_that_was_replaced_is_fenced(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", instance_id="i").join()
    first.leave(-2)
    Consumer(scene, "a2", "t", instance_id="i").join()
    assert refusal(first.beat) is ErrorCode.FENCED_INSTANCE_ID
    assert refusal(first.leave) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_loses_its_place_with_its_session(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", instance_id="i").join()
    first.leave(-2)
    scene.advance(SESSION_TIMEOUT_MS)
    assert scene.group().is_empty
    assert scene.group().static_members == {}


def test_a_static_member_that_leaves_for_good_is_gone_at_once(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", instance_id="i").join()
    first.leave()
    assert scene.group().is_empty


def test_an_instance_with_another_subscription_is_assigned_anew(scene: Scene) -> None:
    scene.topic("u", 2)
    Consumer(scene, "a", "t", instance_id="i").join().leave(-2)
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    again = Consumer(scene, "a2", "u", instance_id="i").join()
    scene.settle(again)
    assert (again.has("t"), again.has("u")) == (set(), {0, 1})
