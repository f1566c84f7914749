"""Rates beside a plain model of Kafka's: a ring of samples that are reset when they are too old."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metrics.sampled_rate import MAX_PAUSE_MS, SampledRate, throttle_time_ms


class KafkaSample:
    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.value = 0.0


class KafkaRate:
    """What Kafka's Rate does over its SampledStat, step by step."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.count = samples
        self.window_ms = window_ms
        self.ring: list[KafkaSample] = []
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.ring:
            self.ring.append(KafkaSample(now_ms))
        sample = self.ring[self.current]
        if now_ms - sample.start_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.count + 1)
            if self.current >= len(self.ring):
                self.ring.append(KafkaSample(now_ms))
            sample = self.ring[self.current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def _purge(self, now_ms: int) -> None:
        for sample in self.ring:
            if now_ms - sample.last_ms >= self.count * self.window_ms:
                sample.reset(now_ms)

    def span_ms(self, now_ms: int) -> int:
        self._purge(now_ms)
        oldest = min((sample.start_ms for sample in self.ring), default=now_ms)
        elapsed_ms = now_ms - oldest
        missing = self.count - 1 - elapsed_ms // self.window_ms
        return max(elapsed_ms + max(missing, 0) * self.window_ms, 1)

    def measure(self, now_ms: int) -> float:
        self._purge(now_ms)
        return sum(sample.value for sample in self.ring) * 1000 / self.span_ms(now_ms)


STEPS = st.lists(st.tuples(st.integers(0, 3000), st.integers(-500, 5000)), max_size=80)


@given(STEPS, st.integers(1, 12), st.sampled_from([100, 1000]))
def test_a_rate_is_the_one_that_kafka_measures(
    steps: list[tuple[int, int]], samples: int, window_ms: int
) -> None:
    ours, kafka = SampledRate(samples, window_ms), KafkaRate(samples, window_ms)
    now_ms = 0
    for wait_ms, value in steps:
        now_ms += wait_ms
        ours.record(value, now_ms)
        kafka.record(value, now_ms)
        assert ours.span_ms(now_ms) == kafka.span_ms(now_ms)
        assert ours.measure(now_ms) == pytest.approx(kafka.measure(now_ms))


def test_what_a_quota_gives_in_ten_windows_can_be_used_at_once() -> None:
    rate = SampledRate()
    rate.record(10_000, 5.0)
    assert rate.measure(5.0) == 1000.0
    rate.record(-10_000, 5.0)
    assert rate.measure(5.0) == 0.0


@pytest.mark.parametrize(
    ("rate", "limit", "pause_ms"),
    [(1000.0, 1000.0, 0), (1500.0, 1000.0, 5000), (1000.06, 1000.0, 1), (1e12, 1e-3, MAX_PAUSE_MS)],
)
def test_a_pause_is_as_long_as_the_rate_needs_to_come_down(rate: float, limit: float, pause_ms: int) -> None:
    assert throttle_time_ms(rate, limit, 10_000) == pause_ms


@given(STEPS, st.integers(1, 12), st.sampled_from([100, 1000]), st.integers(0, 20_000))
def test_what_is_recorded_while_there_is_room_is_recorded_as_ever(
    steps: list[tuple[int, int]], samples: int, window_ms: int, most: int
) -> None:
    tried, plain = SampledRate(samples, window_ms), SampledRate(samples, window_ms)
    now_ms = 0
    for wait_ms, value in steps:
        now_ms += wait_ms
        used = round(plain.measure(now_ms) * plain.span_ms(now_ms) / 1000)
        has_room = tried.record_within(value, most, now_ms)
        assert has_room == (used + value <= most)
        if has_room:
            plain.record(value, now_ms)
        assert tried.span_ms(now_ms) == plain.span_ms(now_ms)
        assert tried.measure(now_ms) == plain.measure(now_ms)
