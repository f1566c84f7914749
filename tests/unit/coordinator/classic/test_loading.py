"""Classic groups from the log, also from logs that Kafka wrote, and what becomes of who waits meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rigs.coordinator import GroupHarness, answer
from tests.unit.coordinator.classic.members import (
    INITIAL_DELAY_MS,
    group,
    join,
    keep_alive,
    stable,
    subscription,
)

from tidelog.coordinator.group.classic.group import ClassicState
from tidelog.coordinator.stored_record import encode_key, encode_value
from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.record import Record, encode_batch
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata


def append(harness: GroupHarness, value: GroupMetadataValue | None, version: int = 3) -> None:
    """Put a record for group g into the log as if somebody else had."""
    data = None if value is None else encode_value(value, version)
    harness.logs[0].append(encode_batch([Record(key=encode_key(GroupMetadataKey(group="g")), value=data)]))


def three_members() -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m1",
        current_state_timestamp=123,
        members=[
            MemberMetadata(
                member_id=f"m{n}",
                group_instance_id="i2" if n == 2 else None,
                client_id=f"c{n}",
                client_host="/10.0.0.1",
                rebalance_timeout=20_000,
                session_timeout=8000,
                subscription=subscription("t"),
                assignment=b"a%d" % n,
            )
            for n in range(3)
        ],
    )


def test_a_stable_group_goes_on_after_a_crash(harness: GroupHarness) -> None:
    generation_id, (leader, follower) = stable(harness, 2, protocols=[("range", subscription("t"))])
    harness.crash()
    assert group(harness).state is ClassicState.STABLE
    assert group(harness).is_subscribed_to("t")
    for member_id in (leader, follower):
        assert harness.heartbeat("g", member_id, generation_id).error_code == ErrorCode.NONE
        assert answer(harness.sync("g", member_id, generation_id)).assignment == member_id.encode()
    assert group(harness).members.leader_id == leader


def test_sessions_begin_when_the_group_is_loaded(harness: GroupHarness) -> None:
    generation_id, ids = stable(harness, 2, session_timeout_ms=10_000)
    harness.crash()
    harness.advance(9999)
    keep_alive(harness, generation_id, ids[0])
    harness.advance(1)
    assert set(group(harness).members) == {ids[0]}


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_value_version_are_read(harness: GroupHarness, version: int) -> None:
    append(harness, three_members(), version)
    harness.move()
    loaded = group(harness)
    assert (loaded.generation_id, loaded.protocol_name, loaded.members.leader_id) == (7, "range", "m1")
    assert loaded.state is ClassicState.STABLE
    assert loaded.state_since_ms == (123 if version >= 2 else None)
    member = loaded.members["m2"]
    assert member.group_instance_id == ("i2" if version >= 3 else None)
    assert member.rebalance_timeout_ms == (20_000 if version >= 1 else 8000)
    assert (member.session_timeout_ms, member.client_id, member.client_host) == (8000, "c2", "/10.0.0.1")
    assert (member.assignment, member.protocols) == (b"a2", (("range", subscription("t")),))


def test_a_tombstone_forgets_the_group(harness: GroupHarness) -> None:
    append(harness, three_members())
    append(harness, None)
    harness.move()
    assert "g" not in harness.shard_of("g").groups


def test_a_group_without_members_is_empty(harness: GroupHarness) -> None:
    append(harness, GroupMetadataValue(protocol_type="consumer", generation=4, protocol=None, leader=None))
    harness.move()
    assert group(harness).state is ClassicState.EMPTY
    assert group(harness).state_since_ms is None
    _, joined = join(harness)
    harness.advance(INITIAL_DELAY_MS)
    assert answer(joined).generation_id == 5


def test_a_loaded_group_that_is_too_large_shrinks() -> None:
    harness = GroupHarness({"group.max.size": "2"})
    append(harness, three_members())
    harness.move()
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    assert harness.heartbeat("g", "m0", 7).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    options: dict[str, Any] = {"protocols": [("range", subscription("t"))], "session_timeout_ms": 30_000}
    replies = [harness.join("g", f"m{n}", **options) for n in (0, 1)]
    last = answer(harness.join("g", "m2", instance_id="i2", **options))
    assert last.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.advance(30_000)
    assert [answer(reply).generation_id for reply in replies] == [8, 8]


def test_an_unfinished_rebalance_is_forgotten_by_a_crash_and_begins_again(harness: GroupHarness) -> None:
    generation_id, (leader, _) = stable(harness, 2)
    newcomer, reply = join(harness)
    harness.crash()
    assert answer(reply).error_code == ErrorCode.NOT_COORDINATOR
    assert group(harness).state is ClassicState.STABLE
    assert harness.heartbeat("g", leader, generation_id).error_code == ErrorCode.NONE
    assert answer(harness.join("g", newcomer)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignment_that_was_not_committed_is_gone_after_a_crash(harness: GroupHarness) -> None:
    (leader, _), (follower, _) = join(harness), join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    harness.log_of("g").autocommit = False
    waiting = harness.sync("g", follower, 1)
    own = harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    harness.crash()
    assert isinstance(own.error, KafkaError)
    assert own.error.code is ErrorCode.NOT_COORDINATOR
    assert answer(waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert group(harness).state is ClassicState.EMPTY
    assert harness.heartbeat("g", leader, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Unloading


def test_who_waits_is_told_that_the_group_is_led_elsewhere(harness: GroupHarness) -> None:
    _, joining = join(harness)
    harness.unload()
    assert answer(joining).error_code == ErrorCode.NOT_COORDINATOR
    reply = harness.join("g", "m")
    assert isinstance(reply.error, KafkaError)
    assert reply.error.code is ErrorCode.NOT_COORDINATOR


def test_who_waits_for_an_assignment_is_told_that_the_group_is_led_elsewhere(harness: GroupHarness) -> None:
    (_, _), (follower, _) = join(harness), join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    waiting = harness.sync("g", follower, 1)
    harness.unload()
    assert answer(waiting).error_code == ErrorCode.NOT_COORDINATOR


def test_nothing_of_an_unloaded_shard_runs_any_more(harness: GroupHarness) -> None:
    (leader, _), (follower, _) = join(harness), join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    harness.log_of("g").autocommit = False
    harness.sync("g", follower, 1)
    harness.sync("g", leader, 1, {leader: b"a"})
    harness.join("other")
    harness.unload()
    assert len(harness.timers) == 0
