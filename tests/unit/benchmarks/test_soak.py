from __future__ import annotations

import random

import pytest
from benchmarks.soak import Sample, curve, judge


def samples(sizes: list[float]) -> list[Sample]:
    return [Sample(number * 5.0, int(size), 1000, 1.0) for number, size in enumerate(sizes)]


def test_a_curve_that_rises_at_first_and_jitters_later_is_flat() -> None:
    chance = random.Random(3)
    sizes = [min(40e6 + at * 1e6, 60e6) + chance.uniform(-3e5, 3e5) for at in range(120)]
    sizes[100] += 30e6
    verdict = judge(samples(sizes))
    assert verdict.flat
    assert verdict.measured_s == pytest.approx(395.0, abs=10.0)


def test_a_leak_is_found() -> None:
    chance = random.Random(3)
    verdict = judge(samples([40e6 + at * 20_000 + chance.uniform(-1e5, 1e5) for at in range(360)]))
    assert not verdict.flat
    assert verdict.bytes_per_minute == pytest.approx(240_000, rel=0.05)


def test_what_is_too_short_is_not_judged() -> None:
    assert not judge(samples([40e6] * 5)).flat


def test_the_curve_has_a_block_for_each_part_of_the_time() -> None:
    assert curve(samples([1.0, 2.0, 3.0])) == "▁▄█"
    assert len(curve(samples([float(at) for at in range(360)]))) == 60
