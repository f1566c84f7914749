"""Throttles of replication: which partitions they hold for, and when they hold back."""

from __future__ import annotations

import pytest
from tests.rigs.clock import ManualClock

from tidelog.ids import TopicPartition
from tidelog.replication.throttle import ReplicationThrottle

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def throttle(clock: ManualClock) -> ReplicationThrottle:
    throttle = ReplicationThrottle(clock)
    throttle.set_replicas("orders", ("*",), 1)
    throttle.bytes_per_second = 1000
    return throttle


@pytest.mark.parametrize(
    ("texts", "held"),
    [(("*",), {0, 1, 2}), (("0:1", "1:2", "2:1"), {0, 2}), (("0:2",), set()), ((), set())],
)
def test_a_topic_names_the_replicas_that_are_throttled(texts: tuple[str, ...], held: set[int]) -> None:
    throttle = ReplicationThrottle(ManualClock())
    throttle.set_replicas("orders", texts, 1)
    assert {each for each in range(3) if throttle.applies_to(TopicPartition("orders", each))} == held
    assert not throttle.applies_to(TopicPartition("payments", 0))
    throttle.set_replicas("orders", (), 1)
    assert not throttle.applies_to(ORDERS)


def test_nothing_is_held_back_up_to_the_rate(throttle: ReplicationThrottle) -> None:
    assert not throttle.holds_back(ORDERS, in_sync=False)
    throttle.record(1000)
    assert not throttle.holds_back(ORDERS, in_sync=False)
    throttle.record(1)
    assert throttle.holds_back(ORDERS, in_sync=False)


def test_replicas_in_sync_and_other_partitions_are_never_held_back(throttle: ReplicationThrottle) -> None:
    throttle.record(10**9)
    assert throttle.holds_back(ORDERS, in_sync=False)
    assert not throttle.holds_back(ORDERS, in_sync=True)
    assert not throttle.holds_back(TopicPartition("payments", 0), in_sync=False)


def test_what_was_too_much_is_made_up_for_by_waiting(
    throttle: ReplicationThrottle, clock: ManualClock
) -> None:
    throttle.record(5000)
    clock.advance(4999)
    assert throttle.holds_back(ORDERS, in_sync=False)
    clock.advance(1)
    assert not throttle.holds_back(ORDERS, in_sync=False)


def test_what_is_older_than_all_windows_does_not_count(
    throttle: ReplicationThrottle, clock: ManualClock
) -> None:
    throttle.record(10**9)
    clock.advance(11_000)
    assert throttle.rate == 0.0


def test_over_a_long_time_the_rate_holds(throttle: ReplicationThrottle, clock: ManualClock) -> None:
    copied = 0
    for _ in range(600):
        if not throttle.holds_back(ORDERS, in_sync=False):
            throttle.record(700)
            copied += 700
        clock.advance(100)
    assert 50_000 <= copied <= 70_000


def test_without_a_rate_nothing_is_held_back(throttle: ReplicationThrottle) -> None:
    throttle.bytes_per_second = 2**63 - 1
    throttle.record(2**62)
    assert not throttle.holds_back(ORDERS, in_sync=False)


def test_what_was_copied_long_ago_takes_no_room_though_nobody_asks_for_the_rate(
    throttle: ReplicationThrottle, clock: ManualClock
) -> None:
    for _ in range(1000):
        throttle.record(500)
        clock.advance(1000)
        assert not throttle.holds_back(ORDERS, in_sync=True)
    assert len(throttle._copied) <= 11
