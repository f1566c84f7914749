from __future__ import annotations

import threading

import pytest

from tidelog.client._network.traffic import Traffic, network_metrics
from tidelog.client.metrics import (
    ClientMetric,
    Family,
    Figure,
    Kind,
    Latency,
    LowStat,
    Metrics,
    Stat,
    gauge,
    merged,
    meter,
    spread,
    tagged,
    total,
)
from tidelog.client.reporters import MetricsReporter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Thing:
    def __init__(self) -> None:
        self.sent = 0
        self.sizes = Stat()
        self.latency = Latency()
        self.lead = LowStat()


SENDING = Family("producer-metrics", meter("record-send", lambda thing: thing.sent, "Records sent"))
SIZES = Family("producer-metrics", spread("batch-size", lambda thing: thing.sizes, "Size of a batch"))
LATENCY = Family(
    "producer-metrics",
    spread("request-latency", lambda thing: thing.latency, "Latency", Kind.AVG, Kind.MAX, Kind.P99),
)
TOPICS = Family(
    "producer-topic-metrics", [total("record-send", lambda thing: thing.sent, "Records sent")], ("topic",)
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics("producer", "p-1", clock=clock)


def test_totals_grow_for_ever_and_rates_are_of_the_last_window_and_the_one_before(
    metrics: Metrics, clock: Clock
) -> None:
    thing = Thing()
    metrics.add_one(SENDING, thing)
    thing.sent = 300
    clock.now += 30
    assert metrics.snapshot() == {"record-send-total": 300, "record-send-rate": 10}
    thing.sent += 60
    clock.now += 30
    # Since the mark of half a minute ago.
    assert metrics.snapshot() == {"record-send-total": 360, "record-send-rate": 2}
    clock.now += 20
    assert metrics.snapshot()["record-send-rate"] == pytest.approx(60 / 50)
    clock.now += 10
    assert metrics.snapshot() == {"record-send-total": 360, "record-send-rate": 0}


def test_readers_at_different_intervals_do_not_cut_one_anothers_windows_short(
    metrics: Metrics, clock: Clock
) -> None:
    thing = Thing()
    metrics.add_one(SENDING, thing)
    rates = []
    for _ in range(60):
        clock.now += 2
        thing.sent += 10
        rates.append(metrics.snapshot()["record-send-rate"])
        assert metrics.snapshot()["record-send-rate"] == rates[-1]
    assert set(rates) == {5.0}


def test_after_a_long_time_without_readers_the_window_is_short_again(metrics: Metrics, clock: Clock) -> None:
    thing = Thing()
    metrics.add_one(SENDING, thing)
    thing.sent = 600
    clock.now += 600
    assert metrics.snapshot()["record-send-rate"] == 1
    clock.now += 0.5
    assert metrics.snapshot()["record-send-rate"] == pytest.approx(1, rel=0.01)
    thing.sent += 100
    clock.now += 4.5
    assert metrics.snapshot()["record-send-rate"] == 20


def test_a_snapshot_at_the_very_beginning_divides_by_nothing(metrics: Metrics) -> None:
    thing = Thing()
    thing.sent = 1
    metrics.add_one(SENDING, thing)
    metrics.add_one(LATENCY, thing)
    assert metrics.snapshot() == {
        "record-send-total": 1,
        "record-send-rate": 0,
        "request-latency-avg": 0,
        "request-latency-max": 0,
        "request-latency-p99": 0,
    }


def test_latencies_are_told_by_average_longest_and_nearly_longest(metrics: Metrics, clock: Clock) -> None:
    thing = Thing()
    metrics.add_one(LATENCY, thing)
    for _ in range(99):
        thing.latency.record(3.0)
    thing.latency.record(103.0)
    clock.now += 30
    figures = metrics.snapshot()
    assert figures["request-latency-avg"] == 4
    assert figures["request-latency-max"] == 103
    assert 3 <= figures["request-latency-p99"] <= 4


def test_a_maximum_lasts_as_long_as_its_window(metrics: Metrics, clock: Clock) -> None:
    thing = Thing()
    metrics.add_one(SIZES, thing)
    seen = []
    for size in (500, 10, 20, 30):
        thing.sizes.record(size)
        clock.now += 30
        seen.append(metrics.snapshot()["batch-size-max"])
    assert seen == [500, 10, 20, 30]
    thing.sizes.record(5)
    clock.now += 29
    assert metrics.snapshot()["batch-size-max"] == 30
    clock.now += 1
    assert metrics.snapshot()["batch-size-max"] == 5


def test_the_smallest_is_told_where_that_matters(metrics: Metrics, clock: Clock) -> None:
    thing = Thing()
    metrics.add_one(
        Family("g", spread("records-lead", lambda thing: thing.lead, "Lead", Kind.AVG, Kind.MIN)), thing
    )
    for lead in (40, 10, 100):
        thing.lead.record(lead)
    assert metrics.snapshot() == {"records-lead-avg": 50, "records-lead-min": 10}


def test_what_happens_seldom_is_told_per_hour_of_one_hour_at_least(metrics: Metrics, clock: Clock) -> None:
    thing = Thing()
    thing.sent = 2
    metrics.add_one(
        Family("g", [Figure("x-rate-per-hour", Kind.PER_HOUR, lambda thing: thing.sent, "")]), thing
    )
    clock.now += 60
    assert metrics.snapshot() == {"x-rate-per-hour": 2}
    clock.now += 4 * 3600 - 60
    assert metrics.snapshot() == {"x-rate-per-hour": 0.5}


def test_gauges_are_read_when_asked_for(metrics: Metrics) -> None:
    waiting = [1, 2, 3]
    metrics.add_one(Family("g", [gauge("waiting-threads", len, "Who waits")]), waiting)
    assert metrics.snapshot() == {"waiting-threads": 3}
    waiting.clear()
    assert metrics.snapshot() == {"waiting-threads": 0}


def test_names_have_their_groups_and_tags(metrics: Metrics) -> None:
    thing = Thing()
    thing.sent = 4
    metrics.add_one(SENDING, thing)
    metrics.add(TOPICS, lambda: {("orders",): thing})
    figures = metrics.snapshot()
    assert figures["record-send-total"] == figures[tagged("record-send-total", topic="orders")] == 4
    (name,) = figures.of_group("producer-topic-metrics")
    assert (name.name, name.group) == ("record-send-total", "producer-topic-metrics")
    assert name.tags == {"client-id": "p-1", "topic": "orders"}
    assert name.description == "Records sent, in all"
    assert metrics.count == 3


def test_several_are_read_as_one() -> None:
    stats = [Stat(), Stat()]
    stats[0].record(2)
    stats[1].record(10)
    found = merged(stats)
    assert (found.count, found.total, found.longest) == (2, 12, 10)


def test_traffic_is_told_by_broker_and_in_all(metrics: Metrics) -> None:
    first, second = Traffic(), Traffic()
    for traffic, sizes in ((first, (10, 30)), (second, (20, 20, 40))):
        for size in sizes:
            traffic.sent.record(size)
    first.connections_opened = 2
    first.connections_closed = 1
    network_metrics(metrics, lambda: {"node-1": first, "node-2": second})
    figures = metrics.snapshot()
    assert figures["request-total"] == 5
    assert figures["outgoing-byte-total"] == 120
    assert (figures["request-size-avg"], figures["request-size-max"]) == (24, 40)
    assert figures[tagged("request-total", node_id="node-2")] == 3
    assert figures[tagged("request-size-max", node_id="node-1")] == 30
    assert figures["connection-count"] == 1
    assert figures["request-latency-avg{node-id=node-1}"] == 0
    assert {name.group for name in figures} == {"producer-metrics", "producer-node-metrics"}


class Notes(MetricsReporter):
    def __init__(self) -> None:
        self.there: dict[str, ClientMetric] = {}
        self.gone: list[str] = []

    def init(self, metrics: object) -> None:
        assert isinstance(metrics, list)
        self.there = {metric.name: metric for metric in metrics}

    def metric_change(self, metric: ClientMetric) -> None:
        assert metric.name not in self.there
        self.there[metric.name] = metric

    def metric_removal(self, metric: ClientMetric) -> None:
        del self.there[metric.name]
        self.gone.append(metric.name)


def test_reporters_are_told_what_there_is_what_comes_and_what_goes(metrics: Metrics) -> None:
    thing = Thing()
    topics: dict[tuple[str, ...], Thing] = {("a",): Thing()}
    metrics.add_one(SENDING, thing)
    metrics.add(TOPICS, lambda: topics)
    notes = Notes()
    metrics.report_to([notes])
    of_a, of_b = tagged("record-send-total", topic="a"), tagged("record-send-total", topic="b")
    assert set(notes.there) == {"record-send-total", "record-send-rate", of_a}
    topics["b",] = Thing()
    metrics.refresh()
    assert of_b in notes.there
    topics["b",].sent = 7
    assert notes.there[of_b].value() == 7
    assert notes.there[of_b].kind is Kind.TOTAL
    del topics["a",]
    metrics.refresh()
    assert notes.gone == [of_a]
    # Another thing under the same name is another figure.
    topics["b",] = Thing()
    metrics.refresh()
    assert notes.gone == [of_a, of_b]
    assert notes.there[of_b].value() == 0


def test_figures_may_be_read_from_another_thread_while_things_come_and_go(metrics: Metrics) -> None:
    topics: dict[tuple[str, ...], Thing] = {}
    metrics.add(TOPICS, lambda: dict(topics))
    metrics.report_to([Notes()])
    problems: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(200):
                metrics.snapshot()
        except BaseException as error:
            problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        topics[str(number),] = Thing()
        metrics.refresh()
    reader.join()
    assert not problems
    assert len(metrics.snapshot()) == 200
