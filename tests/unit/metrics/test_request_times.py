from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metrics.histogram import Histogram, Recent, cumulative_us, quantiles
from tidelog.metrics.request_times import (
    BYTES,
    COUNT_AT,
    FOLLOWER_FETCH,
    LOCAL,
    MAX_VERSION,
    QUEUE,
    REMOTE,
    SEND,
    SUM_AT,
    THROTTLE,
    TOTAL,
    RequestTimes,
    bounds_of,
    bucket_of,
)

PRODUCE, FETCH = 0, 1


class Peer:
    def __init__(self, is_follower: bool = False) -> None:
        self.is_follower = is_follower


def frame(key: int, version: int, size: int = 10) -> memoryview:
    return memoryview(key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(size - 4))


@given(st.integers(0, (1 << 28) - 1))
def test_every_value_is_within_the_bounds_of_its_bucket(value: int) -> None:
    first, end = bounds_of(bucket_of(value))
    assert first <= value < end
    assert end - first <= max(first / 4, 1)


def test_requests_that_came_together_share_their_time() -> None:
    times = RequestTimes()
    now = time.monotonic()
    frames = [frame(PRODUCE, 13), frame(PRODUCE, 13), frame(FETCH, 18)]
    times.answered(Peer(), frames, 3, None, now - 0.01, now - 0.01, now - 0.001)
    total = times.row(PRODUCE, TOTAL)
    assert total[COUNT_AT] == 2
    assert total[SUM_AT] >= 20_000
    assert times.row(PRODUCE, LOCAL)[SUM_AT] == pytest.approx(6000, rel=0.01)
    assert times.row(FETCH, QUEUE)[SUM_AT] == pytest.approx(6000, rel=0.01)
    assert times.row(FETCH, SEND)[SUM_AT] >= 1000
    assert times.versions[PRODUCE * (MAX_VERSION + 1) + 13] == 2
    assert times.row(FETCH, BYTES)[SUM_AT] == 10


def test_a_request_that_waits_is_counted_at_once_and_timed_when_it_is_answered() -> None:
    times = RequestTimes()
    now = time.monotonic()
    times.answered(Peer(), [frame(FETCH, 18), frame(PRODUCE, 13)], 2, [FETCH], now, now, now)
    assert times.row(FETCH, BYTES)[COUNT_AT] == 1
    assert times.row(FETCH, TOTAL)[COUNT_AT] == 0
    assert times.row(PRODUCE, TOTAL)[COUNT_AT] == 1
    times.waited(Peer(), FETCH, now - 0.5, now - 0.5, now - 0.499, now, now)
    assert times.row(FETCH, TOTAL)[COUNT_AT] == 1
    assert times.row(FETCH, REMOTE)[SUM_AT] == pytest.approx(499_000, rel=0.01)


def test_followers_fetch_apart_from_consumers() -> None:
    times = RequestTimes()
    now = time.monotonic()
    times.answered(Peer(is_follower=True), [frame(FETCH, 17)], 1, None, now, now, now)
    times.answered(Peer(is_follower=True), [frame(FETCH, 17)], 1, [FETCH], now, now, now)
    times.waited(Peer(is_follower=True), FETCH, now, now, now, now, now)
    assert times.row(FETCH, TOTAL)[COUNT_AT] == 0
    assert times.row(FOLLOWER_FETCH, TOTAL)[COUNT_AT] == 2


def test_what_is_no_request_is_not_counted() -> None:
    times = RequestTimes()
    frames = [memoryview(b""), memoryview(b"\0"), frame(32767, 1), frame(18, 300)]
    times.answered(Peer(), frames, 4, None, 0.0, 0.0, 0.0)
    times.waited(Peer(), -1, 0.0, 0.0, 0.0, 0.0, 0.0)
    times.throttled(None, -5, 10)
    assert not any(times.cells)


def test_throttling_is_a_part_of_its_own() -> None:
    times = RequestTimes()
    times.throttled(None, PRODUCE, 250.0)
    assert times.row(PRODUCE, THROTTLE)[SUM_AT] == 250_000


def test_quantiles_take_what_was_not_counted_for_zero() -> None:
    histogram = Histogram()
    for value in (100, 1000):
        histogram.add(value)
    found = dict(quantiles(histogram.row, count=100))
    assert found["0.50"] == 0.0
    assert found["0.98"] == 0.0
    assert 90 <= found["0.99"] <= 112
    assert 900 <= found["0.999"] <= 1100


def test_quantiles_of_nothing_are_zero() -> None:
    assert {value for _, value in quantiles(Histogram().row)} == {0.0}


def test_buckets_are_cumulative_and_end_with_all() -> None:
    histogram = Histogram()
    for value in (10, 200, 5_000_000_000):
        histogram.add(value)
    buckets = cumulative_us(histogram.row)
    counts = [count for _, count in buckets]
    assert counts == sorted(counts)
    assert buckets[0] == ("0.000128", 1)
    assert buckets[-1] == ("+Inf", 3)


def test_recent_values_are_those_since_the_turn_before_last() -> None:
    histogram, recent = Histogram(), Recent()
    histogram.add(1)
    recent.turn({"a": histogram.row})
    assert recent.of("a", histogram.row)[COUNT_AT] == 1
    recent.turn({"a": histogram.row})
    histogram.add(1)
    assert recent.of("a", histogram.row)[COUNT_AT] == 1
