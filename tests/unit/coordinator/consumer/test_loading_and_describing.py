"""What a restart keeps, what tools are shown, what offsets ask, and what is refused at the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.coordinator import answer
from tests.unit.coordinator.consumer.classic_consumer import ClassicConsumer
from tests.unit.coordinator.consumer.scene import ASSIGNMENT_INTERVAL_MS, Consumer, Scene, topic_id

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.validation import check_heartbeat, check_served
from tidelog.coordinator.group.shard import SCHEMAS
from tidelog.coordinator.stored_record import encode_key, encode_value
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.internal_topics import consumer_offsets as stored
from tidelog.wire.messages.consumer_group_describe import Assignment, DescribedGroup, TopicPartitions
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.consumer_group_heartbeat import TopicPartitions as Owned


def snapshot(group: ConsumerGroup) -> dict[str, Any]:
    return {
        "epoch": group.epoch,
        "hash": group.metadata_hash,
        "assignment": (group.assignment_epoch, group.assigned_at_ms),
        "members": group.members,
        "targets": group.targets,
        "static": group.static_members,
        "resolved": group.subscriptions.resolved,
        "topics": group.subscriptions.topics,
    }


def test_a_restart_keeps_everything_that_is_in_records(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", instance_id="i").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    Consumer(scene, "b", regex="t.*").join()
    ClassicConsumer(scene, "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    first.beat()
    before = snapshot(scene.group())
    scene.move()
    assert snapshot(scene.group()) == before
    assert scene.group().state_name == "Reconciling"


def test_a_crash_takes_back_what_was_not_committed_and_the_member_goes_on() -> None:
    scene = Scene(autocommit=False)
    scene.topic("t", 2)
    joining = scene.send(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
    )
    assert not joining.done
    scene.crash()
    assert isinstance(joining.error, KafkaError)
    assert joining.error.code is ErrorCode.NOT_COORDINATOR
    assert "g" not in scene.shard_of("g").groups


def kafkas_records() -> list[tuple[bytes, bytes]]:
    """What Kafka 4.3 wrote of a group: members static, classic, and with an expression."""
    found = json.loads((Path(__file__).parent / "records.json").read_text(encoding="utf-8"))
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in found]


def test_records_that_kafka_wrote_are_read_and_would_be_written_alike(scene: Scene) -> None:
    for key, value in kafkas_records():
        decoded = SCHEMAS.decode_key(key)
        payload = SCHEMAS.decode_value(decoded, value)
        assert payload is not None
        assert (encode_key(decoded), encode_value(payload, 0)) == (key, value)
        scene.shard_of("g").consumer.replay(decoded, payload)
    group = scene.group()
    assert (group.epoch, group.assignment_epoch, group.state_name) == (5, 4, "Assigning")
    assert {member.member_id: member.uses_classic_protocol for member in group.members.values()} == {
        "m0": False,
        "m1": False,
        group.static_members["c0"]: True,
        "m9": False,
    }
    assert group.subscriptions.regexes == {"t|u": 1}
    assert group.subscriptions.resolved["t|u"].topics == {"t", "u"}
    (owned,) = group.members["m0"].assigned.values()
    (given_up,) = group.members["m0"].revoking.values()
    assert (owned, given_up) == ({0: 2, 1: 2, 2: 2}, {3: 2, 4: 2, 5: 2})


def test_tombstones_leave_nothing_behind(scene: Scene) -> None:
    Consumer(scene, "a", "t").join().leave()
    assert answer(scene.write("g", lambda shard: shard.delete_groups(["g"])))[0].error_code == 0
    assert "g" not in scene.shard_of("g").groups
    scene.move()
    assert "g" not in scene.shard_of("g").groups


def test_records_that_contradict_each_other_do_not_keep_others_from_being_loaded(scene: Scene) -> None:
    Consumer(scene, "a", "t").join()
    replay = scene.shard_of("g").consumer.replay
    replay(
        stored.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="ghost"),
        stored.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=1,
            assigned_partitions=[stored.TopicPartitions(topic_id=topic_id("t"), partitions=[0])],
        ),
    )
    assert scene.group().partition_epoch(topic_id("t"), 0) == 2
    replay(stored.ConsumerGroupMetadataKey(group_id="g"), None)
    assert "g" not in scene.shard_of("g").groups
    for key in (
        stored.ConsumerGroupMetadataKey(group_id="x"),
        stored.ConsumerGroupPartitionMetadataKey(group_id="x"),
        stored.ConsumerGroupMemberMetadataKey(group_id="x", member_id="m"),
        stored.ConsumerGroupTargetAssignmentMetadataKey(group_id="x"),
        stored.ConsumerGroupTargetAssignmentMemberKey(group_id="x", member_id="m"),
        stored.ConsumerGroupCurrentMemberAssignmentKey(group_id="x", member_id="m"),
        stored.ConsumerGroupRegularExpressionKey(group_id="x", regular_expression="r"),
    ):
        replay(key, None)
    assert "x" not in scene.shard_of("g").groups


def test_assignments_of_releases_without_epochs_get_the_members(scene: Scene) -> None:
    scene.shard_of("g").consumer.replay(
        stored.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        stored.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            state=99,
            assigned_partitions=[stored.TopicPartitions(topic_id=topic_id("t"), partitions=[1, 2])],
        ),
    )
    assert scene.member("m").assigned == {topic_id("t"): {1: 7, 2: 7}}
    assert scene.member("m").state.name == "UNKNOWN"


def test_a_member_in_an_unknown_state_has_to_rejoin_with_nothing(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    scene.shard_of("g").consumer.replay(
        stored.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
        stored.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=99,
            assigned_partitions=[stored.TopicPartitions(topic_id=topic_id("t"), partitions=[0])],
        ),
    )
    with pytest.raises(KafkaError) as raised:
        consumer.beat()
    assert raised.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    consumer.join()
    assert consumer.size == 6


# Describing


def describe(scene: Scene, group_id: str = "g") -> DescribedGroup:
    return answer(scene.coordinator.read(group_id, lambda shard: shard.consumer.describe(group_id)))


def owned(*partitions: int) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id("t"), topic_name="t", partitions=list(partitions))
        ]
    )


def test_a_group_is_described_with_what_its_members_own_and_are_to_own(scene: Scene) -> None:
    first = Consumer(scene, "a", "t", instance_id="i").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    Consumer(scene, "b", "t", assignor="range").join()
    first.beat()
    group = describe(scene)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert group.assignor_name == "range"
    one, other = group.members
    assert (one.member_id, one.instance_id, one.member_epoch, one.member_type) == ("a", "i", 2, 1)
    assert (one.client_id, one.client_host) == ("client", "/127.0.0.1")
    assert one.subscribed_topic_names == ["t"]
    assert one.assignment == owned(0, 1, 2, 3, 4, 5)
    assert one.target_assignment == owned(0, 1, 2)
    assert other.assignment == Assignment()
    assert other.target_assignment == owned(3, 4, 5)


def test_classic_members_and_the_default_assignor_are_shown_as_such(scene: Scene) -> None:
    Consumer(scene, "a", "t").join()
    ClassicConsumer(scene, "t").join()
    group = describe(scene)
    assert group.assignor_name == "uniform"
    assert [member.member_type for member in group.members] == [1, 0]


def test_what_is_no_consumer_group_is_not_found(scene: Scene) -> None:
    assert describe(scene).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    ClassicConsumer(scene, "t").ask_to_join()
    group = describe(scene)
    assert (group.error_code, group.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )


def test_groups_are_listed_with_their_type_and_state(scene: Scene) -> None:
    Consumer(scene, "a", "t").join()
    (listed,) = answer(run_to_end(scene.coordinator.list_groups([], ["Consumer"])))
    assert (listed.group_id, listed.group_type, listed.group_state, listed.protocol_type) == (
        "g",
        "consumer",
        "Stable",
        "consumer",
    )


# Offsets


def commit(scene: Scene, member_id: str, epoch: int, **changes: Any) -> Any:
    settings: dict[str, Any] = {"transactional": False, "api_version": 9} | changes
    return scene.group().check_offset_commit(member_id, None, epoch, **settings)


def refusal(call: Any, *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call(*args, **kwargs)
    return raised.value.code


def test_commits_need_the_members_epoch(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    assert commit(scene, "a", consumer.epoch) is None
    assert refusal(commit, scene, "a", consumer.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(commit, scene, "who", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(commit, scene, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(commit, scene, "a", consumer.epoch, api_version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(scene, "", -1, transactional=True) is None


def test_an_older_epoch_is_good_for_partitions_that_were_owned_all_the_time(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    second = Consumer(scene, "b", "t").join()
    scene.settle(first, second)
    (kept, *_), (given_away, *_) = sorted(first.has("t")), sorted(second.has("t"))
    check = commit(scene, "a", 2)
    check.check("t", topic_id("t"), kept)
    assert refusal(check.check, "t", topic_id("t"), given_away) is ErrorCode.STALE_MEMBER_EPOCH
    check = commit(scene, "b", 2)
    assert refusal(check.check, "t", topic_id("t"), given_away) is ErrorCode.STALE_MEMBER_EPOCH


def test_what_is_being_given_up_may_still_be_committed(scene: Scene) -> None:
    first = Consumer(scene, "a", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    Consumer(scene, "b", "t").join()
    first.beat()
    (revoking, *_) = scene.member("a").revoking[topic_id("t")]
    commit_check = commit(scene, "a", 1)
    assert refusal(commit_check.check, "t", topic_id("t"), revoking) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(scene, "a", 2) is None
    assert scene.member("a").owned_since(topic_id("t"), revoking) == 2


def test_classic_members_are_told_of_generations(scene: Scene) -> None:
    Consumer(scene, "a", "t").join()
    old = ClassicConsumer(scene, "t")
    old.join()
    assert commit(scene, old.member_id, old.generation, api_version=5) is None
    assert refusal(commit, scene, old.member_id, old.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert refusal(scene.group().check_offset_fetch, old.member_id, 0) is ErrorCode.ILLEGAL_GENERATION


def test_an_empty_group_takes_commits_of_anybody(scene: Scene) -> None:
    Consumer(scene, "a", "t").join().leave()
    assert commit(scene, "", -1) is None
    assert refusal(commit, scene, "a", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_fetches_need_the_members_epoch_if_they_name_one(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "t").join()
    fetch = scene.group().check_offset_fetch
    fetch(None, -1)
    fetch("a", consumer.epoch)
    assert refusal(fetch, "a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(fetch, "who", 2) is ErrorCode.UNKNOWN_MEMBER_ID


# Requests that no group gets to see


FULL: dict[str, Any] = {
    "group_id": "g",
    "member_id": "a",
    "rebalance_timeout_ms": 1000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("changes", "version", "message"),
    [
        ({"member_id": ""}, 1, "MemberId can't be empty."),
        ({"member_id": " ", "member_epoch": -1}, 0, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": 5}, 0, "MemberId can't be empty."),
        ({"group_id": ""}, 1, "GroupId can't be empty."),
        ({"instance_id": ""}, 1, "InstanceId can't be empty."),
        ({"rack_id": " "}, 1, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 1, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, 1, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": [Owned()]}, 1, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            1,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, 1, "InstanceId can't be null."),
        ({"member_epoch": -3}, 1, "MemberEpoch is invalid."),
    ],
)
def test_malformed_heartbeats_are_refused(changes: dict[str, Any], version: int, message: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_heartbeat(ConsumerGroupHeartbeatRequest(**FULL | changes), version, ("uniform",))
    assert (raised.value.code, raised.value.message) == (ErrorCode.INVALID_REQUEST, message)


def test_an_assignor_that_is_not_offered_is_refused() -> None:
    request = ConsumerGroupHeartbeatRequest(**FULL, server_assignor="range")
    check_heartbeat(request, 1, ("uniform", "range"))
    assert refusal(check_heartbeat, request, 1, ("uniform",)) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_the_protocol_is_served_where_options_and_features_allow_it() -> None:
    scene = Scene()
    assert refusal(check_served, scene.coordinator.support) is ErrorCode.UNSUPPORTED_VERSION
    scene.image.features = {"group.version": 1}
    check_served(scene.coordinator.support)
    classic_only = Scene({"group.coordinator.rebalance.protocols": "classic"})
    classic_only.image.features = {"group.version": 1}
    assert refusal(check_served, classic_only.coordinator.support) is ErrorCode.UNSUPPORTED_VERSION
