"""Groups that change their protocol while they work: upgrade and downgrade."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import answer
from tests.unit.coordinator.consumer.classic_consumer import (
    SESSION_MS,
    ClassicConsumer,
    classic_group,
    found,
    run,
)
from tests.unit.coordinator.consumer.scene import (
    ASSIGNMENT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    Consumer,
    Scene,
    assignment,
    subscription,
    topic_id,
)

from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.codec import encode
from tidelog.wire.internal_topics import consumer_offsets as stored
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
)

# Upgrade


def test_the_first_heartbeat_turns_a_classic_group_into_a_consumer_group(scene: Scene) -> None:
    old, other = classic_group(scene, None, None)
    new = Consumer(scene, "new", "t").join()
    group = found(scene)
    assert isinstance(group, ConsumerGroup)
    assert group.members.keys() == {old.member_id, other.member_id, "new"}
    assert group.epoch == old.generation + 1
    assert scene.member(old.member_id).assigned == {topic_id("t"): {0: 1, 1: 1, 2: 1}}
    run(scene, old, other, new)
    assert [old.size, other.size, new.size] == [2, 2, 2]


def test_an_upgrade_writes_kafkas_records_in_kafkas_order(scene: Scene) -> None:
    classic_group(scene, None)
    before = len(scene.records())
    Consumer(scene, "new", "t").join()
    written = [(type(each.key), each.value is None) for each in scene.records()[before:]]
    assert written[:6] == [
        (stored.GroupMetadataKey, True),
        (stored.ConsumerGroupMemberMetadataKey, False),
        (stored.ConsumerGroupMetadataKey, False),
        (stored.ConsumerGroupTargetAssignmentMemberKey, False),
        (stored.ConsumerGroupTargetAssignmentMetadataKey, False),
        (stored.ConsumerGroupCurrentMemberAssignmentKey, False),
    ]
    assert written[6:8] == [
        (stored.ConsumerGroupMemberMetadataKey, False),
        (stored.ConsumerGroupMetadataKey, False),
    ]


def test_an_empty_classic_group_makes_way(scene: Scene) -> None:
    (old,) = classic_group(scene, None)
    answer(scene.leave("g", old.member_id))
    assert found(scene) is not None
    new = Consumer(scene, "new", "t").join()
    assert isinstance(found(scene), ConsumerGroup)
    assert (new.epoch, new.size) == (2, 6)


def test_whoever_waits_for_a_rebalance_is_told_to_rejoin(scene: Scene) -> None:
    classic_group(scene, None)
    second = ClassicConsumer(scene, "t")
    second.member_id = answer(second.ask_to_join()).member_id
    waiting = second.ask_to_join()
    assert not waiting.done
    Consumer(scene, "new", "t").join()
    assert answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    second.join()
    assert scene.group().has_member(second.member_id)


def test_a_group_is_upgraded_while_it_changes_its_assignor(scene: Scene) -> None:
    old, other = classic_group(scene, None, None)
    waiting = scene.join("g", old.member_id, protocols=[("range", subscription("t"))])
    group = found(scene)
    assert isinstance(group, ClassicGroup)
    assert group.protocol_name == "cooperative-sticky"
    new = Consumer(scene, "new", "t").join()
    assert answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.group().members.keys() == {old.member_id, other.member_id, new.member_id}
    assert scene.member(old.member_id).topics == {"t"}


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_no_upgrade_where_the_policy_forbids_it(policy: str) -> None:
    scene = Scene({"group.consumer.migration.policy": policy})
    scene.topic("t", 6)
    classic_group(scene, None)
    with pytest.raises(KafkaError) as raised:
        Consumer(scene, "new", "t").join()
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(found(scene), ClassicGroup)


def test_no_upgrade_of_a_group_that_is_no_consumers_group(scene: Scene) -> None:
    scene.join("g", protocol_type="connect", protocols=[("default", b"")], version=3)
    with pytest.raises(KafkaError) as raised:
        Consumer(scene, "new", "t").join()
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_no_upgrade_where_a_custom_assignors_data_would_be_lost(scene: Scene) -> None:
    (old,) = classic_group(scene, None)
    group = found(scene)
    assert isinstance(group, ClassicGroup)
    body = ConsumerProtocolAssignment(user_data=b"mine")
    group.members[old.member_id].assignment = b"\0\1" + encode(body, 1)
    with pytest.raises(KafkaError) as raised:
        Consumer(scene, "new", "t").join()
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


MANY_NAMES = b"\0\0" + (100_000).to_bytes(4, "big") + b"\0\0" * 100_000 + b"\xff" * 4


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1\0\0", MANY_NAMES], ids=len)
def test_no_upgrade_where_the_embedded_bytes_cannot_be_read(scene: Scene, data: bytes) -> None:
    reply = scene.join("g", protocols=[("range", data)], version=3)
    scene.advance(3_000)
    joined = answer(reply)
    scene.sync("g", joined.member_id, joined.generation_id, {}, version=3)
    with pytest.raises(KafkaError) as raised:
        Consumer(scene, "new", "t").join()
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(found(scene), ClassicGroup)


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group_at_work(scene: Scene) -> None:
    (old,) = classic_group(scene, None)
    scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    with pytest.raises(KafkaError):
        Consumer(scene, "new", "t").join()
    assert isinstance(found(scene), ClassicGroup)
    assert old.beat() is ErrorCode.NONE
    scene.advance(SESSION_MS)
    group = found(scene)
    assert group is not None
    assert group.is_empty


def test_an_upgraded_group_is_the_same_after_a_restart(scene: Scene) -> None:
    old, other = classic_group(scene, None, None)
    new = Consumer(scene, "new", "t").join()
    scene.move()
    run(scene, old, other, new)
    assert [old.size, other.size, new.size] == [2, 2, 2]


# Downgrade


def test_when_the_last_new_member_leaves_the_rest_become_a_classic_group(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    old, other = ClassicConsumer(scene, "t"), ClassicConsumer(scene, "t")
    for member in (old, other):
        member.join()
        member.sync()
    run(scene, new, old, other)
    new.leave()
    group = found(scene)
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.PREPARING_REBALANCE
    assert group.members.keys() == {old.member_id, other.member_id}
    assert assignment(group.members[old.member_id].assignment) == old.owned
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS

    replies = [member.ask_to_join() for member in (old, other)]
    generations = {answer(reply).generation_id for reply in replies}
    assert generations == {group.generation_id}
    assert answer(replies[0]).protocol_name == "cooperative-sticky"


def test_a_downgrade_writes_the_groups_tombstones_and_the_classic_record(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    old = ClassicConsumer(scene, "t")
    old.join()
    before = len(scene.records())
    new.leave()
    written = scene.records()[before:]
    assert [(type(each.key), each.value is None) for each in written] == [
        *[(stored.ConsumerGroupCurrentMemberAssignmentKey, True)] * 2,
        *[(stored.ConsumerGroupTargetAssignmentMemberKey, True)] * 2,
        (stored.ConsumerGroupTargetAssignmentMetadataKey, True),
        *[(stored.ConsumerGroupMemberMetadataKey, True)] * 2,
        (stored.ConsumerGroupPartitionMetadataKey, True),
        (stored.ConsumerGroupMetadataKey, True),
        (stored.GroupMetadataKey, False),
    ]
    scene.move()
    group = found(scene)
    assert isinstance(group, ClassicGroup)
    assert group.members.keys() == {old.member_id}


def test_a_new_member_whose_session_ends_brings_the_downgrade_as_well(scene: Scene) -> None:
    Consumer(scene, "new", "t").join()
    old = ClassicConsumer(scene, "t")
    old.join()
    old.sync()
    for _ in range(9):
        scene.advance(SESSION_TIMEOUT_MS // 9)
        if isinstance(found(scene), ConsumerGroup):
            old.keep_up()
    assert isinstance(found(scene), ClassicGroup)


@pytest.mark.parametrize("options", [{"group.consumer.migration.policy": "upgrade"}, {"group.max.size": "1"}])
def test_no_downgrade_where_it_is_not_allowed(options: dict[str, str]) -> None:
    scene = Scene(options)
    scene.topic("t", 6)
    new = Consumer(scene, "new", "t").join()
    members = [ClassicConsumer(scene, "t"), ClassicConsumer(scene, "t")]
    for member in members:
        member.join()
    new.leave()
    assert isinstance(found(scene), ConsumerGroup)


def join_with(
    scene: Scene, *protocols: tuple[str, bytes], member_id: str = "", instance_id: str | None = None
) -> str:
    """A classic member that has all the time in the world."""
    reply = scene.join(
        "g",
        member_id,
        instance_id=instance_id,
        protocols=protocols,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
    )
    response = answer(reply)
    assert response.error_code == ErrorCode.NONE
    return response.member_id


def test_no_downgrade_where_the_metadata_in_the_common_protocol_cannot_be_read(scene: Scene) -> None:
    Consumer(scene, "new", "t").join()
    join_with(scene, ("range", subscription("t")), ("x", b""), member_id="a")
    join_with(scene, ("x", subscription("t")), member_id="b")
    scene.advance(SESSION_TIMEOUT_MS)
    group = found(scene)
    assert isinstance(group, ConsumerGroup)
    assert group.members.keys() == {"a", "b"}


def test_no_downgrade_by_replacing_where_the_metadata_cannot_be_read(scene: Scene) -> None:
    Consumer(scene, "new", "t", instance_id="i").join()
    join_with(scene, ("range", subscription("t")), ("x", b""), member_id="a")
    heir = join_with(scene, ("x", subscription("t")), instance_id="i")
    group = found(scene)
    assert isinstance(group, ConsumerGroup)
    assert group.members.keys() == {"a", heir}


def test_a_downgrade_that_cannot_be_written_leaves_the_consumer_group_at_work(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    old = ClassicConsumer(scene, "t")
    old.join()
    old.sync()
    scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    with pytest.raises(KafkaError):
        new.leave()
    assert isinstance(found(scene), ConsumerGroup)
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    new.join()
    old.keep_up()
    scene.advance(SESSION_TIMEOUT_MS)
    group = found(scene)
    assert group is not None
    assert group.is_empty


def test_a_classic_member_that_replaces_the_last_new_static_one_takes_over_its_partitions(
    scene: Scene,
) -> None:
    Consumer(scene, "new", "t", instance_id="i").join()
    old = ClassicConsumer(scene, "t", instance_id="i")
    response = old.join()
    group = found(scene)
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.STABLE
    assert group.generation_id == response.generation_id == 2
    assert old.sync() is ErrorCode.NONE
    assert old.owned == {"t": [0, 1, 2, 3, 4, 5]}
    scene.move()
    again = found(scene)
    assert isinstance(again, ClassicGroup)
    assert again.members.keys() == {old.member_id}


def test_with_another_subscription_it_takes_over_and_the_group_rebalances(scene: Scene) -> None:
    scene.topic("u", 1)
    Consumer(scene, "new", "t", instance_id="i").join()
    old = ClassicConsumer(scene, "u", instance_id="i")
    old.join()
    group = found(scene)
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicState.PREPARING_REBALANCE


def test_a_new_member_replaces_a_classic_static_one_at_any_time(scene: Scene) -> None:
    classic_group(scene, "i1", "i2")
    new = Consumer(scene, "new", "t", instance_id="i1").join()
    assert new.has("t") == {0, 1, 2}
    assert not scene.member("new").uses_classic_protocol
    assert scene.group().static_members["i1"] == "new"


def test_an_empty_consumer_group_makes_way_for_a_classic_one(scene: Scene) -> None:
    Consumer(scene, "new", "t").join().leave()
    old = ClassicConsumer(scene, "t")
    old.member_id = answer(old.ask_to_join()).member_id
    reply = old.ask_to_join()
    scene.advance(3_000)
    assert answer(reply).error_code == ErrorCode.NONE
    assert isinstance(found(scene), ClassicGroup)
    scene.move()
    assert isinstance(found(scene), ClassicGroup)
