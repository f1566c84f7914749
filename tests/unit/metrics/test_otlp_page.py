"""Figures written for a scrape, as OTLP: the same names, labels and values."""

from __future__ import annotations

from opentelemetry.proto.metrics.v1 import metrics_pb2

from tidelog.metrics.metric import counter, gauge, histogram, meter
from tidelog.metrics.otlp_page import OtlpPage, attributes_of
from tidelog.metrics.page import labels


def written(page: OtlpPage) -> list[metrics_pb2.Metric]:
    message = page.take({"service.name": "tidelog"}, "tidelog", "1")
    (resource,) = metrics_pb2.MetricsData.FromString(message).resource_metrics
    assert resource.resource.attributes[0].value.string_value == "tidelog"
    (scope,) = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("tidelog", "1")
    return list(scope.metrics)


def page(*, newer_names: bool = False) -> OtlpPage:
    return OtlpPage(newer_names=newer_names, start_ns=10, time_ns=20)


def test_counters_are_sums_since_the_start_and_gauges_are_gauges() -> None:
    into = page()
    assert set(into.family(counter("c_total", "Help."), [("", 3), (labels(topic="a"), 4)])) == {""}
    assert set(into.family(gauge("g", ""), [(labels(topic="b"), 1.5)])) == {""}
    assert into.points == 3
    total, level = written(into)
    assert (total.name, total.description, total.sum.is_monotonic) == ("c_total", "Help.", True)
    assert total.sum.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert [each.as_int for each in total.sum.data_points] == [3, 4]
    assert {each.start_time_unix_nano for each in total.sum.data_points} == {10}
    assert level.gauge.data_points[0].as_double == 1.5
    assert level.gauge.data_points[0].attributes[0].value.string_value == "b"
    assert into.points == 0


def test_histograms_keep_their_buckets() -> None:
    into = page()
    rows = [(labels(request="Fetch"), [("0.5", 1), ("1.0", 3), ("+Inf", 6)], 7.5, 6)]
    assert set(into.histogram(histogram("h", ""), rows)) == {""}
    (found,) = written(into)
    (point,) = found.histogram.data_points
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == ([0.5, 1.0], [1, 2, 3])
    assert (point.sum, point.count) == (7.5, 6)


def test_a_long_family_comes_in_pieces_between_which_others_may_run() -> None:
    into = page()
    pieces = list(into.family(gauge("g", ""), [(labels(n=number), number) for number in range(250)]))
    assert len(pieces) == 3
    assert sum(len(metric.gauge.data_points) for metric in written(into)) == 250


def test_labels_are_read_back_whatever_they_hold() -> None:
    for value in ("", 'a"b', "a\\", "a\nb", "\\n", 'x="y",z="', "ü\u2028"):
        assert attributes_of(labels(first=value, second="s")) == {"first": value, "second": "s"}
    assert attributes_of("") == {}


def test_the_newer_names_and_numbers_beyond_64_bits_go_too() -> None:
    into = page(newer_names=True)
    list(into.family(meter("a_total", ""), [("", 1 << 70)]))
    (found,) = written(into)
    assert found.name == "apersec_total"
    assert found.sum.data_points[0].as_double == float(1 << 70)
