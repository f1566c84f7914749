"""SyncGroup: assignments are handed out once they are in the log, and to nobody if they do not get there."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rigs.coordinator import GroupHarness, answer
from tests.unit.coordinator.classic.members import INITIAL_DELAY_MS, group, join, stable

from tidelog.coordinator.group.classic.group import ClassicState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata


def completing(harness: GroupHarness) -> tuple[str, str]:
    """A group that waits for its leader; leader and follower."""
    (leader, _), (follower, _) = join(harness), join(harness)
    harness.advance(2 * INITIAL_DELAY_MS)
    assert group(harness).state is ClassicState.COMPLETING_REBALANCE
    return leader, follower


def test_followers_wait_for_the_leader(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    waiting = harness.sync("g", follower, 1)
    assert not waiting.done
    own = harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    assert answer(own).assignment == b"a"
    response = answer(waiting)
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"b")
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert group(harness).state is ClassicState.STABLE


def test_a_follower_that_comes_late_gets_its_assignment_at_once(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    for _ in range(2):
        assert answer(harness.sync("g", follower, 1)).assignment == b"b"


def test_whom_the_leader_leaves_out_has_an_empty_assignment(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    harness.sync("g", leader, 1, {leader: b"a", "stranger": b"c"})
    response = answer(harness.sync("g", follower, 1))
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"")
    value = harness.records()[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert {member.member_id: member.assignment for member in value.members} == {leader: b"a", follower: b""}


def test_a_followers_assignments_are_not_listened_to(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    assert not harness.sync("g", follower, 1, {follower: b"everything"}).done
    assert group(harness).state is ClassicState.COMPLETING_REBALANCE
    assert leader in group(harness).members


def test_a_generation_is_one_record_as_kafka_writes_it(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    record = harness.records()[-1]
    assert record.key == GroupMetadataKey(group="g")
    assert record.value_version == 3
    assert record.value == GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=leader,
        current_state_timestamp=harness.clock.time_ms(),
        members=[
            MemberMetadata(
                member_id=member_id,
                client_id="client",
                client_host="/127.0.0.1",
                rebalance_timeout=30_000,
                session_timeout=10_000,
                assignment=assignment,
            )
            for member_id, assignment in ((leader, b"a"), (follower, b"b"))
        ],
    )


def test_who_is_no_member_of_this_generation_is_refused(harness: GroupHarness) -> None:
    generation_id, (leader, _) = stable(harness, 2)

    def code(member_id: str, generation: int, **options: Any) -> int:
        return answer(harness.sync("g", member_id, generation, **options)).error_code

    assert code("nobody", generation_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(leader, generation_id - 1) == ErrorCode.ILLEGAL_GENERATION
    assert code(leader, generation_id + 1) == ErrorCode.ILLEGAL_GENERATION
    assert code(leader, generation_id, protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(leader, generation_id, protocol_name="sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert answer(harness.sync("unknown", leader, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer(harness.sync("", leader, 1)).error_code == ErrorCode.INVALID_GROUP_ID
    assert group(harness).state is ClassicState.STABLE


def test_the_protocol_has_to_be_named_since_version_5(harness: GroupHarness) -> None:
    generation_id, (leader, _) = stable(harness, 2)
    for version, expected in ((4, ErrorCode.NONE), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)):
        reply = harness.sync("g", leader, generation_id, protocol_name=None, version=version)
        assert answer(reply).error_code == expected


def test_a_group_without_members_knows_nobody(harness: GroupHarness) -> None:
    generation_id, (member_id,) = stable(harness, 1)
    answer(harness.leave("g", member_id))
    reply = harness.sync("g", member_id, generation_id)
    assert answer(reply).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# The log


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_written_is_handed_out_to_nobody(
    harness: GroupHarness, refusal: ErrorCode, told: ErrorCode
) -> None:
    leader, follower = completing(harness)
    waiting = harness.sync("g", follower, 1)
    harness.log_of("g").fail_next = KafkaError(refusal)
    own = harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    assert isinstance(own.error, KafkaError)
    assert own.error.code is told
    assert (answer(waiting).error_code, answer(waiting).assignment) == (told, b"")
    assert group(harness).state is ClassicState.PREPARING_REBALANCE

    replies = [harness.join("g", member_id) for member_id in (leader, follower)]
    assert [answer(reply).generation_id for reply in replies] == [2, 2]


def test_an_assignment_too_large_for_the_log_is_an_error(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    waiting = harness.sync("g", follower, 1)
    harness.log_of("g").max_batch_bytes = 1000
    own = harness.sync("g", leader, 1, {leader: bytes(2000)})
    assert isinstance(own.error, KafkaError)
    assert own.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer(waiting).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_nobody_is_answered_before_the_assignment_is_committed(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    harness.log_of("g").autocommit = False
    waiting = harness.sync("g", follower, 1)
    own = harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    assert not waiting.done
    assert not own.done
    harness.log_of("g").commit()
    assert answer(waiting).assignment == b"b"
    assert answer(own).assignment == b"a"


def test_an_assignment_that_is_overtaken_by_a_rebalance_is_dropped(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    harness.log_of("g").autocommit = False
    waiting = harness.sync("g", follower, 1)
    own = harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    rejoined = harness.join("g", follower, protocols=[("range", b"new")])
    assert answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    harness.log_of("g").commit()
    assert answer(own).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
    harness.join("g", leader)
    assert answer(rejoined).generation_id == 2


def test_an_assignment_that_is_not_replicated_in_time_fails(harness: GroupHarness) -> None:
    leader, follower = completing(harness)
    harness.log_of("g").autocommit = False
    waiting = harness.sync("g", follower, 1)
    own = harness.sync("g", leader, 1, {leader: b"a", follower: b"b"})
    harness.advance(5000)
    assert isinstance(own.error, KafkaError)
    assert own.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer(waiting).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group(harness).state is ClassicState.PREPARING_REBALANCE
