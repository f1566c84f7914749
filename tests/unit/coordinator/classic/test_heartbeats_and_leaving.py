"""Heartbeat and LeaveGroup: every answer that Kafka gives."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import GroupHarness, answer
from tests.rigs.memory_log import MemoryLog
from tests.unit.coordinator.classic.members import INITIAL_DELAY_MS, group, join, new_id, stable

from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.leave_group import MemberIdentity


def test_who_is_no_member_of_this_generation_has_to_join(harness: GroupHarness) -> None:
    generation_id, (leader, _) = stable(harness, 2)
    assert harness.heartbeat("g", leader, generation_id).error_code == ErrorCode.NONE
    assert harness.heartbeat("g", "nobody", generation_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat("other", leader, generation_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat("g", leader, generation_id - 1).error_code == ErrorCode.ILLEGAL_GENERATION
    assert harness.heartbeat("g", leader, -1).error_code == ErrorCode.ILLEGAL_GENERATION
    assert harness.heartbeat("", leader, generation_id).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_member_may_heartbeat_before_it_has_its_assignment(harness: GroupHarness) -> None:
    member_id, _ = join(harness)
    harness.advance(INITIAL_DELAY_MS)
    assert harness.heartbeat("g", member_id, 1).error_code == ErrorCode.NONE


def test_a_pending_member_cannot_heartbeat(harness: GroupHarness) -> None:
    member_id = new_id(harness)
    assert harness.heartbeat("g", member_id, 0).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_while_the_group_is_loaded_heartbeats_are_good_and_joins_are_put_off(harness: GroupHarness) -> None:
    class SlowLog(MemoryLog):
        """A log as which is read a member calls."""

        def read(self, offset: int, max_bytes: int) -> bytes:
            heard.append(harness.heartbeat("g", "m", 3).error_code)
            refused.append(harness.join("g").error)
            return super().read(offset, max_bytes)

    heard: list[int] = []
    refused: list[Exception | None] = []
    assert harness.coordinator.runtime.load_nowait(0, 9, SlowLog())
    assert heard == [ErrorCode.NONE]
    (error,) = refused
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_members_leave_together_each_with_its_own_answer(harness: GroupHarness) -> None:
    _, (leader, *others) = stable(harness, 3)
    pending = new_id(harness)
    response = answer(harness.leave("g", others[0], "nobody", pending, others[1]))
    assert response.error_code == ErrorCode.NONE
    assert [(each.member_id, each.error_code) for each in response.members] == [
        (others[0], ErrorCode.NONE),
        ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        (pending, ErrorCode.NONE),
        (others[1], ErrorCode.NONE),
    ]
    assert set(group(harness).members) == {leader}
    assert group(harness).members.pending_join == set()


def test_leaving_a_group_that_is_not_there_makes_members_unknown(harness: GroupHarness) -> None:
    response = answer(harness.leave("none", "a", MemberIdentity(member_id="b", group_instance_id="i")))
    assert response.error_code == ErrorCode.NONE
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in response.members] == [
        ("a", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert answer(harness.leave("", "a")).error_code == ErrorCode.INVALID_GROUP_ID


def test_leaving_twice_is_refused(harness: GroupHarness) -> None:
    _, (leader, follower) = stable(harness, 2)
    assert answer(harness.leave("g", follower)).members[0].error_code == ErrorCode.NONE
    assert answer(harness.leave("g", follower)).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(group(harness).members) == {leader}


@pytest.mark.parametrize("version", range(3))
def test_before_version_3_the_one_member_leaves(harness: GroupHarness, version: int) -> None:
    _, (leader, follower) = stable(harness, 2)
    response = answer(harness.leave("g", follower, version=version))
    assert [each.error_code for each in response.members] == [ErrorCode.NONE]
    assert set(group(harness).members) == {leader}


def test_a_pending_member_that_leaves_ends_the_wait_for_it(harness: GroupHarness) -> None:
    _, (leader,) = stable(harness, 1)
    pending = new_id(harness)
    reply = harness.join("g", leader)
    assert not reply.done
    answer(harness.leave("g", pending))
    assert answer(reply).generation_id == 2


def test_an_empty_answer_for_nobody(harness: GroupHarness) -> None:
    stable(harness, 1)
    assert answer(harness.leave("g")).members == []
