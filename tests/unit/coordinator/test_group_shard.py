"""What a shard does with groups of any type: list, describe, delete, and forget them in time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.rigs.coordinator import GroupHarness, answer
from tests.rigs.memory_log import MemoryLog
from tests.unit.coordinator.classic.members import join, new_id, stable, subscription

from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState
from tidelog.coordinator.group.group import CommitCheck, Group, GroupType
from tidelog.coordinator.runtime import Result
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.internal_topics.consumer_offsets import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

DAY_MS = 24 * 3600 * 1000


class ForeignGroup(Group):
    """A group of the consumer protocol, as far as a shard looks at it."""

    type = GroupType.CONSUMER

    def __init__(self, group_id: str, *, empty: bool = True) -> None:
        super().__init__(group_id)
        self._empty = empty

    @property
    def state_name(self) -> str:
        return "Empty" if self._empty else "Stable"

    @property
    def is_empty(self) -> bool:
        return self._empty

    @property
    def protocol_type(self) -> str:
        return "consumer"

    def has_member(self, member_id: str) -> bool:
        return False

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> CommitCheck | None:
        return None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        return

    def check_offset_delete(self) -> None:
        return

    def check_delete(self) -> None:
        if not self._empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def tombstones(self) -> list[StoredRecord]:
        return [StoredRecord(ConsumerGroupMetadataKey(group_id=self.group_id), None)]

    def offsets_expire_from(self, committed_at_ms: int) -> int | None:
        return committed_at_ms


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness()


def commit(harness: GroupHarness, group_id: str, topic: str = "t", partition: int = 0) -> None:
    """An offset in the log."""
    record = StoredRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition),
        OffsetCommitValue(offset=5, commit_timestamp=harness.clock.time_ms()),
        3,
    )
    answer(harness.write(group_id, lambda shard: Result([record], None)))


def listed(harness: GroupHarness, states: Sequence[str] = (), types: Sequence[str] = ()) -> set[str]:
    return {group.group_id for group in answer(run_to_end(harness.coordinator.list_groups(states, types)))}


# ListGroups


def test_groups_of_all_shards_are_listed_with_their_state_and_type() -> None:
    harness = GroupHarness(partitions=10)
    for name in ("a", "b", "c"):
        stable(harness, 1, name, session_timeout_ms=60_000)
    new_id(harness, "d")
    commit(harness, "e")
    found = {group.group_id: group for group in answer(run_to_end(harness.coordinator.list_groups([], [])))}
    assert {name: group.group_state for name, group in found.items()} == {
        "a": "Stable",
        "b": "Stable",
        "c": "Stable",
        "d": "Empty",
        "e": "Empty",
    }
    assert {group.group_type for group in found.values()} == {"classic"}
    assert (found["a"].protocol_type, found["e"].protocol_type) == ("consumer", "")


def test_listing_takes_filters_in_any_case(harness: GroupHarness) -> None:
    stable(harness, 1, "stable")
    join(harness, "joining")
    commit(harness, "simple")
    harness.shard_of("x").groups.put(ForeignGroup("foreign"))
    assert listed(harness, ["STABLE"], []) == {"stable"}
    assert listed(harness, [" preparingrebalance "], []) == {"joining"}
    assert listed(harness, ["Empty"], ["Classic"]) == {"simple"}
    assert listed(harness, [], ["consumer"]) == {"foreign"}
    assert listed(harness, ["Empty", "Stable"], ["consumer", "classic"]) == {
        "stable",
        "simple",
        "foreign",
    }
    assert listed(harness, ["NoSuchState"], []) == set()
    assert listed(harness, [], ["streams"]) == set()


def test_listing_waits_for_no_shard_that_is_loading_but_says_so() -> None:
    harness = GroupHarness(partitions=2)
    heard: list[Exception | None] = []

    class SlowLog(MemoryLog):
        def read(self, offset: int, max_bytes: int) -> bytes:
            heard.append(run_to_end(harness.coordinator.list_groups([], [])).error)
            return super().read(offset, max_bytes)

    harness.coordinator.runtime.load_nowait(1, 9, SlowLog())
    (error,) = heard
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.unload(1)
    assert answer(run_to_end(harness.coordinator.list_groups([], []))) == [], (
        "led elsewhere: not ours to list"
    )


# DescribeGroups


def test_a_stable_group_is_described_with_metadata_and_assignments(harness: GroupHarness) -> None:
    metadata = subscription("t")
    _, (leader, follower) = stable(harness, 2, protocols=[("range", metadata)])
    (described,) = answer(run_to_end(harness.coordinator.describe_groups(["g"], 6)))
    assert (described.error_code, described.error_message) == (0, None)
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [
        (each.member_id, each.client_id, each.client_host, each.member_metadata, each.member_assignment)
        for each in described.members
    ] == [(each, "client", "/127.0.0.1", metadata, each.encode()) for each in (leader, follower)]


def test_a_rebalancing_group_is_described_without_metadata(harness: GroupHarness) -> None:
    member_id, _ = join(harness, protocols=[("range", b"told")])
    (described,) = answer(run_to_end(harness.coordinator.describe_groups(["g"], 6)))
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [(each.member_id, each.member_metadata) for each in described.members] == [(member_id, b"")]


def test_what_is_no_classic_group_is_dead_and_not_found_since_version_6(harness: GroupHarness) -> None:
    harness.shard_of("foreign").groups.put(ForeignGroup("foreign"))
    old = answer(run_to_end(harness.coordinator.describe_groups(["none", "foreign"], 5)))
    assert [(each.group_state, each.error_code) for each in old] == [("Dead", 0), ("Dead", 0)]
    new = answer(run_to_end(harness.coordinator.describe_groups(["none", "foreign"], 6)))
    assert [(each.group_state, each.error_code, each.error_message) for each in new] == [
        ("Dead", ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found."),
        ("Dead", ErrorCode.GROUP_ID_NOT_FOUND, "Group foreign is not a classic group."),
    ]


def test_groups_of_a_shard_that_is_elsewhere_have_an_error_of_their_own() -> None:
    harness = GroupHarness(partitions=2)
    here, there = _one_in_each(harness)
    harness.unload(harness.coordinator.partition_for(there))
    described = {
        each.group_id: each
        for each in answer(run_to_end(harness.coordinator.describe_groups([here, there], 6)))
    }
    assert described[here].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert described[there].error_code == ErrorCode.NOT_COORDINATOR
    deleted = {
        each.group_id: each for each in answer(run_to_end(harness.coordinator.delete_groups([here, there])))
    }
    assert deleted[here].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert deleted[there].error_code == ErrorCode.NOT_COORDINATOR


def _one_in_each(harness: GroupHarness) -> tuple[str, str]:
    names = [f"g{n}" for n in range(50)]
    (first,) = [name for name in names if harness.coordinator.partition_for(name) == 0][:1]
    (second,) = [name for name in names if harness.coordinator.partition_for(name) == 1][:1]
    return first, second


# DeleteGroups


def test_groups_without_members_are_deleted_with_their_offsets(harness: GroupHarness) -> None:
    _, (member_id,) = stable(harness, 1, "emptied")
    for partition in range(3):
        commit(harness, "emptied", partition=partition)
    answer(harness.leave("emptied", member_id))
    commit(harness, "simple")
    stable(harness, 1, "busy")
    commit(harness, "busy")
    before = len(harness.log_of("g").batches)

    results = answer(run_to_end(harness.coordinator.delete_groups(["emptied", "simple", "busy", "none"])))
    assert [(each.group_id, each.error_code) for each in results] == [
        ("emptied", ErrorCode.NONE),
        ("simple", ErrorCode.NONE),
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert len(harness.log_of("g").batches) == before + 1, "one write for the shard"
    for _ in range(2):
        assert listed(harness) == {"busy"}
        offsets = harness.shard_of("g").offsets
        assert offsets.delete_some("emptied", 100)[0] == offsets.delete_some("simple", 100)[0] == []
        assert len(offsets.delete_some("busy", 100)[0]) == 1
        harness.crash()


def test_a_deletion_that_cannot_be_written_deletes_nothing(harness: GroupHarness) -> None:
    commit(harness, "simple")
    harness.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    (result,) = answer(run_to_end(harness.coordinator.delete_groups(["simple"])))
    assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert listed(harness) == {"simple"}


def test_a_deleted_group_begins_anew(harness: GroupHarness) -> None:
    _, (member_id,) = stable(harness, 1)
    answer(harness.leave("g", member_id))
    answer(run_to_end(harness.coordinator.delete_groups(["g"])))
    generation_id, _ = stable(harness, 1)
    assert generation_id == 1


# Expiry


def test_a_group_that_came_to_nothing_goes_away(harness: GroupHarness) -> None:
    new_id(harness)
    assert listed(harness) == {"g"}
    harness.advance(600_000)
    assert listed(harness) == set()
    assert harness.records()[-1] == StoredRecord(GroupMetadataKey(group="g"), None)


def test_an_empty_group_goes_away_with_its_last_offset(harness: GroupHarness) -> None:
    _, (member_id,) = stable(harness, 1, protocols=[("range", subscription("t"))])
    commit(harness, "g")
    answer(harness.leave("g", member_id))
    harness.advance(7 * DAY_MS - 1000)
    assert "g" in harness.shard_of("g").groups
    harness.advance(600_000)
    assert "g" not in harness.shard_of("g").groups
    assert harness.shard_of("g").offsets.delete_some("g", 100)[0] == []
    harness.crash()
    assert listed(harness) == set()


def test_a_simple_group_goes_away_with_its_last_offset(harness: GroupHarness) -> None:
    commit(harness, "g")
    harness.advance(6 * DAY_MS)
    commit(harness, "g", partition=1)
    harness.advance(DAY_MS + 600_000)
    assert len(harness.shard_of("g").offsets.delete_some("g", 100)[0]) == 1
    assert "g" in harness.shard_of("g").groups
    harness.advance(6 * DAY_MS)
    assert "g" not in harness.shard_of("g").groups


def test_a_group_with_members_stays_and_keeps_the_offsets_of_what_it_reads(harness: GroupHarness) -> None:
    generation_id, (member_id,) = stable(
        harness, 1, session_timeout_ms=1_800_000, protocols=[("range", subscription("read"))]
    )
    commit(harness, "g", "read")
    commit(harness, "g", "unread")
    for _ in range(8 * 24 * 2):
        harness.advance(1_800_000 - 1)
        assert harness.heartbeat("g", member_id, generation_id).error_code == ErrorCode.NONE
    assert [each.key for each in harness.shard_of("g").offsets.delete_some("g", 100)[0]] == [
        OffsetCommitKey(group="g", topic="read", partition=0)
    ]


def test_cleaning_up_goes_on_after_a_failure(harness: GroupHarness) -> None:
    new_id(harness)
    harness.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    harness.advance(600_000)
    assert "g" in harness.shard_of("g").groups
    harness.advance(600_000)
    assert "g" not in harness.shard_of("g").groups


# Groups of another type


def test_an_empty_consumer_group_gives_way_to_a_classic_one(harness: GroupHarness) -> None:
    harness.shard_of("g").groups.put(ForeignGroup("g"))
    member_id, _ = join(harness)
    group = harness.shard_of("g").groups.get("g")
    assert isinstance(group, ClassicGroup)
    assert set(group.members) == {member_id}
    first, second = harness.records()
    assert first == StoredRecord(ConsumerGroupMetadataKey(group_id="g"), None)
    assert isinstance(second.value, GroupMetadataValue)
    assert harness.logs[0].batches[1:] == [], "both in one batch"


def test_an_empty_consumer_group_stays_if_the_classic_one_cannot_be_written(harness: GroupHarness) -> None:
    foreign = ForeignGroup("g")
    harness.shard_of("g").groups.put(foreign)
    harness.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert harness.join("g").error is not None
    assert harness.shard_of("g").groups.get("g") is foreign


def test_an_empty_consumer_group_stays_for_a_join_that_is_refused(harness: GroupHarness) -> None:
    foreign = ForeignGroup("g")
    harness.shard_of("g").groups.put(foreign)
    assert answer(harness.join("g", "m")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer(harness.join("g", protocols=())).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.shard_of("g").groups.get("g") is foreign
    assert harness.records() == []


# Offsets ask the group


@pytest.mark.parametrize("transactional", [False, True])
def test_commits_are_fenced_by_member_and_generation(harness: GroupHarness, transactional: bool) -> None:
    generation_id, (member_id,) = stable(harness, 1)
    group = harness.shard_of("g").groups.get("g")
    assert group is not None

    def refusal(member: str, generation: int, instance_id: str | None = None) -> ErrorCode | None:
        try:
            group.check_offset_commit(
                member, instance_id, generation, transactional=transactional, api_version=9
            )
        except KafkaError as error:
            return error.code
        return None

    assert refusal(member_id, generation_id) is None
    assert refusal(member_id, generation_id - 1) is ErrorCode.ILLEGAL_GENERATION
    assert refusal("nobody", generation_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(member_id, generation_id, "i") is ErrorCode.UNKNOWN_MEMBER_ID
    # Old transactional commits say nothing of a member, and are taken.
    assert refusal("", -1) is (None if transactional else ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(group, ClassicGroup)
    group.state = ClassicState.COMPLETING_REBALANCE
    assert refusal(member_id, generation_id) is (None if transactional else ErrorCode.REBALANCE_IN_PROGRESS)
    group.state = ClassicState.DEAD
    assert refusal(member_id, generation_id) is ErrorCode.COORDINATOR_NOT_AVAILABLE
