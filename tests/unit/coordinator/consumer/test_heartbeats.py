"""ConsumerGroupHeartbeat: joining, being assigned, handing over, fencing, leaving, and their records."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import answer
from tests.unit.coordinator.consumer.scene import (
    ASSIGNMENT_INTERVAL_MS,
    HEARTBEAT_INTERVAL_MS,
    Consumer,
    Scene,
    assert_no_partition_is_owned_twice,
    topic_id,
)

from tidelog.coordinator.group.consumer.group import GroupState
from tidelog.coordinator.group.consumer.member import MemberState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.znodes.znodes import TopicAssignment
from tidelog.wire.internal_topics import consumer_offsets as stored
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions


def code_of(scene: Scene, request: ConsumerGroupHeartbeatRequest) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        scene.ask(request)
    return raised.value.code


def joining(member_id: str, *topics: str, group_id: str = "g") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
    )


def test_the_first_member_gets_everything_at_once(scene: Scene) -> None:
    response = scene.ask(joining("a", "t"))
    assert (response.member_id, response.member_epoch) == ("a", 2)
    assert response.heartbeat_interval_ms == HEARTBEAT_INTERVAL_MS
    assert response.assignment is not None
    assert response.assignment.topic_partitions == [
        TopicPartitions(topic_id=topic_id("t"), partitions=[0, 1, 2, 3, 4, 5])
    ]
    assert scene.group().state is GroupState.STABLE


def test_partitions_that_are_not_known_yet_are_assigned_with_the_others(scene: Scene) -> None:
    partitions = {5: (0,), 1: (0,)}
    scene.image.put_topic("t", TopicAssignment(topic_id=scene.id_of("t"), partitions=partitions), {})
    response = scene.ask(joining("a", "t"))
    assert response.assignment is not None
    assert response.assignment.topic_partitions == [
        TopicPartitions(topic_id=topic_id("t"), partitions=[0, 1, 2, 3, 4, 5])
    ]


def test_the_first_join_writes_kafkas_records_in_kafkas_order(scene: Scene) -> None:
    scene.ask(joining("a", "t"))
    subscription, epoch, target, target_epoch, owned = scene.records()
    assert subscription.key == stored.ConsumerGroupMemberMetadataKey(group_id="g", member_id="a")
    assert subscription.value == stored.ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=30_000,
        server_assignor=None,
        classic_member_metadata=None,
    )
    assert isinstance(epoch.value, stored.ConsumerGroupMetadataValue)
    assert epoch.value.epoch == 2
    assert epoch.value.metadata_hash != 0
    assert target.value == stored.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[stored.TopicPartition(topic_id=topic_id("t"), partitions=[0, 1, 2, 3, 4, 5])]
    )
    assert target_epoch.value == stored.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=2, assignment_timestamp=scene.clock.time_ms()
    )
    assert owned.value == stored.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=[
            stored.TopicPartitions(
                topic_id=topic_id("t"), partitions=[0, 1, 2, 3, 4, 5], assignment_epochs=[2] * 6
            )
        ],
    )


def test_a_member_without_an_id_is_given_one_in_version_0(scene: Scene) -> None:
    response = answer(scene.send(joining("", "t"), version=0))
    assert response.member_id
    assert scene.group().has_member(response.member_id)


def test_a_heartbeat_that_brings_no_news_writes_nothing_and_tells_no_assignment(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    before = scene.records()
    request = consumer.request()
    request.topic_partitions = None
    assert scene.ask(request).assignment is None
    assert scene.records() == before


def test_a_full_heartbeat_is_told_the_assignment_again(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    request = consumer.request()
    request.rebalance_timeout_ms = 30_000
    request.subscribed_topic_names = ["t"]
    assert scene.ask(request).assignment is not None


def test_a_second_member_gets_partitions_only_after_the_first_has_given_them_up(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second = Consumer(scene, "b", "t").join()
    assert (second.epoch, second.size) == (3, 0)
    assert scene.member("b").state is MemberState.UNRELEASED_PARTITIONS
    assert scene.group().state is GroupState.RECONCILING

    told = first.beat()
    assert (told.member_epoch, first.size) == (2, 3)
    assert scene.member("a").state is MemberState.UNREVOKED_PARTITIONS
    second.beat()
    assert second.size == 0

    first.beat()
    assert (first.epoch, scene.member("a").state) == (3, MemberState.STABLE)
    second.beat()
    assert (first.size, second.size) == (3, 3)
    assert_no_partition_is_owned_twice([first, second])
    assert scene.group().state is GroupState.STABLE


def test_a_member_that_owns_partitions_keeps_them_while_others_come_and_go(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second = Consumer(scene, "b", "t").join()
    scene.settle(first, second)
    kept = first.has("t")
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    third = Consumer(scene, "c", "t").join()
    scene.settle(first, second, third)
    left = first.has("t")
    assert left < kept
    third.leave()
    scene.settle(first, second)
    assert left < first.has("t")
    assert (first.size, second.size) == (3, 3)


def test_members_that_join_together_are_assigned_together(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    second = Consumer(scene, "b", "t").join()
    third = Consumer(scene, "c", "t").join()
    assert scene.group().state is GroupState.ASSIGNING
    assert [first.size, second.size, third.size] == [6, 0, 0]
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    first.beat()
    assert scene.group().assignment_epoch == scene.group().epoch == 4
    scene.settle(first, second, third)
    assert [first.size, second.size, third.size] == [2, 2, 2]


def test_without_an_interval_every_change_is_assigned_at_once() -> None:
    scene = Scene({"group.consumer.assignment.interval.ms": "0"})
    scene.topic("t", 6)
    Consumer(scene, "a", "t").join()
    Consumer(scene, "b", "t").join()
    assert scene.group().assignment_epoch == scene.group().epoch == 3


def test_a_member_that_missed_an_answer_may_come_with_its_previous_epoch(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    Consumer(scene, "b", "t").join()
    first.beat()
    lost = first.request()
    scene.ask(lost)
    assert scene.member("a").epoch == 3
    assert lost.member_epoch == 2
    assert scene.ask(lost).member_epoch == 3


def test_a_member_that_missed_an_answer_is_told_its_partitions_again(scene: Scene) -> None:
    """librdkafka, whose request timed out, repeats what it has given up and does not ask for everything."""
    scene.topic("u", 2)
    consumer = Consumer(scene, "a", "t").join()
    change = consumer.request()
    change.subscribed_topic_names, change.topic_partitions = ["u"], None
    given_up = scene.ask(change).assignment
    assert given_up is not None
    assert given_up.topic_partitions == []
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    lost = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="a", member_epoch=consumer.epoch, topic_partitions=[]
    )
    answers = [scene.ask(lost), scene.ask(lost)]
    for told in answers:
        assert told.member_epoch > consumer.epoch
        assert told.assignment is not None
        assert [len(each.partitions) for each in told.assignment.topic_partitions] == [2]
    lost.member_epoch = answers[-1].member_epoch
    assert scene.ask(lost).assignment is None


def test_but_not_with_partitions_that_it_was_not_given(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    everything = first.request()
    Consumer(scene, "b", "t").join()
    first.beat()
    first.beat()
    assert code_of(scene, everything) is ErrorCode.FENCED_MEMBER_EPOCH
    everything.topic_partitions = None
    assert code_of(scene, everything) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [1, 3, 1000])
def test_any_other_epoch_is_fenced(scene: Scene, epoch: int) -> None:
    consumer = Consumer(scene, "a", "t").join()
    request = consumer.request()
    request.member_epoch = epoch
    before = scene.records()
    assert code_of(scene, request) is ErrorCode.FENCED_MEMBER_EPOCH
    assert scene.records() == before


def test_a_fenced_member_rejoins_under_its_id_and_gets_what_it_had(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    response = scene.ask(joining("a", "t"))
    assert response.member_epoch == consumer.epoch
    assert response.assignment is not None
    assert len(response.assignment.topic_partitions[0].partitions) == 6


def test_strangers_are_not_served(scene: Scene) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2)
    assert code_of(scene, request) is ErrorCode.GROUP_ID_NOT_FOUND
    Consumer(scene, "b", "t").join()
    assert code_of(scene, request) is ErrorCode.UNKNOWN_MEMBER_ID
    for epoch in (-1, -2):
        request.member_epoch = epoch
        request.instance_id = "i" if epoch == -2 else None
        assert code_of(scene, request) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more() -> None:
    scene = Scene({"group.consumer.max.size": "1"})
    scene.topic("t", 1)
    consumer = Consumer(scene, "a", "t").join()
    assert code_of(scene, joining("b", "t")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    consumer.beat()
    consumer.join()


def test_leaving_frees_the_partitions_for_the_next_heartbeat_of_anybody(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second = Consumer(scene, "b", "t").join()
    scene.settle(first, second)
    first.leave()
    assert scene.group().state is GroupState.ASSIGNING
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second.beat()
    assert second.size == 6


def test_leaving_writes_tombstones_in_kafkas_order(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    before = len(scene.records())
    consumer.leave()
    owned, target, subscription, epoch = scene.records()[before:]
    assert owned.key == stored.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    assert target.key == stored.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="a")
    assert subscription.key == stored.ConsumerGroupMemberMetadataKey(group_id="g", member_id="a")
    assert (owned.value, target.value, subscription.value) == (None, None, None)
    assert epoch.value == stored.ConsumerGroupMetadataValue(epoch=3, metadata_hash=0)
    assert scene.group().is_empty


def test_a_change_of_subscription_takes_topics_away_and_gives_others(scene: Scene) -> None:
    scene.topic("u", 2)
    consumer = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    consumer.resubscribe("u")
    assert consumer.has("t") == set()
    scene.settle(consumer)
    assert (consumer.has("t"), consumer.has("u")) == (set(), {0, 1})


def test_unsubscribed_topics_are_taken_away_even_before_the_next_assignment(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    consumer.resubscribe("elsewhere")
    assert scene.group().state is GroupState.ASSIGNING
    assert consumer.size == 0
    assert scene.member("a").state is MemberState.UNREVOKED_PARTITIONS


def test_a_topic_that_grows_is_noticed_with_the_next_heartbeat(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    scene.topic("t", 8)
    consumer.beat()
    assert consumer.size == 8
    assert scene.group().epoch == 3


def test_a_topic_that_comes_or_goes_is_noticed_too(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t", "later").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    scene.topic("later", 1)
    consumer.beat()
    assert consumer.has("later") == {0}
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    scene.delete_topic("t")
    scene.settle(consumer)
    assert (consumer.has("t"), consumer.has("later")) == (set(), {0})


def test_topics_of_others_are_none_of_a_groups_business(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    scene.topic("other", 3)
    before = scene.records()
    consumer.beat()
    assert scene.records() == before


def test_the_assignor_that_most_members_ask_for_is_used(scene: Scene) -> None:
    scene.topic("u", 6)
    members = [
        Consumer(scene, "a", "t", "u", assignor="range").join(),
        Consumer(scene, "b", "t", "u", assignor="range").join(),
        Consumer(scene, "c", "t", "u", assignor="uniform").join(),
    ]
    scene.settle(*members)
    assert [member.has("t") for member in members] == [{0, 1}, {2, 3}, {4, 5}]
    assert [member.has("u") for member in members] == [{0, 1}, {2, 3}, {4, 5}]


def test_nobody_subscribing_to_anything_is_a_group_all_the_same(scene: Scene) -> None:
    consumer = Consumer(scene, "a").join()
    assert consumer.size == 0
    assert scene.group().state is GroupState.STABLE


def test_a_write_that_fails_changes_nothing(scene: Scene) -> None:
    scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    assert code_of(scene, joining("a", "t")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "g" not in scene.shard_of("g").groups
    consumer = Consumer(scene, "a", "t").join()
    scene.topic("t", 7)
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    assert code_of(scene, consumer.request()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.group().epoch == 2
    consumer.beat()
    assert consumer.size == 7


def test_a_record_of_partition_metadata_that_an_older_kafka_left_is_forgotten(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    key = stored.ConsumerGroupPartitionMetadataKey(group_id="g")
    scene.shard_of("g").consumer.replay(key, stored.ConsumerGroupPartitionMetadataValue())
    scene.topic("t", 7)
    consumer.beat()
    assert (key, None) in [(record.key, record.value) for record in scene.records()]
    assert not scene.group().has_partition_metadata
