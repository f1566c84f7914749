"""Sessions and rebalance timeouts, and static members that go and come again."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.consumer.scene import (
    ASSIGNMENT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    Consumer,
    Scene,
)

from tidelog.coordinator.group.consumer.member import MemberState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.internal_topics import consumer_offsets as stored


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
