"""Static members (KIP-345): they keep their place over restarts, and are fenced by the next incarnation."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import GroupHarness, answer
from tests.unit.coordinator.classic.members import INITIAL_DELAY_MS, Timeouts, group, join, stable, sync_all

from tidelog.coordinator.group.classic.group import ClassicState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataValue
from tidelog.wire.messages.leave_group import MemberIdentity


def test_a_static_follower_that_comes_again_gets_its_assignment_without_a_rebalance(
    harness: GroupHarness,
) -> None:
    generation_id, (leader, old) = stable(harness, 2, static=True)
    response = answer(harness.join("g", instance_id="i1"))
    assert response.error_code == ErrorCode.NONE
    assert (response.generation_id, response.leader, response.members) == (generation_id, leader, [])
    assert not response.skip_assignment
    assert response.member_id not in ("", old)
    assert group(harness).state is ClassicState.STABLE
    synced = answer(harness.sync("g", response.member_id, generation_id, instance_id="i1"))
    assert synced.assignment == old.encode()


def test_a_static_leader_that_comes_again_is_told_to_skip_assigning(harness: GroupHarness) -> None:
    generation_id, (leader, follower) = stable(harness, 2, static=True)
    response = answer(harness.join("g", instance_id="i0", version=9))
    assert response.skip_assignment
    assert response.leader == response.member_id != leader
    assert {member.member_id for member in response.members} == {response.member_id, follower}
    assert response.generation_id == generation_id
    synced = answer(harness.sync("g", response.member_id, generation_id, instance_id="i0"))
    assert synced.assignment == leader.encode()


def test_before_version_9_a_static_leader_that_comes_again_does_not_know_that_it_leads(
    harness: GroupHarness,
) -> None:
    _, (leader, _) = stable(harness, 2, static=True)
    response = answer(harness.join("g", instance_id="i0", version=8))
    assert not response.skip_assignment
    assert response.leader == leader != response.member_id
    assert response.members == []
    assert group(harness).members.leader_id == response.member_id


def test_the_old_incarnation_is_fenced(harness: GroupHarness) -> None:
    generation_id, (_, old) = stable(harness, 2, static=True)
    answer(harness.join("g", instance_id="i1"))
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat("g", old, generation_id, instance_id="i1").error_code == fenced
    assert answer(harness.sync("g", old, generation_id, instance_id="i1")).error_code == fenced
    assert answer(harness.join("g", old, instance_id="i1")).error_code == fenced
    left = answer(harness.leave("g", MemberIdentity(member_id=old, group_instance_id="i1")))
    assert left.members[0].error_code == fenced
    with pytest.raises(KafkaError) as raised:
        group(harness).check_offset_commit(old, "i1", generation_id, transactional=False, api_version=9)
    assert raised.value.code is fenced


def test_an_instance_that_is_not_in_the_group_is_unknown(harness: GroupHarness) -> None:
    generation_id, (leader, _) = stable(harness, 2, static=True)
    code = harness.heartbeat("g", leader, generation_id, instance_id="i9").error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer(harness.join("g", leader, instance_id="i9")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_incarnation_that_waits_is_fenced_by_the_next(harness: GroupHarness) -> None:
    first = harness.join("g", instance_id="i0")
    second = harness.join("g", instance_id="i0")
    assert answer(first).error_code == ErrorCode.FENCED_INSTANCE_ID
    harness.advance(2 * INITIAL_DELAY_MS)
    assert answer(second).error_code == ErrorCode.NONE
    assert group(harness).members.awaiting_join_count == 0
    assert len(group(harness).members) == 1


def test_an_incarnation_that_waits_for_its_assignment_is_fenced_and_the_group_begins_again(
    harness: GroupHarness,
) -> None:
    replies = [harness.join("g", instance_id=f"i{n}") for n in range(2)]
    harness.advance(2 * INITIAL_DELAY_MS)
    leader, follower = (answer(reply).member_id for reply in replies)
    waiting = harness.sync("g", follower, 1, instance_id="i1")
    again = harness.join("g", instance_id="i1")
    assert answer(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert not again.done, "the old id may be in the assignment already"
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    first = harness.join("g", leader, instance_id="i0")
    assert answer(first).generation_id == answer(again).generation_id == 2


def test_another_protocol_makes_the_group_rebalance(harness: GroupHarness) -> None:
    protocols = [("a", b""), ("b", b"")]
    _, (leader, _) = stable(harness, 2, static=True, protocols=protocols)
    again = harness.join("g", instance_id="i1", protocols=[("b", b"")])
    assert not again.done
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    rejoined = answer(harness.join("g", leader, instance_id="i0", protocols=protocols))
    assert rejoined.protocol_name == answer(again).protocol_name == "b"


def test_a_static_member_is_not_put_out_by_a_rebalance_only_by_its_session(harness: GroupHarness) -> None:
    options: Timeouts = {"session_timeout_ms": 50_000, "rebalance_timeout_ms": 10_000}
    generation_id, (leader, silent) = stable(harness, 2, static=True, **options)
    _, joined = join(harness, **options)
    rejoined = harness.join("g", leader, instance_id="i0", **options)
    harness.advance(10_000)
    response = answer(rejoined)
    assert response.generation_id == answer(joined).generation_id == generation_id + 1
    assert silent in {member.member_id for member in response.members}, "it keeps its partitions"


def test_a_rebalance_to_which_no_static_member_comes_waits_for_their_sessions(harness: GroupHarness) -> None:
    options: Timeouts = {"session_timeout_ms": 25_000, "rebalance_timeout_ms": 10_000}
    _, (leader, follower) = stable(harness, 2, static=True, **options)
    answer(harness.leave("g", MemberIdentity(member_id=follower, group_instance_id="i1")))
    harness.advance(20_000)
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    assert set(group(harness).members) == {leader}
    harness.advance(15_000)
    assert group(harness).state is ClassicState.EMPTY


def test_an_administrator_takes_a_static_member_out_by_its_instance_id(harness: GroupHarness) -> None:
    _, (leader, _) = stable(harness, 2, static=True)
    left = answer(
        harness.leave("g", MemberIdentity(group_instance_id="i1"), MemberIdentity(group_instance_id="i7"))
    )
    assert [(each.group_instance_id, each.error_code) for each in left.members] == [
        ("i1", ErrorCode.NONE),
        ("i7", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert set(group(harness).members) == {leader}
    assert set(group(harness).members.by_instance_id) == {"i0"}


def test_the_new_incarnation_is_in_the_log(harness: GroupHarness) -> None:
    generation_id, (_, old) = stable(harness, 2, static=True)
    new = answer(harness.join("g", instance_id="i1")).member_id
    value = harness.records()[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert {(member.group_instance_id, member.assignment) for member in value.members} >= {
        ("i1", old.encode())
    }
    harness.crash()
    assert harness.heartbeat("g", new, generation_id, instance_id="i1").error_code == ErrorCode.NONE
    code = harness.heartbeat("g", old, generation_id, instance_id="i1").error_code
    assert code == ErrorCode.FENCED_INSTANCE_ID


def test_a_new_incarnation_that_cannot_be_written_does_not_replace_the_old(harness: GroupHarness) -> None:
    generation_id, (leader, old) = stable(harness, 2, static=True)
    harness.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    reply = harness.join("g", instance_id="i1", protocols=[("range", b"new")])
    assert isinstance(reply.error, KafkaError)
    assert reply.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(group(harness).members) == {leader, old}
    assert group(harness).members[old].metadata("range") == b""
    assert group(harness).members.awaiting_join_count == 0
    assert harness.heartbeat("g", old, generation_id, instance_id="i1").error_code == ErrorCode.NONE


def test_an_incarnation_whose_record_is_on_its_way_is_part_of_a_rebalance_that_begins_meanwhile() -> None:
    harness = GroupHarness(autocommit=False)
    replies = [harness.join("g", instance_id=f"i{n}") for n in range(2)]
    harness.log_of("g").commit()
    harness.advance(2 * INITIAL_DELAY_MS)
    responses = [answer(reply) for reply in replies]
    leader = responses[0].leader
    waiting = [
        harness.sync("g", each.member_id, 1, {each.member_id: b"x"} if each.member_id == leader else {})
        for each in responses
    ]
    harness.log_of("g").commit()
    assert all(reply.done for reply in waiting)

    again = harness.join("g", instance_id="i1")
    rejoined = harness.join("g", leader, instance_id="i0")
    harness.log_of("g").commit()
    assert answer(again).generation_id == answer(rejoined).generation_id == 2


def test_static_and_dynamic_members_are_in_one_group(harness: GroupHarness) -> None:
    static = harness.join("g", instance_id="i0")
    _, dynamic = join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    assert sync_all(harness, [answer(static), answer(dynamic)]) == 1
