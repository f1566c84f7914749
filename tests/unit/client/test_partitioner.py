from __future__ import annotations

import random

import pytest

from tidelog.client.partitioner import (
    RoundRobinPartitioner,
    StickyPartitioner,
    murmur2,
    partition_for_key,
)

# Computed by the Java client's Utils.murmur2, as its own tests have them.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_HASHES.items())
def test_murmur2_is_what_the_java_client_computes(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_key_goes_where_kafka_python_sends_it_too() -> None:
    from kafka.partitioner.default import murmur2 as theirs

    for number in range(500):
        key = b"key-%d" % number * (number % 7 + 1)
        assert murmur2(key) == theirs(key) & 0xFFFFFFFF
        assert partition_for_key(key, 12) == (theirs(key) & 0x7FFFFFFF) % 12


def test_keys_are_partitioned_over_all_partitions_even_those_without_leader() -> None:
    chooser = StickyPartitioner()
    chosen = {chooser.partition(b"%d" % number, 10, 4, [0]) for number in range(100)}
    assert chosen == {0, 1, 2, 3}


def test_sticky_stays_until_a_batch_is_full_and_then_moves() -> None:
    chooser = StickyPartitioner(batch_size=100, rng=random.Random(1))
    first = [chooser.partition(None, 50, 3, [0, 1, 2]) for _ in range(2)]
    then = chooser.partition(None, 50, 3, [0, 1, 2])
    assert first[0] == first[1] != then


def test_sticky_leaves_a_partition_that_lost_its_leader() -> None:
    chooser = StickyPartitioner(rng=random.Random(1))
    first = chooser.partition(None, 1, 3, [0, 1, 2])
    others = [index for index in range(3) if index != first]
    assert chooser.partition(None, 1, 3, others) in others


def test_sticky_with_a_single_partition_stays_there() -> None:
    chooser = StickyPartitioner(batch_size=1)
    assert [chooser.partition(None, 10, 1, [0]) for _ in range(3)] == [0, 0, 0]


def test_round_robin_visits_every_available_partition_in_turn() -> None:
    chooser = RoundRobinPartitioner()
    assert [chooser.partition(None, 1, 4, [0, 2, 3]) for _ in range(6)] == [0, 2, 3, 0, 2, 3]
