"""Plans for moving partitions."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.admin._reassignment_plan import Assignment, plan_reassignment
from tidelog.client.errors import ClientError
from tidelog.ids import TopicPartition


def spread(topic: str, partitions: int, brokers: list[int], replicas: int) -> Assignment:
    return {
        TopicPartition(topic, at): tuple(brokers[(at + n) % len(brokers)] for n in range(replicas))
        for at in range(partitions)
    }


def without_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def load(plan: Assignment) -> Counter[int]:
    return Counter(broker for replicas in plan.values() for broker in replicas)


def leads(plan: Assignment) -> Counter[int]:
    return Counter(replicas[0] for replicas in plan.values())


def moved(before: Assignment, after: Assignment) -> int:
    return sum(len(set(after[each]) - set(before[each])) for each in after)


def test_what_is_well_placed_stays_where_it_is() -> None:
    before = spread("orders", 6, [1, 2, 3], 3) | spread("payments", 3, [1, 2, 3], 2)
    assert plan_reassignment(before, without_racks(1, 2, 3)) == before


def test_a_new_broker_gets_its_share_and_no_more_is_moved_than_that() -> None:
    before = spread("orders", 8, [1, 2, 3], 3)
    after = plan_reassignment(before, without_racks(1, 2, 3, 4))
    assert load(after) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert leads(after) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert moved(before, after) == 6


def test_a_broker_that_is_left_out_keeps_nothing() -> None:
    before = spread("orders", 9, [1, 2, 3, 4], 2)
    after = plan_reassignment(before, without_racks(1, 2, 3))
    assert load(after) == {1: 6, 2: 6, 3: 6}
    assert moved(before, after) == load(before)[4]


def test_many_small_topics_are_spread_too() -> None:
    before = {TopicPartition(f"t{at}", 0): (1, 2) for at in range(10)}
    after = plan_reassignment(before, without_racks(1, 2, 3, 4))
    assert load(after) == {1: 5, 2: 5, 3: 5, 4: 5}


def test_replicas_can_be_added_and_taken_away() -> None:
    before = spread("orders", 6, [1, 2, 3], 1)
    more = plan_reassignment(before, without_racks(1, 2, 3), 3)
    assert all(set(replicas) == {1, 2, 3} for replicas in more.values())
    assert {each: replicas[0] for each, replicas in more.items()} == {
        each: replicas[0] for each, replicas in before.items()
    }
    fewer = plan_reassignment(more, without_racks(1, 2, 3), 1)
    assert load(fewer) == {1: 2, 2: 2, 3: 2}


def test_replicas_of_a_partition_are_on_different_racks_while_there_are_enough() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    before = spread("orders", 12, [1, 2], 2)
    after = plan_reassignment(before, racks, 3)
    assert all({racks[broker] for broker in replicas} == {"a", "b", "c"} for replicas in after.values())
    assert load(after) == dict.fromkeys(racks, 6)


def test_a_rack_that_has_none_gets_one_before_others_keep_two() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    (replicas,) = plan_reassignment({TopicPartition("orders", 0): (1, 2, 3, 4)}, racks).values()
    assert len(replicas) == 4
    assert 5 in replicas


def test_racks_count_only_where_every_broker_has_one() -> None:
    before = spread("orders", 4, [1, 2], 2)
    assert plan_reassignment(before, {1: "a", 2: None}) == before


def test_too_few_brokers_are_refused_with_the_mend() -> None:
    with pytest.raises(ClientError, match="2 brokers are too few for 3 replicas of orders-0: name more"):
        plan_reassignment(spread("orders", 1, [1, 2, 3], 3), without_racks(1, 2))


@given(
    seed=st.integers(0, 2**32),
    brokers=st.integers(1, 7),
    targets=st.integers(1, 7),
    rack_count=st.integers(0, 4),
    topics=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=4),
)
def test_every_plan_keeps_its_promises(
    seed: int, brokers: int, targets: int, rack_count: int, topics: list[tuple[int, int]]
) -> None:
    rng = random.Random(seed)
    before: Assignment = {
        TopicPartition(f"t{number}", at): tuple(
            rng.sample(range(1, brokers + 1), min(replicas, brokers, targets))
        )
        for number, (partitions, replicas) in enumerate(topics)
        for at in range(partitions)
    }
    ids = rng.sample(range(1, 10), targets)
    racks = {broker: f"r{rng.randrange(rack_count)}" if rack_count else None for broker in ids}
    after = plan_reassignment(before, racks)
    assert after.keys() == before.keys()
    for partition, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(before[partition])
        assert set(replicas) <= set(racks)
        if rack_count:
            used = {racks[broker] for broker in replicas}
            assert len(used) == min(len(set(racks.values())), len(replicas)), (before, racks, after)
    if not rack_count:
        for topic in {each.topic for each in after}:
            per_broker = load({each: replicas for each, replicas in after.items() if each.topic == topic})
            counts = [per_broker[broker] for broker in ids]
            assert max(counts) - min(counts) <= 1
