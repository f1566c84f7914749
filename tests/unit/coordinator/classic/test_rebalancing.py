"""Rebalances of groups that have members: what begins one, who is waited for, and for how long."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import GroupHarness, answer
from tests.unit.coordinator.classic.members import (
    INITIAL_DELAY_MS,
    Timeouts,
    group,
    join,
    keep_alive,
    new_id,
    stable,
    sync_all,
)

from tidelog.coordinator.group.classic.group import ClassicState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataValue


def test_a_new_member_makes_everybody_rejoin(harness: GroupHarness) -> None:
    generation_id, (leader, follower) = stable(harness, 2)
    newcomer, joined = join(harness)
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    for member_id in (leader, follower):
        assert harness.heartbeat("g", member_id, generation_id).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    replies = [joined, harness.join("g", follower)]
    assert not any(reply.done for reply in replies)
    replies.append(harness.join("g", leader))
    responses = [answer(reply) for reply in replies]
    assert {response.generation_id for response in responses} == {generation_id + 1}
    assert {response.leader for response in responses} == {leader}
    assert {member.member_id for member in responses[-1].members} == {leader, follower, newcomer}
    assert sync_all(harness, responses) == generation_id + 1


def test_an_id_given_out_during_a_rebalance_is_waited_for(harness: GroupHarness) -> None:
    _, (leader,) = stable(harness, 1)
    newcomer = new_id(harness)
    reply = harness.join("g", leader)
    assert not reply.done
    other = harness.join("g", newcomer)
    assert answer(reply).generation_id == answer(other).generation_id == 2


def test_an_id_that_is_never_used_holds_a_rebalance_up_for_its_session_only(harness: GroupHarness) -> None:
    _, (leader,) = stable(harness, 1, rebalance_timeout_ms=60_000)
    new_id(harness, session_timeout_ms=6000)
    reply = harness.join("g", leader, rebalance_timeout_ms=60_000)
    harness.advance(5999)
    assert not reply.done
    harness.advance(1)
    assert answer(reply).generation_id == 2


def test_members_that_do_not_rejoin_in_time_are_out(harness: GroupHarness) -> None:
    generation_id, (leader, follower) = stable(
        harness, 2, rebalance_timeout_ms=20_000, session_timeout_ms=30_000
    )
    newcomer, joined = join(harness, rebalance_timeout_ms=5000)
    reply = harness.join("g", leader, rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    harness.advance(19_999)
    assert not reply.done
    harness.advance(1)
    assert answer(reply).generation_id == answer(joined).generation_id == generation_id + 1
    assert set(group(harness).members) == {leader, newcomer}
    assert harness.heartbeat("g", follower, generation_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_of_all_members_counts(harness: GroupHarness) -> None:
    stable(harness, 2, rebalance_timeout_ms=7000)
    _, joined = join(harness, rebalance_timeout_ms=9000)
    assert group(harness).members.rebalance_timeout_ms == 9000
    harness.advance(8999)
    assert not joined.done
    harness.advance(1)
    assert answer(joined).error_code == ErrorCode.NONE


def test_a_leader_that_does_not_rejoin_is_followed_by_one_that_did(harness: GroupHarness) -> None:
    _, (leader, follower) = stable(harness, 2, session_timeout_ms=60_000)
    reply = harness.join("g", follower, protocols=[("range", b"new")], session_timeout_ms=60_000)
    harness.advance(30_000)
    response = answer(reply)
    assert response.leader == follower
    assert [member.member_id for member in response.members] == [follower]
    assert leader not in group(harness).members


def test_a_leader_that_rejoins_has_the_group_assigned_anew(harness: GroupHarness) -> None:
    _, (leader, follower) = stable(harness, 2)
    reply = harness.join("g", leader)
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    harness.join("g", follower)
    assert answer(reply).generation_id == 2


def test_a_follower_that_rejoins_unchanged_is_told_its_generation(harness: GroupHarness) -> None:
    generation_id, (leader, follower) = stable(harness, 2)
    response = answer(harness.join("g", follower))
    assert (response.generation_id, response.leader, response.members) == (generation_id, leader, [])
    assert group(harness).state is ClassicState.STABLE


def test_a_follower_with_new_metadata_makes_the_group_rebalance(harness: GroupHarness) -> None:
    _, (leader, follower) = stable(harness, 2)
    changed = harness.join("g", follower, protocols=[("range", b"owned")])
    reply = answer(harness.join("g", leader))
    assert answer(changed).generation_id == reply.generation_id == 2
    assert {member.metadata for member in reply.members} == {b"", b"owned"}


def test_new_metadata_while_the_leader_assigns_begins_again(harness: GroupHarness) -> None:
    (leader, _), (follower, _) = join(harness), join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    waiting = harness.sync("g", leader, 1)
    # The leader's own sync is complete: it has assigned.
    assert waiting.done
    _, joined = join(harness)
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    changed = harness.join("g", follower, protocols=[("range", b"new")])
    assert not changed.done
    harness.join("g", leader)
    assert answer(changed).generation_id == answer(joined).generation_id == 2


def test_who_waits_with_a_sync_is_told_of_the_next_rebalance(harness: GroupHarness) -> None:
    (leader, _), (follower, _) = join(harness), join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    waiting = harness.sync("g", follower, 1)
    assert not waiting.done
    harness.join("g", leader, protocols=[("range", b"new")])
    assert answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert answer(waiting).assignment == b""
    assert answer(harness.sync("g", follower, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


# Sessions


def test_a_silent_members_session_ends_and_the_rest_rebalance(harness: GroupHarness) -> None:
    generation_id, (leader, follower) = stable(harness, 2, session_timeout_ms=10_000)
    harness.advance(9999)
    keep_alive(harness, generation_id, leader)
    harness.advance(1)
    assert set(group(harness).members) == {leader}
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    assert answer(harness.join("g", leader)).generation_id == generation_id + 1
    assert harness.heartbeat("g", follower, generation_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_session_alive(harness: GroupHarness) -> None:
    generation_id, ids = stable(harness, 2, session_timeout_ms=6000)
    for _ in range(20):
        harness.advance(5999)
        for member_id in ids:
            assert harness.heartbeat("g", member_id, generation_id).error_code == ErrorCode.NONE
    assert group(harness).state is ClassicState.STABLE


def test_the_last_members_session_leaves_the_group_empty_and_written_so(harness: GroupHarness) -> None:
    stable(harness, 1)
    harness.advance(10_000)
    assert group(harness).state is ClassicState.EMPTY
    value = harness.records()[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.members, value.leader, value.protocol) == (2, [], None, None)
    assert value.protocol_type == "consumer"
    assert value.current_state_timestamp == harness.clock.time_ms()


def test_a_member_that_waits_for_others_needs_no_heartbeats(harness: GroupHarness) -> None:
    generation_id, (leader, follower) = stable(
        harness, 2, session_timeout_ms=6000, rebalance_timeout_ms=60_000
    )
    reply = harness.join("g", leader, session_timeout_ms=6000, rebalance_timeout_ms=60_000)
    for _ in range(6):
        harness.advance(5000)
        keep_alive(harness, generation_id, follower)
    assert not reply.done
    assert leader in group(harness).members
    harness.join("g", follower, session_timeout_ms=6000, rebalance_timeout_ms=60_000)
    assert answer(reply).error_code == ErrorCode.NONE
    harness.advance(6000)
    assert leader not in group(harness).members, "answered, it has to heartbeat again"


# The sync phase


def test_members_that_do_not_sync_in_time_are_out(harness: GroupHarness) -> None:
    options: Timeouts = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 10_000}
    (leader, _), (follower, _) = join(harness, **options), join(harness, **options)
    harness.advance(2 * INITIAL_DELAY_MS)
    synced = harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    assert answer(synced).assignment == b"a"
    harness.advance(10_000)
    assert set(group(harness).members) == {leader}
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    assert answer(harness.join("g", leader, **options)).generation_id == 2


def test_a_leader_that_never_assigns_is_out_and_the_next_one_leads(harness: GroupHarness) -> None:
    options: Timeouts = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 10_000}
    (leader, _), (follower, _) = join(harness, **options), join(harness, **options)
    harness.advance(2 * INITIAL_DELAY_MS)
    waiting = harness.sync("g", follower, 1)
    harness.advance(10_000)
    assert answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(group(harness).members) == {follower}
    response = answer(harness.join("g", follower, **options))
    assert (response.generation_id, response.leader) == (2, follower)
    assert harness.heartbeat("g", leader, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_is_late_once_all_have_synced(harness: GroupHarness) -> None:
    generation_id, ids = stable(harness, 3, session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    harness.advance(10_000)
    assert group(harness).state is ClassicState.STABLE
    assert set(group(harness).members) == set(ids)
    assert group(harness).generation_id == generation_id


def test_a_session_that_ends_while_the_leader_assigns_begins_the_next_rebalance(
    harness: GroupHarness,
) -> None:
    options: Timeouts = {"session_timeout_ms": 6000, "rebalance_timeout_ms": 60_000}
    (leader, _), (follower, _) = join(harness, **options), join(harness, **options)
    harness.advance(2 * INITIAL_DELAY_MS)
    waiting = harness.sync("g", follower, 1)
    harness.advance(6000)
    assert leader not in group(harness).members
    assert answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS


# Leaving


def test_the_leader_leaves_and_the_rest_go_on(harness: GroupHarness) -> None:
    generation_id, (leader, *others) = stable(harness, 3)
    assert answer(harness.leave("g", leader)).members[0].error_code == ErrorCode.NONE
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    replies = [harness.join("g", member_id) for member_id in others]
    responses = [answer(reply) for reply in replies]
    assert {response.leader for response in responses} == {others[0]}
    assert sync_all(harness, responses) == generation_id + 1


def test_the_last_member_leaves_an_empty_group_at_once(harness: GroupHarness) -> None:
    _, (member_id,) = stable(harness, 1)
    answer(harness.leave("g", member_id))
    assert group(harness).state is ClassicState.EMPTY
    assert group(harness).generation_id == 2


def test_leaving_ends_the_wait_of_the_others(harness: GroupHarness) -> None:
    _, (leader, follower) = stable(harness, 2)
    reply = harness.join("g", leader)
    assert not reply.done
    answer(harness.leave("g", follower))
    assert answer(reply).generation_id == 2


def test_a_member_that_leaves_while_it_waits_is_answered(harness: GroupHarness) -> None:
    stable(harness, 1)
    member_id, reply = join(harness)
    answer(harness.leave("g", member_id))
    assert answer(reply).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    harness.advance(INITIAL_DELAY_MS)
    (leader, _), (follower, _) = join(harness, "h"), join(harness, "h")
    harness.advance(2 * INITIAL_DELAY_MS)
    waiting = harness.sync("h", follower, 1)
    answer(harness.leave("h", follower))
    assert answer(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(group(harness, "h").members) == {leader}


def test_everybody_leaves_during_the_initial_delay_and_the_group_is_empty(harness: GroupHarness) -> None:
    member_id, reply = join(harness)
    answer(harness.leave("g", member_id))
    assert answer(reply).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    harness.advance(2 * INITIAL_DELAY_MS)
    assert group(harness).state is ClassicState.EMPTY
    stable(harness, 1)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_an_empty_group_that_cannot_be_written_is_empty_all_the_same(
    harness: GroupHarness, code: ErrorCode
) -> None:
    stable(harness, 1)
    harness.log_of("g").fail_next = KafkaError(code)
    harness.advance(10_000)
    assert group(harness).state is ClassicState.EMPTY
    stable(harness, 2)


def test_groups_do_not_touch_each_other() -> None:
    harness = GroupHarness(partitions=7)
    stables = {name: stable(harness, 2, name, session_timeout_ms=60_000) for name in ("a", "b", "c", "d")}
    answer(harness.leave("a", stables["a"][1][0]))
    for name in ("b", "c", "d"):
        generation_id, ids = stables[name]
        assert harness.heartbeat(name, ids[0], generation_id).error_code == ErrorCode.NONE
        assert set(group(harness, name).members) == set(ids)
