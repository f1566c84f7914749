"""Our OTLP beside protobuf's own classes (``opentelemetry-proto``), both ways, and what hostile bytes get."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2

from tidelog.metrics.otlp import (
    LARGEST_PART,
    Attributes,
    AttributeValue,
    Buckets,
    ExponentialHistogram,
    ExponentialPoint,
    Gauge,
    Histogram,
    HistogramPoint,
    Metric,
    NumberPoint,
    OtlpError,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
    Summary,
    SummaryPoint,
    Temporality,
    decode,
    decode_in_steps,
    encode,
    encoded_metric,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
uint64s = st.integers(0, (1 << 64) - 1)
doubles = st.floats(allow_nan=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), texts, st.booleans(), int64s, doubles, st.binary(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=4,
)
attributes = st.dictionaries(texts, values, max_size=3)
temporalities = st.sampled_from(Temporality)
rest: dict[str, Any] = {"attributes": attributes, "time_ns": uint64s, "start_ns": uint64s}
maybe = st.none() | doubles
numbers = st.builds(NumberPoint, st.one_of(st.none(), int64s, doubles), **rest)
histograms = st.builds(
    HistogramPoint,
    uint64s,
    maybe,
    st.lists(uint64s, max_size=3),
    st.lists(doubles, max_size=3),
    maybe,
    maybe,
    **rest,
)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
buckets = st.builds(Buckets, int32s, st.lists(uint64s, max_size=3))
exponentials = st.builds(
    ExponentialPoint, uint64s, int32s, maybe, uint64s, buckets, buckets, maybe, maybe, doubles, **rest
)
summaries = st.builds(
    SummaryPoint, uint64s, doubles, st.lists(st.tuples(doubles, doubles), max_size=3), **rest
)
data = st.one_of(
    st.none(),
    st.builds(Gauge, st.lists(numbers, max_size=2)),
    st.builds(Sum, st.lists(numbers, max_size=2), temporalities, st.booleans()),
    st.builds(Histogram, st.lists(histograms, max_size=2), temporalities),
    st.builds(ExponentialHistogram, st.lists(exponentials, max_size=2), temporalities),
    st.builds(Summary, st.lists(summaries, max_size=2)),
)
metrics = st.builds(Metric, texts, data, texts, texts)
scopes = st.builds(ScopeMetrics, st.lists(metrics, max_size=2), texts, texts)
found_metrics = st.lists(st.builds(ResourceMetrics, st.lists(scopes, max_size=2), attributes), max_size=2)


def one(metric: Metric, **attributes: AttributeValue) -> list[ResourceMetrics]:
    return [ResourceMetrics([ScopeMetrics([metric])], attributes)]


def message(number: int, content: bytes) -> bytes:
    length, size = len(content), b""
    while length > 0x7F:
        size += bytes((length & 0x7F | 0x80,))
        length >>= 7
    return bytes((number << 3 | 2,)) + size + bytes((length,)) + content


@settings(max_examples=25, deadline=None)
@given(found_metrics)
def test_what_is_written_is_read_again_and_protobuf_writes_the_same_meaning(
    found: list[ResourceMetrics],
) -> None:
    written = encode(found)
    assert decode(written) == found
    theirs = metrics_pb2.MetricsData.FromString(written)
    # Theirs has no field of ours unread, and in its own order and form of bytes it is the same to us.
    assert decode(theirs.SerializeToString()) == found
    assert _shape(theirs) == [
        [[_count(metric) for metric in scope.metrics] for scope in each.scopes] for each in found
    ]


def _count(metric: Metric) -> tuple[str, int]:
    return metric.name, 0 if metric.data is None else len(metric.data.points)


def _shape(theirs: metrics_pb2.MetricsData) -> list[list[list[tuple[str, int]]]]:
    def points(metric: metrics_pb2.Metric) -> int:
        kind = metric.WhichOneof("data")
        return len(getattr(metric, kind).data_points) if kind else 0

    return [
        [[(metric.name, points(metric)) for metric in scope.metrics] for scope in each.scope_metrics]
        for each in theirs.resource_metrics
    ]


def test_protobuf_reads_each_field_where_it_belongs() -> None:
    found = [
        ResourceMetrics(
            [
                ScopeMetrics(
                    [
                        Metric(
                            "gauge", Gauge([NumberPoint(1.5, {"node": 3, "ok": True}, 20, 10)]), "d", "ms"
                        ),
                        Metric("sum", Sum([NumberPoint(-7)], Temporality.DELTA, is_monotonic=True)),
                        Metric("missing", Gauge([NumberPoint(None)])),
                        Metric("hist", Histogram([HistogramPoint(3, 4.5, [1, 2], [9.5], 0.5, 3.5)])),
                        Metric("quantiles", Summary([SummaryPoint(2, 3.0, [(0.5, 1.0)])])),
                    ],
                    "lib",
                    "1.0",
                )
            ],
            {"client_rack": "r1"},
        )
    ]
    (theirs,) = metrics_pb2.MetricsData.FromString(encode(found)).resource_metrics
    assert [(a.key, a.value.string_value) for a in theirs.resource.attributes] == [("client_rack", "r1")]
    (scope,) = theirs.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("lib", "1.0")
    gauge, total, missing, hist, quantiles = scope.metrics
    point = gauge.gauge.data_points[0]
    assert (gauge.description, gauge.unit, point.as_double) == ("d", "ms", 1.5)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (10, 20)
    assert [(a.key, a.value.int_value, a.value.bool_value) for a in point.attributes] == [
        ("node", 3, False),
        ("ok", 0, True),
    ]
    assert (total.sum.data_points[0].as_int, total.sum.is_monotonic) == (-7, True)
    assert total.sum.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_DELTA
    assert missing.gauge.data_points[0].flags == 1
    assert missing.gauge.data_points[0].WhichOneof("value") is None
    bars = hist.histogram.data_points[0]
    assert (bars.count, bars.sum, bars.min, bars.max) == (3, 4.5, 0.5, 3.5)
    assert (list(bars.bucket_counts), list(bars.explicit_bounds)) == ([1, 2], [9.5])
    assert quantiles.summary.data_points[0].quantile_values[0].value == 1.0


def test_numbers_that_are_none_are_kept() -> None:
    ((point,),) = [
        metric.data.points
        for each in decode(encode(one(Metric("x", Gauge([NumberPoint(math.nan)])))))
        for scope in each.scopes
        for metric in scope.metrics
        if isinstance(metric.data, Gauge)
    ]
    assert isinstance(point.value, float)
    assert math.isnan(point.value)


def test_fields_of_tomorrow_are_skipped() -> None:
    known = encode(one(Metric("x", Gauge([NumberPoint(1)]))))
    assert decode(b"\xfa\x7f\x03abc" + known + b"\xf8\x7f\x01") == decode(known)
    # A kind of metric that is not known here: the metric is there, without its data.
    unknown = message(1, message(2, message(2, message(1, b"name") + message(13, b"\x08\x01"))))
    assert decode(unknown)[0].scopes[0].metrics == [Metric("name", None)]


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (b"\x0a", "cut short"),
        (b"\x0a\x7f", "127 bytes are announced, and 0 are left"),
        (b"\x0a" + b"\xff" * 11, "more than ten bytes"),
        (b"\x0b\x0c", "form 3"),
        (b"\x00\x01", "no field has the tag 0"),
        (b"\x09\x01", "cut short"),
        (message(1, message(2, message(2, message(1, b"\xff")))), "not UTF-8"),
        (message(1, message(1, message(1, message(1, b"k" * LARGEST_PART)))), "more than the 32768 allowed"),
        (
            message(1, message(2, message(2, message(9, message(1, message(6, b"\0" * 7)))))),
            "numbers of 8 bytes each",
        ),
    ],
)
def test_bytes_that_are_no_metrics_are_refused_with_the_reason(hostile: bytes, why: str) -> None:
    with pytest.raises(OtlpError, match=why):
        decode(hostile)


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    try:
        decode(noise)
    except OtlpError:
        return


@settings(max_examples=10, deadline=None)
@given(found_metrics, st.data())
def test_a_flipped_byte_is_read_or_refused(found: list[ResourceMetrics], draw: st.DataObject) -> None:
    written = bytearray(encode(found))
    if written:
        at = draw.draw(st.integers(0, len(written) - 1))
        written[at] ^= draw.draw(st.integers(1, 255))
    try:
        decode(bytes(written))
    except OtlpError:
        return


def test_floods_of_elements_are_refused_before_they_become_objects() -> None:
    points = message(1, message(2, message(2, message(5, b"\x0a\x00" * 200_000))))
    with pytest.raises(OtlpError, match="more than 1000 metrics and points"):
        decode(points, max_elements=1000)
    with pytest.raises(OtlpError, match="more than 1000"):
        decode(b"\x0a\x00" * 2000, max_elements=1000)
    # Unknown fields are work, too.
    with pytest.raises(OtlpError, match="more than 1000"):
        decode(b"\x10\x00" * 2000, max_elements=1000)


def test_deep_nesting_is_refused() -> None:
    value = b""
    for _ in range(2000):
        value = message(5, message(1, value))
    hostile = message(1, message(1, message(1, message(2, value))))
    with pytest.raises(OtlpError, match="nested more than 8 deep"):
        decode(hostile)


def test_reading_in_steps_stops_after_every_point() -> None:
    points = [NumberPoint(number) for number in range(50)]
    steps = decode_in_steps(encode(one(Metric("x", Gauge(points)))))
    assert sum(1 for _ in steps) >= 50


def test_a_number_too_large_for_otlp_says_so() -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        encode(one(Metric("x", Gauge([NumberPoint(1 << 64)]))))
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        encode(one(Metric("x", None), big=1 << 63))


def test_the_size_of_a_metric_is_what_it_adds() -> None:
    attributes: Attributes = {"a": "b"}
    metric = Metric("x", Sum([NumberPoint(1, attributes)]))
    size = len(encoded_metric(metric))
    both = len(encode([ResourceMetrics([ScopeMetrics([metric, metric])])]))
    assert both - len(encode([ResourceMetrics([ScopeMetrics([metric])])])) == size + 2
