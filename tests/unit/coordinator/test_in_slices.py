"""Requests about very many groups or offsets are answered in slices, and truthfully though things change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest
from tests.unit.coordinator.offsets.coordinator import Coordinator

from tidelog.broker.coordination.offset_parts import PARTITIONS_AT_ONCE, in_parts, is_wide
from tidelog.broker.handlers import offset_fetch
from tidelog.broker.network.answer import NotAnswerable
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.group.shard import DELETED_AT_ONCE, GroupShard
from tidelog.coordinator.runtime import Producer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.batch import iter_batches
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices, run_to_end
from tidelog.wire.messages.delete_groups import DeletableGroupResult
from tidelog.wire.messages.list_groups import ListedGroup
from tidelog.wire.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

T = TypeVar("T")


def steps(work: Slices[T], end: list[T]) -> Iterator[None]:
    """Goes from step to step; ``end`` gets the result."""
    end.append((yield from work))


def fetch_all(
    scene: Coordinator, *, require_stable: bool = False
) -> Slices[Promise[OffsetFetchResponseGroup]]:
    request = OffsetFetchRequestGroup(group_id="g", topics=None)
    return scene.groups.read_in_slices(
        "g", lambda shard: requests.fetch(shard.offsets, request, require_stable=require_stable)
    )


def offsets_in(answer: OffsetFetchResponseGroup) -> dict[int, tuple[int, int]]:
    return {
        each.partition_index: (each.committed_offset, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


@pytest.fixture
def wide() -> Coordinator:
    """One group with the offsets of a thousand partitions."""
    scene = Coordinator()
    scene.create_topic("wide", 1000)
    scene.commit({("wide", index): index for index in range(1000)})
    return scene


def test_groups_are_listed_one_at_a_time() -> None:
    scene = Coordinator()
    for number in range(50):
        scene.commit({("orders", 0): 1}, f"g{number}")
    end: list[Promise[list[ListedGroup]]] = []
    count = sum(1 for _ in steps(scene.groups.list_groups([], []), end))
    assert count >= 50
    assert len(end[0].result()) == 50


def test_groups_are_described_one_at_a_time() -> None:
    scene = Coordinator()
    described: list[str] = []

    def describe(shard: GroupShard, group_id: str) -> str:
        described.append(group_id)
        return group_id

    names = [f"g{number}" for number in range(50)]
    end: list[Promise[list[str]]] = []
    before = 0
    for _ in steps(scene.groups.read_each(names, describe, lambda name, error: "?"), end):
        assert len(described) - before <= 1
        before = len(described)
    assert end[0].result() == names


def test_a_group_that_is_named_again_has_the_same_answer_again() -> None:
    scene = Coordinator()
    described: list[str] = []

    def describe(shard: GroupShard, group_id: str) -> list[str]:
        if group_id == "bad":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        described.append(group_id)
        return [group_id]

    names = ["a", "b", "bad", "a", "bad", "a"]
    reply = run_to_end(scene.groups.read_each(names, describe, lambda name, error: [f"no {name}"]))
    answers = reply.result()
    assert answers == [["a"], ["b"], ["no bad"], ["a"], ["no bad"], ["a"]]
    assert answers[0] is answers[3] is answers[5]
    assert sorted(described) == ["a", "b"]


def test_groups_that_go_while_groups_are_listed_are_not_shown_from_then_on() -> None:
    scene = Coordinator()
    for number in range(10):
        scene.commit({("orders", 0): 1}, f"g{number}")
    work = scene.groups.list_groups([], [])
    next(work)
    run_to_end(scene.groups.delete_groups([f"g{number}" for number in range(10)])).result()
    assert len(run_to_end(work).result()) <= 1


def test_offsets_are_fetched_a_few_at_a_time(wide: Coordinator) -> None:
    end: list[Promise[OffsetFetchResponseGroup]] = []
    count = sum(1 for _ in steps(fetch_all(wide), end))
    assert count >= 1000 // requests.PARTITIONS_AT_ONCE
    assert offsets_in(end[0].result()) == {index: (index, 0) for index in range(1000)}


def test_one_group_named_very_often_does_not_tell_of_all_its_offsets_as_often(
    wide: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time by another member, whose name a classic group does not look at."""
    monkeypatch.setattr(offset_fetch, "MAX_OFFSETS", 10_000)
    groups = [OffsetFetchRequestGroup(group_id="g", member_id=f"m{each}", topics=None) for each in range(11)]
    answer = wide.ask(9, OffsetFetchRequest(groups=groups[:10]), OffsetFetchResponse)
    assert [sum(len(topic.partitions) for topic in group.topics) for group in answer.groups] == [1000] * 10
    with pytest.raises(NotAnswerable, match="more than 10000 offsets"):
        wide.ask(9, OffsetFetchRequest(groups=groups), OffsetFetchResponse)


def test_a_transaction_that_ends_while_offsets_are_fetched_is_told_of_or_awaited(wide: Coordinator) -> None:
    wide.commit_in_transaction({("wide", index): 5000 for index in range(1000)})
    work = fetch_all(wide, require_stable=True)
    next(work)
    wide.end(committed=True)
    answers = offsets_in(run_to_end(work).result())
    unstable = {index for index, (_, code) in answers.items() if code == ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert 0 < len(unstable) < requests.PARTITIONS_AT_ONCE
    assert all(answer == (5000, 0) for index, answer in answers.items() if index not in unstable)


def test_what_is_committed_while_offsets_are_fetched_is_told_once_it_is_safe() -> None:
    scene = Coordinator(autocommit=False)
    scene.create_topic("wide", 1000)
    indexes = range(200)
    scene.send(10, scene.commit_request({("wide", index): 1 for index in indexes}))
    scene.log_of("g").commit()
    work = fetch_all(scene)
    next(work)
    scene.send(10, scene.commit_request({("wide", index): 2 for index in indexes}))
    reply = run_to_end(work)
    assert not reply.done, "an offset that is not on all replicas was told"
    scene.log_of("g").commit()
    assert offsets_in(reply.result())[199] == (2, 0)


def test_a_group_that_goes_while_its_offsets_are_fetched_leaves_no_holes(wide: Coordinator) -> None:
    wide.commit({("orders", 0): 3})
    work = fetch_all(wide)
    next(work)
    run_to_end(wide.groups.delete_groups(["g"])).result()
    (topic,) = run_to_end(work).result().topics
    assert topic.name == "wide"


def test_a_shard_that_goes_while_it_is_asked_is_no_coordinator(wide: Coordinator) -> None:
    work = fetch_all(wide)
    next(work)
    wide.groups.runtime.unload(wide.groups.partition_for("g"))
    with pytest.raises(KafkaError) as caught:
        run_to_end(work).result()
    assert caught.value.code is ErrorCode.NOT_COORDINATOR


def test_markers_of_others_change_nothing(wide: Coordinator) -> None:
    work = fetch_all(wide, require_stable=True)
    next(work)
    partition = wide.groups.partition_for("g")
    wide.groups.runtime.end_transaction(partition, Producer(99, 0), 0, committed=True).result()
    assert offsets_in(run_to_end(work).result()) == {index: (index, 0) for index in range(1000)}


def test_a_group_with_very_many_offsets_is_deleted_in_parts_and_goes_last(wide: Coordinator) -> None:
    shard = wide.shard("g")
    end: list[Promise[list[DeletableGroupResult]]] = []
    left = [1000]
    for _ in steps(wide.groups.delete_groups(["g", "none"]), end):
        left.append(len(wide.offsets_of("g")))
        assert left[-2] - left[-1] <= DELETED_AT_ONCE
        assert "g" in shard.groups or not left[-1], "the group went before its offsets"
    assert [(each.group_id, each.error_code) for each in sorted(end[0].result(), key=str)] == [
        ("g", 0),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert left[-1] == 0
    assert "g" not in shard.groups
    wide.restart()
    assert "g" not in wide.shard("g").groups


def test_committed_and_pending_offsets_are_deleted_once_each(wide: Coordinator) -> None:
    wide.commit_in_transaction({("wide", index): 5000 for index in range(200, 400)})
    wide.commit_in_transaction({("payments", 0): 1})
    (result,) = run_to_end(wide.groups.delete_groups(["g"])).result()
    assert result.error_code == 0
    assert not wide.shard("g").offsets.pending
    assert wide.offsets_of("g") == {}


def test_many_groups_are_deleted_a_few_at_a_time() -> None:
    scene = Coordinator()
    names = [f"g{number}" for number in range(600)]
    for name in names:
        scene.commit({("orders", 0): 1}, name)
    end: list[Promise[list[DeletableGroupResult]]] = []
    before = len(names)
    for _ in steps(scene.groups.delete_groups(names), end):
        left = sum(name in scene.shard(name).groups for name in names)
        assert before - left <= DELETED_AT_ONCE
        before = left
    assert before == 0
    assert {each.group_id for each in end[0].result()} == set(names)


def test_a_deletion_that_the_log_refuses_ends_there(wide: Coordinator) -> None:
    work = wide.groups.delete_groups(["g"])
    next(work)
    next(work)
    left = len(wide.offsets_of("g"))
    assert 0 < left < 1000
    wide.log_of("g").fail_next = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (result,) = run_to_end(work).result()
    assert (result.group_id, result.error_code) == ("g", ErrorCode.NOT_COORDINATOR)
    assert len(wide.offsets_of("g")) == left
    assert "g" in wide.shard("g").groups


def test_what_a_shard_holds_is_let_go_of_a_little_at_a_time() -> None:
    scene = Coordinator()
    scene.create_topic("wide", 5000)
    scene.commit({("wide", index): index for index in range(5000)})
    scene.commit({("orders", 0): 1}, "h")
    scene.commit_in_transaction({("payments", 0): 1})
    shard = scene.shard("g")

    offsets = shard.offsets.committed.groups["g"]["wide"]

    def held() -> int:
        return len(offsets) + len(shard.groups)

    before = held()
    for _ in shard.unloaded():
        assert before - held() <= 1000
        before = held()
    assert before <= 1000
    assert not shard.offsets.committed.groups
    assert not len(shard.groups)
    assert not [table for table in shard.offsets.pending.tables if table.groups]


def test_members_get_their_time_one_group_after_the_other() -> None:
    scene = Coordinator()
    for number in range(30):
        scene.commit({("orders", 0): 1}, f"g{number}")
    shard = scene.shard("g0")
    assert sum(1 for _ in shard.loaded()) == len(shard.groups)


def test_very_many_offsets_are_committed_in_parts() -> None:
    scene = Coordinator()
    scene.create_topic("wide", 1000)
    codes = scene.commit({("wide", index): index for index in range(1001)} | {("none", 0): 1}, version=9)
    assert codes.pop(("none", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes.pop(("wide", 1000)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("wide", index): 0 for index in range(1000)}
    assert scene.offsets_of("g") == {("wide", index): index for index in range(1000)}
    assert all(count <= PARTITIONS_AT_ONCE for count in batches(scene))


def test_very_many_offsets_are_committed_in_a_transaction_in_parts() -> None:
    scene = Coordinator()
    scene.create_topic("wide", 1000)
    codes = scene.commit_in_transaction({("wide", index): index for index in range(1000)})
    assert codes == {("wide", index): 0 for index in range(1000)}
    assert all(count <= PARTITIONS_AT_ONCE for count in batches(scene))
    scene.end(committed=True)
    assert scene.offsets_of("g") == {("wide", index): index for index in range(1000)}


def test_very_many_offsets_are_deleted_in_parts(wide: Coordinator) -> None:
    codes = wide.delete({"wide": list(range(999)), "orders": [0, 7]})
    assert codes.pop(("orders", 7)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("wide", index): 0 for index in range(999)} | {("orders", 0): 0}
    assert wide.offsets_of("g") == {("wide", 999): 999}
    assert all(count <= PARTITIONS_AT_ONCE for count in batches(wide))


def test_a_request_is_cut_into_parts_that_hold_everything_once() -> None:
    topics = [
        OffsetDeleteRequestTopic(
            name=str(number),
            partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in range(size)],
        )
        for number, size in enumerate((0, 1, PARTITIONS_AT_ONCE, 700, 0, 3))
    ]
    assert is_wide(topics)
    assert not is_wide(topics[:2])
    parts = list(in_parts(topics))
    assert all(sum(max(len(each.partitions), 1) for each in part) <= PARTITIONS_AT_ONCE for part in parts)
    assert [(each.name, p.partition_index) for part in parts for each in part for p in each.partitions] == [
        (each.name, p.partition_index) for each in topics for p in each.partitions
    ]
    assert {each.name for part in parts for each in part} == set("012345")


def batches(scene: Coordinator, group_id: str = "g") -> list[int]:
    """How many records each batch of the group's log has."""
    data = scene.log_of(group_id).read(0, 1 << 30)
    return [header.record_count for _, header in iter_batches(data)]
