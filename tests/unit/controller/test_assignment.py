from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.controller.assignment import BrokerRack, assign_replicas, validate_manual_assignment
from tidelog.errors import ErrorCode, KafkaError


def _brokers(count: int, racks: list[str] | None = None) -> list[BrokerRack]:
    return [BrokerRack(n, racks[n % len(racks)] if racks else None) for n in range(count)]


def test_a_single_broker_leads_everything() -> None:
    assert assign_replicas(_brokers(1), 3, 1, rng=random.Random(1)) == {0: (0,), 1: (0,), 2: (0,)}


def test_assignment_with_a_fixed_start_is_kafkas_own() -> None:
    """The table in the documentation of Kafka's assignment: five brokers, ten partitions, three replicas."""
    assignment = assign_replicas(_brokers(5), 10, 3, rng=random.Random(0), fixed_start=0)
    assert assignment == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_added_partitions_continue_where_the_first_ones_stopped() -> None:
    whole = assign_replicas(_brokers(4), 8, 2, rng=random.Random(0), fixed_start=0)
    more = assign_replicas(_brokers(4), 3, 2, rng=random.Random(0), fixed_start=0, first_partition=5)
    assert set(more) == {5, 6, 7}
    assert [more[p][0] for p in more] == [whole[p][0] for p in more]


def test_replicas_of_a_partition_are_on_different_racks_where_racks_allow() -> None:
    racks = ["r1", "r2", "r3"]
    brokers = _brokers(6, racks)
    assignment = assign_replicas(brokers, 12, 3, rng=random.Random(7))
    for replicas in assignment.values():
        assert {brokers[r].rack for r in replicas} == set(racks)
    assert set(Counter(replicas[0] for replicas in assignment.values()).values()) == {2}


def test_racks_are_left_out_when_not_every_broker_has_one() -> None:
    mixed = [BrokerRack(0, "a"), BrokerRack(1, None), BrokerRack(2, "a")]
    assert assign_replicas(mixed, 3, 2, rng=random.Random(0), fixed_start=0) == {
        0: (0, 1),
        1: (1, 2),
        2: (2, 0),
    }


@given(
    brokers=st.integers(1, 9),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 9),
    racks=st.integers(0, 4),
    seed=st.integers(0, 2**32),
)
def test_replicas_are_distinct_and_leaders_spread_evenly(
    brokers: int, partitions: int, factor: int, racks: int, seed: int
) -> None:
    factor = min(factor, brokers)
    names = [f"r{n}" for n in range(racks)]
    assignment = assign_replicas(
        _brokers(brokers, names or None), partitions, factor, rng=random.Random(seed)
    )
    assert list(assignment) == list(range(partitions))
    assert all(len(set(replicas)) == factor for replicas in assignment.values())
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) <= -(-partitions // brokers)


@pytest.mark.parametrize(
    ("brokers", "factor", "reason"),
    [
        (
            1,
            3,
            "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered "
            "or some brokers have all their log directories cordoned.",
        ),
        (0, 1, "All brokers are currently fenced."),
        (2, 0, "Invalid replication factor 0: the replication factor must be positive."),
    ],
)
def test_impossible_replication_factors_are_refused(brokers: int, factor: int, reason: str) -> None:
    with pytest.raises(KafkaError) as refused:
        assign_replicas(_brokers(brokers), 1, factor, rng=random.Random(0))
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused.value.message == f"Unable to replicate the partition {factor} time(s): {reason}"


@pytest.mark.parametrize(
    ("replicas", "factor", "message"),
    [
        ([], None, "The manual partition assignment includes an empty replica list."),
        (
            [1, 9],
            None,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        ([1, 2, 1], None, "The manual partition assignment includes the broker 1 more than once."),
        (
            [1],
            2,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not "
            "consistent with previous partitions, which have 2 replica(s).",
        ),
    ],
)
def test_bad_manual_assignments_are_refused(replicas: list[int], factor: int | None, message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_manual_assignment(replicas, {1, 2}, factor)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused.value.message == message


def test_a_manual_assignment_keeps_its_order() -> None:
    assert validate_manual_assignment([2, 1], {1, 2}, 2) == (2, 1)
