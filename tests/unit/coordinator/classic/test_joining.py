"""JoinGroup: who is let in, what is answered in which version, and how long the first rebalance waits."""

from __future__ import annotations

import re

import pytest
from tests.rigs.coordinator import GroupHarness, answer
from tests.unit.coordinator.classic.members import INITIAL_DELAY_MS, group, join, new_id, stable, subscription

from tidelog.coordinator.group.classic.group import ClassicState
from tidelog.coordinator.group.classic.subscription import MAX_NAMES, subscribed_topics
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.wire.codec import encode
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataKey, GroupMetadataValue


def test_a_new_dynamic_member_has_to_come_back_with_its_id(harness: GroupHarness) -> None:
    first = answer(harness.join("g", client_id="abc"))
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert re.fullmatch(r"abc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first.member_id)
    assert group(harness).members == {}

    second = harness.join("g", first.member_id)
    assert not second.done
    harness.advance(INITIAL_DELAY_MS)
    response = answer(second)
    assert response.error_code == ErrorCode.NONE
    assert (response.member_id, response.leader, response.generation_id) == (first.member_id,) * 2 + (1,)
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in response.members] == [first.member_id]


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_member_is_let_in_at_once(harness: GroupHarness, version: int) -> None:
    reply = harness.join("g", version=version)
    assert not reply.done
    assert len(group(harness).members) == 1
    harness.advance(INITIAL_DELAY_MS)
    assert answer(reply).generation_id == 1


def test_a_static_member_is_let_in_at_once(harness: GroupHarness) -> None:
    reply = harness.join("g", instance_id="i1")
    harness.advance(INITIAL_DELAY_MS)
    response = answer(reply)
    assert response.error_code == ErrorCode.NONE
    assert response.member_id.startswith("i1-")
    assert response.members[0].group_instance_id == "i1"


def test_version_0_rebalances_as_long_as_its_session(harness: GroupHarness) -> None:
    harness.join("g", version=0, session_timeout_ms=7000, rebalance_timeout_ms=-1)
    (member,) = group(harness).members.values()
    assert member.rebalance_timeout_ms == 7000


@pytest.mark.parametrize(("instance_id", "version"), [(None, 3), ("c" * 32_767, 9)])
def test_the_id_of_a_member_with_a_long_name_fits_into_answers(
    harness: GroupHarness, instance_id: str | None, version: int
) -> None:
    reply = harness.join("g", instance_id=instance_id, client_id="c" * 32_767, version=version)
    harness.advance(INITIAL_DELAY_MS)
    response = answer(reply)
    assert response.error_code == ErrorCode.NONE
    assert re.fullmatch(r"c{1000}-[-0-9a-f]{36}", response.member_id)
    assert encode(response, 9)


def test_a_group_needs_an_id(harness: GroupHarness) -> None:
    response = answer(harness.join("", "m"))
    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")


@pytest.mark.parametrize("timeout_ms", [5999, 1_800_001, -1])
def test_session_timeouts_have_bounds(harness: GroupHarness, timeout_ms: int) -> None:
    response = answer(harness.join("g", session_timeout_ms=timeout_ms))
    assert response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert "g" not in harness.shard_of("g").groups


def test_an_id_that_nobody_gave_out_is_unknown(harness: GroupHarness) -> None:
    response = answer(harness.join("g", "made-up"))
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "made-up")
    assert "g" not in harness.shard_of("g").groups

    new_id(harness)
    assert answer(harness.join("g", "made-up")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_of_an_emptied_group_is_unknown(harness: GroupHarness) -> None:
    _, (member_id,) = stable(harness, 1)
    answer(harness.leave("g", member_id))
    assert answer(harness.join("g", member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_not_used_within_the_session_timeout_is_forgotten(harness: GroupHarness) -> None:
    member_id = new_id(harness, session_timeout_ms=8000)
    harness.advance(7999)
    assert group(harness).members.pending_join == {member_id}
    harness.advance(1)
    assert group(harness).members.pending_join == set()
    assert answer(harness.join("g", member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_without_protocols_is_refused_and_leaves_no_group(harness: GroupHarness) -> None:
    for reply in (harness.join("g", protocols=()), harness.join("g", protocol_type="")):
        assert answer(reply).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "g" not in harness.shard_of("g").groups
    assert harness.records() == []


def test_a_member_that_shares_no_protocol_with_the_others_is_refused(harness: GroupHarness) -> None:
    stable(harness, 1, protocols=[("range", b""), ("roundrobin", b"")])
    other = answer(harness.join("g", protocols=[("sticky", b"")]))
    assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    connect = answer(harness.join("g", protocol_type="connect"))
    assert connect.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert new_id(harness, protocols=[("roundrobin", b"")])


def test_the_protocol_that_most_members_want_is_chosen_of_those_that_all_support(
    harness: GroupHarness,
) -> None:
    members = [
        join(harness, protocols=[("a", b"1"), ("b", b"2"), ("c", b"3")]),
        join(harness, protocols=[("c", b"4"), ("b", b"5")]),
        join(harness, protocols=[("b", b"6"), ("c", b"7"), ("d", b"8")]),
    ]
    harness.advance(2 * INITIAL_DELAY_MS)
    responses = [answer(reply) for _, reply in members]
    assert {response.protocol_name for response in responses} == {"b"}
    (leader,) = [response for response in responses if response.members]
    assert [member.metadata for member in leader.members] == [b"2", b"5", b"6"]


def test_only_the_leader_learns_who_the_members_are(harness: GroupHarness) -> None:
    (first_id, first), (_, second) = join(harness), join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    assert answer(first).leader == answer(second).leader == first_id
    assert len(answer(first).members) == 2
    assert answer(second).members == []


# The initial delay


def test_the_initial_delay_goes_on_while_members_come(harness: GroupHarness) -> None:
    _, first = join(harness, rebalance_timeout_ms=10_000)
    harness.advance(2000)
    _, second = join(harness, rebalance_timeout_ms=10_000)
    harness.advance(1000)
    assert not first.done
    harness.advance(INITIAL_DELAY_MS)
    assert answer(first).generation_id == answer(second).generation_id == 1


def test_the_initial_delay_ends_with_the_rebalance_timeout(harness: GroupHarness) -> None:
    replies = []
    for _ in range(4):
        replies.append(join(harness, rebalance_timeout_ms=10_000)[1])
        harness.advance(2499)
    assert not any(reply.done for reply in replies)
    # 3000 ms, twice more because members came, and the 1000 ms that are left.
    replies.append(join(harness, rebalance_timeout_ms=10_000)[1])
    harness.advance(4)
    assert all(reply.done for reply in replies)
    assert len(group(harness).members) == 5


def test_without_an_initial_delay_the_first_member_is_a_generation() -> None:
    harness = GroupHarness({"group.initial.rebalance.delay.ms": "0"})
    _, reply = join(harness)
    harness.advance(0)
    assert answer(reply).generation_id == 1


def test_a_new_members_join_does_not_wait_for_ever(harness: GroupHarness) -> None:
    generation_id, (old,) = stable(harness, 1, rebalance_timeout_ms=600_000)
    _, reply = join(harness, rebalance_timeout_ms=600_000)
    for _ in range(60):
        harness.advance(5000)
        assert harness.heartbeat("g", old, generation_id).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert answer(reply).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(group(harness).members) == {old}


# Size


def test_a_full_group_turns_new_members_away() -> None:
    harness = GroupHarness({"group.max.size": "2"})
    _, ids = stable(harness, 2)
    response = answer(harness.join("g"))
    assert (response.error_code, response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert list(group(harness).members) == ids


def test_of_more_pending_members_than_there_is_room_the_last_are_turned_away() -> None:
    harness = GroupHarness({"group.max.size": "2"})
    ids = [new_id(harness) for _ in range(4)]
    replies = [harness.join("g", member_id) for member_id in ids]
    assert [reply.done for reply in replies] == [False, False, True, True]
    for reply in replies[2:]:
        assert answer(reply).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.advance(2 * INITIAL_DELAY_MS)
    assert [answer(reply).error_code for reply in replies[:2]] == [ErrorCode.NONE] * 2


# What is written


def test_a_new_group_is_written_down_empty(harness: GroupHarness) -> None:
    new_id(harness)
    (record,) = harness.records()
    assert record.key == GroupMetadataKey(group="g")
    assert record.value == GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=harness.clock.time_ms(),
    )
    assert record.value_version == 3


def test_a_group_that_cannot_be_written_down_does_not_exist(harness: GroupHarness) -> None:
    for version in (3, 9):
        harness.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        reply = harness.join("g", version=version)
        assert isinstance(reply.error, KafkaError)
        assert reply.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "g" not in harness.shard_of("g").groups
    harness.advance(INITIAL_DELAY_MS)
    stable(harness, 1)


def test_a_members_topics_are_known_from_its_subscription(harness: GroupHarness) -> None:
    stable(harness, 1, protocols=[("range", subscription("a", "b", version=3))])
    assert group(harness).is_subscribed_to("a")
    assert not group(harness).is_subscribed_to("c")


def test_metadata_that_cannot_be_read_may_mean_any_topic(harness: GroupHarness) -> None:
    stable(harness, 1, protocols=[("range", b"\x00\x00\x00\x00\x00\x09")])
    assert group(harness).subscribed_topics is None
    assert group(harness).is_subscribed_to("c")


def test_a_subscription_with_more_names_than_can_be_read_in_a_step_may_mean_any_topic(
    harness: GroupHarness,
) -> None:
    names = 500_000
    stable(harness, 1, protocols=[("range", b"\0\0" + names.to_bytes(4, "big") + b"\0\0" * names)])
    assert group(harness).subscribed_topics is None
    assert group(harness).is_subscribed_to("c")


def test_what_many_members_subscribe_to_is_read_once() -> None:
    topics = [f"topic-{number}" for number in range(MAX_NAMES // 10)]
    same = [subscription(*topics, version=1) + bytes([number]) for number in range(100)]
    others = [subscription(f"t{number}") for number in range(20)]
    assert subscribed_topics([*same, *others]) == {*topics, *(f"t{number}" for number in range(20))}
    different = [subscription(f"topic-of-{number}", *topics) for number in range(10)]
    with pytest.raises(WireError, match=f"at most {MAX_NAMES}"):
        subscribed_topics(different)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\1\0\2a",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
    ],
)
def test_a_subscription_that_is_none_is_not_read(metadata: bytes) -> None:
    with pytest.raises(WireError):
        subscribed_topics([metadata])


def test_joining_again_while_the_leader_assigns_gives_the_same_generation(harness: GroupHarness) -> None:
    (leader, first), (follower, _) = join(harness), join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    assert group(harness).state is ClassicState.COMPLETING_REBALANCE
    again = answer(harness.join("g", leader))
    assert again == answer(first)
    assert answer(harness.join("g", follower)).members == []
    assert group(harness).state is ClassicState.COMPLETING_REBALANCE
