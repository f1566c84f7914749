from __future__ import annotations

import pytest

from tidelog.metrics.catalog import FAMILIES, SECTIONS
from tidelog.metrics.metric import counter, gauge, histogram, meter, percent
from tidelog.metrics.page import Page, labels, number

MESSAGES = meter("kafka_server_brokertopicmetrics_messagesin_total", "Records.", "topic")


def text(page: Page, *args: object) -> str:
    return "".join(page.family(*args))  # type: ignore[arg-type]


def test_a_family_has_its_head_and_one_line_for_each_series() -> None:
    assert text(Page(), MESSAGES, [("", 3), (labels(topic="a"), 2)]) == (
        "# HELP kafka_server_brokertopicmetrics_messagesin_total Records.\n"
        "# TYPE kafka_server_brokertopicmetrics_messagesin_total counter\n"
        "kafka_server_brokertopicmetrics_messagesin_total 3\n"
        'kafka_server_brokertopicmetrics_messagesin_total{topic="a"} 2\n'
    )


def test_a_family_without_series_is_not_there() -> None:
    assert text(Page(), MESSAGES, []) == ""


def test_openmetrics_names_a_counters_family_without_its_suffix_and_ends_the_page() -> None:
    page = Page(openmetrics=True)
    assert text(page, MESSAGES, [("", 3)]).splitlines()[1:] == [
        "# TYPE kafka_server_brokertopicmetrics_messagesin counter",
        "kafka_server_brokertopicmetrics_messagesin_total 3",
    ]
    assert "# TYPE x_count unknown" in text(page, counter("x_count", ""), [("", 1)])
    assert page.end == "# EOF\n"


def test_the_newer_names_keep_what_kafka_calls_it() -> None:
    page = Page(newer_names=True)
    assert page.name_of(MESSAGES) == "kafka_server_brokertopicmetrics_messagesinpersec_total"
    assert page.name_of(percent("a_avgidle_percent", "")) == "a_avgidlepercent"
    assert page.name_of(gauge("a_b", "")) == "a_b"


def test_whatever_a_client_calls_itself_stays_within_its_label() -> None:
    assert labels(a='x"} 1\nforged 2\\') == r'{a="x\"} 1\nforged 2\\"}'
    assert "\ud800".encode("utf-8", "replace").decode() in labels(a="\ud800")
    assert len(labels(a="x" * 10_000)) < 1000


@pytest.mark.parametrize(
    ("value", "written"),
    [(1, "1"), (0.5, "0.5"), (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN")],
)
def test_numbers_are_written_as_both_formats_want_them(value: float, written: str) -> None:
    assert number(value) == written


def test_a_histogram_has_buckets_a_sum_and_a_count() -> None:
    rows = [(labels(request="Produce"), [("0.1", 1), ("+Inf", 2)], 0.7, 2)]
    assert "".join(Page().histogram(histogram("x_seconds", "How long."), rows)).splitlines()[2:] == [
        'x_seconds_bucket{request="Produce",le="0.1"} 1',
        'x_seconds_bucket{request="Produce",le="+Inf"} 2',
        'x_seconds_sum{request="Produce"} 0.7',
        'x_seconds_count{request="Produce"} 2',
    ]


def test_every_family_is_declared_once_and_explained() -> None:
    assert len({metric.name for metric in FAMILIES}) == len(FAMILIES)
    assert len({metric.newer_name for metric in FAMILIES}) == len(FAMILIES)
    assert all(metric.help.endswith(".") for metric in FAMILIES)
    assert all(metric.name.endswith(("_total", "_count")) for metric in FAMILIES if metric.kind == "counter")
    assert all(section for _, section in SECTIONS)
