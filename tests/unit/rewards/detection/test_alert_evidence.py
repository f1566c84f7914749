"""What alerts show of times, and what passes for a clock, each against the standard library."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from itertools import accumulate, pairwise
from statistics import mean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_rewards.detection.alert_evidence import regular_pause_s, time_text

YEAR_10000_US = round(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000
SECOND_US = 1_000_000


@given(st.integers(min_value=-YEAR_10000_US // 5, max_value=YEAR_10000_US))
def test_a_time_is_told_in_utc_with_its_milliseconds_cut_off(time_us: int) -> None:
    second, rest_us = divmod(time_us, SECOND_US)

    text = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest_us // 1000:03d}Z"

    assert time_text(time_us) == text


@given(
    st.integers(min_value=0, max_value=YEAR_10000_US),
    st.lists(st.integers(min_value=1_500_000, max_value=3_500_000), min_size=1, max_size=9),
)
def test_moments_come_like_a_clock_whose_pauses_hardly_differ(start_us: int, pauses_us: list[int]) -> None:
    times_us = [*accumulate(pauses_us, initial=start_us)]
    pauses = [Fraction(after - before, SECOND_US) for before, after in pairwise(times_us)]
    is_regular = mean(pauses) >= 2 and pvariance(pauses) < (Fraction(15, 100) * mean(pauses)) ** 2

    pause_s = regular_pause_s(times_us)

    assert pause_s == (pytest.approx(float(mean(pauses))) if is_regular else None)


@pytest.mark.parametrize(
    ("pauses_us", "is_regular"),
    [
        ([2_000_000] * 4, True),
        ([1_999_999] * 4, False),
        ([0] * 4, False),
        # A standard deviation of just 15 %, and of a little less.
        ([8_500_000, 11_500_000], False),
        ([8_500_001, 11_500_000], True),
    ],
)
def test_the_borders_of_a_clock(pauses_us: list[int], is_regular: bool) -> None:
    times_us = [*accumulate(pauses_us, initial=0)]

    assert (regular_pause_s(times_us) is not None) is is_regular
