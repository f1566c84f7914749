"""The assignors against results of Kafka 4.3's own (``assignments.json``), and what holds for any group."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.group.consumer.assignors import ASSIGNORS
from tidelog.coordinator.group.consumer.assignors.spec import AssignmentByMember, GroupSpec, MemberSpec
from tidelog.ids import Uuid

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "assignments.json").read_text(encoding="utf-8")
)


def topic(number: int | str) -> Uuid:
    return Uuid(int(number).to_bytes(16, "big"))


def partitions(table: dict[str, list[int]]) -> dict[Uuid, frozenset[int]]:
    return {topic(number): frozenset(indexes) for number, indexes in table.items()}


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_targets_are_those_that_kafka_computes(vector: dict[str, Any]) -> None:
    spec = GroupSpec(
        {
            member_id: MemberSpec(
                frozenset(map(topic, member["topics"])), partitions(member["current"]), member["instance"]
            )
            for member_id, member in vector["members"].items()
        },
        {topic(number): count for number, count in vector["partitions"].items()},
        vector["homogeneous"],
    )
    targets = ASSIGNORS[vector["assignor"]].assign(spec)
    expected = {member_id: partitions(member["target"]) for member_id, member in vector["members"].items()}
    assert {member_id: dict(targets.get(member_id, {})) for member_id in expected} == expected


@st.composite
def groups(draw: st.DrawFn) -> GroupSpec:
    counts = {topic(number): draw(st.integers(1, 12)) for number in range(1, draw(st.integers(1, 5)) + 1)}
    homogeneous = draw(st.booleans())
    everything = frozenset(counts)
    members = {}
    left = {(topic_id, index) for topic_id, count in counts.items() for index in range(count)}
    for number in range(draw(st.integers(1, 7))):
        topics = everything if homogeneous else draw(st.frozensets(st.sampled_from(sorted(counts))))
        owned = draw(st.sets(st.sampled_from(sorted(left)))) if left else set()
        left -= owned
        current: dict[Uuid, frozenset[int]] = {}
        for topic_id, index in owned:
            current[topic_id] = current.get(topic_id, frozenset()) | {index}
        members[f"m{number}"] = MemberSpec(topics, current)
    return GroupSpec(members, counts, homogeneous)


def owners(targets: AssignmentByMember) -> Counter[tuple[Uuid, int]]:
    return Counter(
        (topic_id, index)
        for owned in targets.values()
        for topic_id, indexes in owned.items()
        for index in indexes
    )


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_that_is_subscribed_to_has_one_owner_who_subscribes_to_it(
    spec: GroupSpec, name: str
) -> None:
    targets = ASSIGNORS[name].assign(spec)
    subscribed = {topic_id for member in spec.members.values() for topic_id in member.topics}
    assert owners(targets) == {
        (topic_id, index): 1 for topic_id in subscribed for index in range(spec.partition_counts[topic_id])
    }
    for member_id, owned in targets.items():
        assert owned.keys() <= spec.members[member_id].topics
        assert all(owned.values())


@given(groups())
def test_uniform_gives_all_members_the_same_up_to_one_and_moves_no_more_than_it_must(spec: GroupSpec) -> None:
    if not spec.homogeneous:
        return
    targets = ASSIGNORS["uniform"].assign(spec)
    sizes = {
        member_id: sum(len(indexes) for indexes in targets[member_id].values()) for member_id in spec.members
    }
    assert max(sizes.values()) - min(sizes.values()) <= 1
    for member_id, member in spec.members.items():
        kept = sum(
            len(indexes & targets[member_id].get(t, frozenset())) for t, indexes in member.current.items()
        )
        had = sum(len(indexes) for indexes in member.current.values())
        assert kept >= min(had, min(sizes.values()))


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_an_assignment_is_its_own_successor(spec: GroupSpec, name: str) -> None:
    first = ASSIGNORS[name].assign(spec)
    again = ASSIGNORS[name].assign(
        spec._replace(
            members={
                member_id: member._replace(current=first.get(member_id, {}))
                for member_id, member in spec.members.items()
            }
        )
    )
    if name == "range" or spec.homogeneous:
        assert again == first
