"""What is kept of clients' figures: names, labels, sums, and the bounds that nobody gets around."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rigs.clock import ManualClock

from tidelog.broker.telemetry import client_figures
from tidelog.broker.telemetry.client_figures import AllFigures, Client, families, family_name
from tidelog.ids import Uuid
from tidelog.metrics.catalog import FAMILIES
from tidelog.metrics.otlp import (
    Attributes,
    Gauge,
    Histogram,
    HistogramPoint,
    Metric,
    NumberPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
    Summary,
    SummaryPoint,
    Temporality,
)
from tidelog.metrics.page import Page

ME = Client(Uuid(bytes(range(16))), "orders-1", "librdkafka", "2.16", "10.0.0.7")
LABELS = (
    'client_id="orders-1",client_instance_id="AAECAwQFBgcICQoLDA0ODw",'
    'client_software_name="librdkafka",client_software_version="2.16"'
)


class Rig:
    def __init__(self, max_series: int = 1000) -> None:
        self.clock = ManualClock()
        self.figures = AllFigures(self.clock, max_series)

    def take(self, *metrics: Metric, client: Client = ME, interval_ms: int = 1000, **about: str) -> None:
        found = [ResourceMetrics([ScopeMetrics(list(metrics))], about)]
        for _ in self.figures.take(client, interval_ms, found):
            pass

    def page(self, *, openmetrics: bool = False) -> str:
        page = Page(openmetrics=openmetrics)
        return "".join(
            text
            for family in families(self.figures)
            if family is not None
            for text in page.family(family.metric, family.samples)
        )


def gauge(name: str, value: float | None = 1.5, attributes: Attributes | None = None) -> Metric:
    return Metric(name, Gauge([NumberPoint(value, attributes or {})]))


def delta(name: str, value: float) -> Metric:
    return Metric(name, Sum([NumberPoint(value)], Temporality.DELTA, is_monotonic=True))


def test_a_gauge_shows_its_last_value_under_prometheus_name_with_who_it_is_of() -> None:
    rig = Rig()
    name = "org.apache.kafka.producer.node.request.latency.avg"
    rig.take(gauge(name, 7.5, {"node.id": 3, "ok": True}))
    rig.take(gauge(name, 2.5, {"node.id": 3, "ok": True}))
    assert rig.page().splitlines()[1:] == [
        "# TYPE kafka_client_producer_node_request_latency_avg gauge",
        f'kafka_client_producer_node_request_latency_avg{{{LABELS},node_id="3",ok="true"}} 2.5',
    ]


def test_what_is_added_since_the_last_push_adds_up_to_a_counter() -> None:
    rig = Rig()
    for value in (2, 3):
        rig.take(delta("org.apache.kafka.producer.record.send.total", value))
    assert f"kafka_client_producer_record_send_total{{{LABELS}}} 5\n" in rig.page()
    assert "# TYPE kafka_client_producer_record_send_total counter" in rig.page()


def test_sums_since_the_beginning_replace_one_another_and_sums_that_may_fall_are_gauges() -> None:
    rig = Rig()
    for value in (2, 3):
        rig.take(
            Metric("a.b", Sum([NumberPoint(value)], Temporality.CUMULATIVE, is_monotonic=True)),
            Metric("queue", Sum([NumberPoint(-value)], Temporality.DELTA, is_monotonic=False)),
        )
    assert f"kafka_client_a_b_total{{{LABELS}}} 3\n" in rig.page()
    assert f"kafka_client_queue{{{LABELS}}} -5\n" in rig.page()


def test_of_distributions_count_and_sum_are_shown() -> None:
    rig = Rig()
    for _ in range(2):
        rig.take(
            Metric("h", Histogram([HistogramPoint(3, 4.5)], Temporality.DELTA)),
            Metric("s", Summary([SummaryPoint(7, 8.0)])),
        )
    page = rig.page()
    for line in ("h_count", "6"), ("h_sum", "9.0"), ("s_count", "7"), ("s_sum", "8.0"):
        assert f"kafka_client_{line[0]}{{{LABELS}}} {line[1]}\n" in page


def test_no_client_can_pass_for_a_figure_of_the_broker_or_for_another_client() -> None:
    rig = Rig()
    rig.take(
        gauge("kafka_server_kafkaserver_brokerstate"),
        gauge("x", 1.0, {"client_id": "somebody", "Client-ID": "else", "le": "1"}),
    )
    shown = [line.split("{")[0] for line in rig.page().splitlines() if not line.startswith("#")]
    assert shown == ["kafka_client_kafka_server_kafkaserver_brokerstate", "kafka_client_x"]
    assert "somebody" not in rig.page()
    assert [each.name for each in FAMILIES if each.name.startswith("kafka_client_")] == ["kafka_client_info"]
    assert family_name("info") == "kafka_client_info"


def test_a_gauge_called_like_a_counter_gets_another_name() -> None:
    rig = Rig()
    rig.take(gauge("x.total"), delta("x", 1), gauge("x"), gauge("info"), delta("info", 1))
    kinds = re.findall(r"# TYPE (\S+) (\S+)", rig.page())
    assert kinds == [
        ("kafka_client_info_value", "gauge"),
        ("kafka_client_x_total", "counter"),
        ("kafka_client_x_total_value", "gauge"),
    ]


def test_names_and_labels_that_become_the_same_are_one_series() -> None:
    rig = Rig()
    rig.take(gauge("a.b", 1.0, {"x.y": "1", "x_y": "2"}), gauge("a_b", 2.0, {"x-y": "1"}))
    assert [line for line in rig.page().splitlines() if line[0] != "#"] == [
        f'kafka_client_a_b{{{LABELS},x_y="1"}} 2.0'
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_counter_takes_nothing_that_would_spoil_it(value: float) -> None:
    rig = Rig()
    rig.take(delta("x", 2), delta("x", value))
    assert f"kafka_client_x_total{{{LABELS}}} 2\n" in rig.page()
    assert rig.figures.left_out == 1


def test_hostile_labels_stay_within_their_quotes() -> None:
    rig = Rig()
    hostile = 'a"} 1\nkafka_server_x 666 # \\'
    rig.take(gauge("x", 1.0, {"topic": hostile, 'n"a\nme': "v"}), client=ME._replace(client_id=hostile))
    lines = rig.page().splitlines()
    assert len(lines) == 3
    assert all(line.startswith(("#", "kafka_client_x{")) for line in lines)
    assert 'n_a_me="v"' in lines[2]


names = st.text(max_size=12) | st.sampled_from(["a.b", "a_b", "org.apache.kafka.a.b", "x.total", "x"])
attributes = st.dictionaries(st.text(max_size=6), st.text(max_size=6) | st.integers(), max_size=3)
points = st.lists(st.builds(NumberPoint, st.integers(-5, 5) | st.floats(), attributes), max_size=3)
metrics = st.builds(
    Metric,
    names,
    st.builds(Gauge, points) | st.builds(Sum, points, st.sampled_from(Temporality), st.booleans()),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(metrics, max_size=6), st.booleans())
def test_whatever_is_pushed_the_page_can_be_read(pushed: list[Metric], openmetrics: bool) -> None:
    rig = Rig()
    rig.take(*pushed)
    rig.take(*pushed)
    lines = rig.page(openmetrics=openmetrics).split("\n")
    assert lines.pop() == ""
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(set(series)) == len(series) <= rig.figures.series
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(types)) == len(types)
    label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
    for each in series:
        assert re.fullmatch(rf"kafka_client_[a-z0-9_]+{{{label}(,{label})*}}", each)


# Bounds


def test_a_flood_of_figures_is_bounded_and_those_who_were_there_keep_their_places() -> None:
    rig = Rig(max_series=10)
    rig.take(gauge("honest", 1.0))
    for number in range(50):
        other = ME._replace(instance_id=Uuid(number.to_bytes(16, "big")))
        rig.take(*(gauge(f"x.{each}") for each in range(5)), client=other)
    assert rig.figures.series == 10
    assert rig.figures.left_out == 250 - 9
    rig.take(gauge("honest", 2.0))
    assert f"kafka_client_honest{{{LABELS}}} 2.0\n" in rig.page()


def test_one_client_cannot_take_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_figures, "SERIES_OF_A_CLIENT", 3)
    rig = Rig()
    rig.take(*(gauge(f"x.{each}") for each in range(10)))
    assert (rig.figures.series, rig.figures.left_out) == (3, 7)


def test_overlong_names_are_left_out_and_overlong_values_cut() -> None:
    rig = Rig()
    many: Attributes = {f"label{number}": "v" for number in range(100)}
    rig.take(gauge("n" * 161), gauge("..."), gauge("x", 1.0, {"topic": "t" * 5000}), gauge("y", 1.0, many))
    assert rig.figures.left_out == 2
    assert max(map(len, rig.page().splitlines())) < 1000


def test_figures_of_a_silent_client_go_after_some_minutes_and_make_room() -> None:
    rig = Rig(max_series=1)
    rig.take(gauge("x"))
    rig.clock.advance(300_000)
    assert "kafka_client_x" in rig.page()
    rig.clock.advance(1)
    assert rig.page() == ""
    other = ME._replace(instance_id=Uuid(b"o" * 16))
    rig.take(gauge("y"), client=other, interval_ms=3_600_000)
    rig.clock.advance(3 * 3_600_000)
    assert rig.figures.series == 1
    assert "kafka_client_y" in rig.page()


def test_an_instance_that_calls_itself_otherwise_begins_anew() -> None:
    rig = Rig()
    rig.take(gauge("x"), gauge("y"))
    rig.take(gauge("x"), client=ME._replace(client_id="renamed"))
    assert rig.figures.series == 1
    assert len(rig.figures) == 1


def test_what_a_client_says_of_itself_is_kept_beside() -> None:
    rig = Rig()
    rig.take(gauge("x"), group_id="readers", client_rack="r1")
    (figures,) = rig.figures
    assert figures.resource == {"client_rack": "r1", "group_id": "readers"}


def test_no_client_can_say_that_it_is_elsewhere() -> None:
    rig = Rig()
    found = [ResourceMetrics([], {"client.source.address": "192.0.2.1", "client_rack": "r1"})]
    for _ in rig.figures.take(ME, 1000, found):
        pass
    (figures,) = rig.figures
    assert figures.resource == {"client_rack": "r1"}
