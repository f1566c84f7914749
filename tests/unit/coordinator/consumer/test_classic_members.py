"""Members of the classic protocol in a consumer group."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import answer
from tests.unit.coordinator.consumer.classic_consumer import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicConsumer,
    classic_group,
    run,
)
from tests.unit.coordinator.consumer.scene import ASSIGNMENT_INTERVAL_MS, Consumer, Scene, subscription

from tidelog.coordinator.group.consumer.member import MemberState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.leave_group import MemberIdentity


def test_classic_and_new_members_share_a_group(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    old = ClassicConsumer(scene, "t")
    response = old.join()
    assert (response.leader, response.members) == ("", [])
    assert response.protocol_type == "consumer"
    assert response.protocol_name == "cooperative-sticky"
    assert old.sync() is ErrorCode.NONE
    run(scene, new, old)
    assert (new.size, old.size) == (3, 3)
    assert {*new.has("t"), *old.owned["t"]} == set(range(6))


def test_a_new_dynamic_member_is_told_its_id_first(scene: Scene) -> None:
    Consumer(scene, "new", "t").join()
    old = ClassicConsumer(scene, "t")
    response = answer(old.ask_to_join())
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id
    assert not scene.group().has_member(response.member_id)


def test_a_classic_member_gives_partitions_up_by_rejoining_without_them(scene: Scene) -> None:
    (old,) = classic_group(scene, None)
    new = Consumer(scene, "new", "t").join()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    assert scene.member(old.member_id).state is MemberState.UNREVOKED_PARTITIONS
    assert old.sync() is ErrorCode.NONE
    assert old.size == 3
    new.beat()
    assert new.size == 0
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    assert scene.member(old.member_id).state is MemberState.STABLE
    new.beat()
    assert new.size == 3
    assert old.sync() is ErrorCode.NONE
    assert old.beat() is ErrorCode.NONE


def test_a_classic_member_is_told_when_partitions_it_waits_for_are_free(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    old = ClassicConsumer(scene, "t")
    old.join()
    old.sync()
    assert (old.size, old.beat()) == (0, ErrorCode.NONE)
    new.beat()
    new.beat()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    old.sync()
    assert old.size == 3


def test_classic_members_share_what_a_member_that_left_had_though_nobody_else_calls() -> None:
    scene = Scene({"group.consumer.migration.policy": "upgrade"})
    scene.topic("t", 6)
    new = Consumer(scene, "new", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    members = [ClassicConsumer(scene, "t"), ClassicConsumer(scene, "t")]
    for member in members:
        member.join()
        member.sync()
    run(scene, new, *members)
    assert [new.size, *(member.size for member in members)] == [2, 2, 2]
    new.leave()
    run(scene, *members)
    assert [member.size for member in members] == [3, 3]
    assert [member.beat() for member in members] == [ErrorCode.NONE] * 2


def test_a_classic_member_is_told_of_a_leave_while_the_last_new_member_is_silent(scene: Scene) -> None:
    new, dead = Consumer(scene, "new", "t").join(), Consumer(scene, "dead", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    old = ClassicConsumer(scene, "t")
    old.join()
    old.sync()
    run(scene, new, dead, old)
    new.leave()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    run(scene, old)
    assert old.size == 3
    assert scene.member(old.member_id).epoch == scene.group().epoch


def test_a_classic_member_rejoins_for_a_moved_group_epoch_once_targets_may_be_computed(scene: Scene) -> None:
    scene.topic("u", 1)
    new, stays = Consumer(scene, "new", "t").join(), Consumer(scene, "stays", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    old = ClassicConsumer(scene, "u")
    old.join()
    new.leave()
    assert scene.group().assignment_epoch < scene.group().epoch
    assert (old.beat(), old.sync()) == (ErrorCode.NONE, ErrorCode.NONE)
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert old.sync() is ErrorCode.REBALANCE_IN_PROGRESS
    run(scene, old, stays)
    assert (old.size, stays.size) == (1, 6)
    assert (old.beat(), old.sync()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_requests_of_classic_members_are_refused_as_in_kafka(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    old = ClassicConsumer(scene, "t")
    old.join()

    def sync(**changes: object) -> ErrorCode:
        request: dict[str, object] = {"member_id": old.member_id, "generation_id": old.generation}
        request |= {"protocol_name": "cooperative-sticky"} | changes
        reply = scene.sync("g", **request)  # type: ignore[arg-type]
        return reply.error.code if isinstance(reply.error, KafkaError) else ErrorCode.NONE

    assert sync(member_id="who") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(member_id=new.member_id, generation_id=new.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(generation_id=old.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert sync(protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(protocol_name="range") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync() is ErrorCode.NONE
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    Consumer(scene, "another", "t").join()
    assert sync() is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", [("range", subscription("t"))]), ("consumer", [("mine", subscription("t"))])],
)
def test_protocols_that_do_not_go_with_those_of_the_others_are_refused(
    scene: Scene, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    Consumer(scene, "new", "t").join()
    ClassicConsumer(scene, "t").join()
    reply = scene.join("g", protocol_type=protocol_type, protocols=protocols)
    assert isinstance(reply.error, KafkaError)
    assert reply.error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_have_no_place_where_migration_is_disabled() -> None:
    scene = Scene({"group.consumer.migration.policy": "disabled"})
    scene.topic("t", 6)
    Consumer(scene, "new", "t").join()
    reply = ClassicConsumer(scene, "t").ask_to_join()
    assert isinstance(reply.error, KafkaError)
    assert reply.error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_unreadable_metadata_is_refused(scene: Scene) -> None:
    Consumer(scene, "new", "t").join()
    before = scene.records()
    reply = scene.join("g", "old", protocols=[("range", b"\0")])
    assert isinstance(reply.error, KafkaError)
    assert reply.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.records() == before


def test_a_silent_classic_member_is_fenced_after_its_own_session_timeout(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    old = ClassicConsumer(scene, "t")
    old.join()
    old.sync()
    scene.advance(SESSION_MS - 1)
    new.beat()
    assert scene.group().has_member(old.member_id)
    scene.advance(1)
    assert not scene.group().has_member(old.member_id)


def test_a_classic_member_that_does_not_sync_or_rejoin_in_time_is_fenced(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    late = ClassicConsumer(scene, "t")
    late.join()
    for _ in range(6):
        scene.advance(REBALANCE_MS // 6)
        new.beat()
        late.beat()
    assert not scene.group().has_member(late.member_id)

    old = ClassicConsumer(scene, "t")
    old.join()
    old.sync()
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    Consumer(scene, "another", "t").join()
    for _ in range(6):
        assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        scene.advance(REBALANCE_MS // 6)
        new.beat()
    assert not scene.group().has_member(old.member_id)


def test_a_classic_member_whose_leave_is_refused_goes_with_its_session(scene: Scene) -> None:
    new = Consumer(scene, "new", "t").join()
    old = ClassicConsumer(scene, "t")
    old.join()
    old.sync()
    scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    assert scene.leave("g", old.member_id).error is not None
    assert scene.group().has_member(old.member_id)
    scene.advance(SESSION_MS)
    new.beat()
    assert not scene.group().has_member(old.member_id)


def test_a_classic_member_whose_join_is_not_committed_in_time_has_a_session_all_the_same(
    scene: Scene,
) -> None:
    new = Consumer(scene, "new", "t").join()
    old = ClassicConsumer(scene, "t")
    old.member_id = answer(old.ask_to_join()).member_id
    scene.log_of("g").autocommit = False
    reply = old.ask_to_join()
    scene.advance(5_000)
    assert isinstance(reply.error, KafkaError)
    scene.log_of("g").autocommit = True
    scene.log_of("g").commit()
    assert scene.group().has_member(old.member_id)
    scene.advance(SESSION_MS)
    new.beat()
    assert not scene.group().has_member(old.member_id)


def test_members_of_either_protocol_leave_with_leave_group(scene: Scene) -> None:
    Consumer(scene, "new", "t").join()
    Consumer(scene, "static", "t", instance_id="i").join()
    stays = Consumer(scene, "stays", "t").join()
    old = ClassicConsumer(scene, "t")
    old.join()
    response = answer(
        scene.leave(
            "g",
            old.member_id,
            MemberIdentity(member_id="", group_instance_id="i"),
            MemberIdentity(member_id="wrong", group_instance_id="i"),
            "who",
        )
    )
    assert [each.error_code for each in response.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert scene.group().members.keys() == {"new", stays.member_id}
