from __future__ import annotations

import pytest

from tidelog.client.metrics import Metrics, Traffic, network_metrics, tagged


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(clock)


def test_totals_grow_for_ever_and_rates_are_of_the_time_since_the_snapshot_before(
    metrics: Metrics, clock: Clock
) -> None:
    sent = metrics.counter("record-send")
    sent.add(10)
    clock.now += 5
    assert metrics.snapshot() == {"record-send-total": 10, "record-send-rate": 2}
    sent.value += 30
    clock.now += 10
    assert metrics.snapshot() == {"record-send-total": 40, "record-send-rate": 3}
    clock.now += 10
    assert metrics.snapshot() == {"record-send-total": 40, "record-send-rate": 0}


def test_snapshots_in_quick_succession_do_not_cut_the_window_short(metrics: Metrics, clock: Clock) -> None:
    sent = metrics.counter("record-send")
    sent.add(8)
    clock.now += 0.5
    assert metrics.snapshot()["record-send-rate"] == 16
    assert metrics.snapshot()["record-send-rate"] == 16
    clock.now += 0.5
    assert metrics.snapshot()["record-send-rate"] == 8


def test_a_snapshot_at_the_very_beginning_divides_by_nothing(metrics: Metrics) -> None:
    metrics.counter("record-send").add()
    metrics.latency("request-latency")
    assert metrics.snapshot() == {
        "record-send-total": 1,
        "record-send-rate": 0,
        "request-latency-avg": 0,
        "request-latency-max": 0,
        "request-latency-p99": 0,
    }


def test_latencies_are_told_by_average_longest_and_nearly_longest(metrics: Metrics, clock: Clock) -> None:
    latency = metrics.latency("request-latency")
    for _ in range(99):
        latency.record(3.0)
    latency.record(103.0)
    clock.now += 2
    figures = metrics.snapshot()
    assert figures["request-latency-avg"] == 4
    assert figures["request-latency-max"] == 103
    assert 3 <= figures["request-latency-p99"] <= 4
    latency.record(1.0)
    figures = metrics.snapshot()
    assert (figures["request-latency-avg"], figures["request-latency-max"]) == (1, 1)


def test_gauges_are_read_when_asked_for(metrics: Metrics) -> None:
    waiting = [1, 2, 3]
    metrics.gauge("waiting-threads", lambda: len(waiting))
    assert metrics.snapshot() == {"waiting-threads": 3}
    waiting.clear()
    assert metrics.snapshot() == {"waiting-threads": 0}


def test_a_counter_may_do_without_a_rate(metrics: Metrics) -> None:
    metrics.counter("connection-creation", rate=False)
    assert set(metrics.snapshot()) == {"connection-creation-total"}


def test_traffic_is_told_by_broker_and_in_all(metrics: Metrics) -> None:
    first, second = Traffic(), Traffic()
    first.requests, second.requests = 2, 3
    first.connections_opened = 2
    first.connections_closed = 1
    network_metrics(metrics, lambda: {"node-1": first, "node-2": second})
    figures = metrics.snapshot()
    assert figures["request-total"] == 5
    assert figures[tagged("request-total", node_id="node-2")] == 3
    assert figures["connection-count"] == 1
    assert figures["request-latency-avg{node-id=node-1}"] == 0
