"""Requests about very many groups or offsets are answered in slices, and truthfully though things change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest
from tests.unit.coordinator.offsets.coordinator import Coordinator

from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.group.shard import GroupShard
from tidelog.coordinator.reply import Reply
from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.slices import Slices, finished
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup

T = TypeVar("T")


def steps(work: Slices[T], end: list[T]) -> Iterator[None]:
    """Goes from step to step; ``end`` gets the result."""
    end.append((yield from work))


def fetch_all(scene: Coordinator, *, require_stable: bool = False) -> Slices[Reply[OffsetFetchResponseGroup]]:
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
    end: list[Reply[list[object]]] = []
    count = sum(1 for _ in steps(scene.groups.list_groups([], []), end))  # type: ignore[arg-type]
    assert count >= 50
    assert len(end[0].result()) == 50


def test_groups_are_described_one_at_a_time() -> None:
    scene = Coordinator()
    described: list[str] = []

    def describe(shard: GroupShard, group_id: str) -> str:
        described.append(group_id)
        return group_id

    names = [f"g{number}" for number in range(50)]
    end: list[Reply[list[str]]] = []
    before = 0
    for _ in steps(scene.groups.read_each(names, describe, lambda name, error: "?"), end):
        assert len(described) - before <= 1
        before = len(described)
    assert end[0].result() == names


def test_groups_that_go_while_groups_are_listed_are_not_shown_from_then_on() -> None:
    scene = Coordinator()
    for number in range(10):
        scene.commit({("orders", 0): 1}, f"g{number}")
    work = scene.groups.list_groups([], [])
    next(work)
    scene.groups.delete_groups([f"g{number}" for number in range(10)]).result()
    assert len(finished(work).result()) <= 1


def test_offsets_are_fetched_a_few_at_a_time(wide: Coordinator) -> None:
    end: list[Reply[OffsetFetchResponseGroup]] = []
    count = sum(1 for _ in steps(fetch_all(wide), end))
    assert count >= 1000 // requests.PARTITIONS_AT_ONCE
    assert offsets_in(end[0].result()) == {index: (index, 0) for index in range(1000)}


def test_a_transaction_that_ends_while_offsets_are_fetched_is_told_of_or_awaited(wide: Coordinator) -> None:
    wide.commit_in_transaction({("wide", index): 5000 for index in range(1000)})
    work = fetch_all(wide, require_stable=True)
    next(work)
    wide.end(committed=True)
    answers = offsets_in(finished(work).result())
    unstable = {index for index, (_, code) in answers.items() if code == ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert 0 < len(unstable) < requests.PARTITIONS_AT_ONCE
    assert all(answer == (5000, 0) for index, answer in answers.items() if index not in unstable)


def test_what_is_committed_while_offsets_are_fetched_is_told_once_it_is_safe() -> None:
    scene = Coordinator(autocommit=False)
    scene.create_topic("wide", 1000)
    scene.send(10, scene.commit_request({("wide", index): 1 for index in range(1000)}))
    scene.log_of("g").commit()
    work = fetch_all(scene)
    next(work)
    scene.send(10, scene.commit_request({("wide", index): 2 for index in range(1000)}))
    reply = finished(work)
    assert not reply.done, "an offset that is not on all replicas was told"
    scene.log_of("g").commit()
    assert offsets_in(reply.result())[999] == (2, 0)


def test_a_group_that_goes_while_its_offsets_are_fetched_leaves_no_holes(wide: Coordinator) -> None:
    wide.commit({("orders", 0): 3})
    work = fetch_all(wide)
    next(work)
    wide.groups.delete_groups(["g"]).result()
    (topic,) = finished(work).result().topics
    assert topic.name == "wide"


def test_a_shard_that_goes_while_it_is_asked_is_no_coordinator(wide: Coordinator) -> None:
    work = fetch_all(wide)
    next(work)
    wide.groups.runtime.unload(wide.groups.partition_for("g"))
    with pytest.raises(KafkaError) as caught:
        finished(work).result()
    assert caught.value.code is ErrorCode.NOT_COORDINATOR


def test_markers_of_others_change_nothing(wide: Coordinator) -> None:
    work = fetch_all(wide, require_stable=True)
    next(work)
    partition = wide.groups.partition_for("g")
    wide.groups.runtime.end_transaction(partition, Producer(99, 0), 0, committed=True).result()
    assert offsets_in(finished(work).result()) == {index: (index, 0) for index in range(1000)}
