"""The figures of `tidelog perf`, in the words of Kafka's tools."""

from __future__ import annotations

import pytest

from tidelog.cli.perf.figures import (
    MB,
    ReadFigures,
    SendFigures,
    latency_json,
    latency_lines,
    percentile_name,
    percentiles,
)


def test_percentiles_are_those_of_kafkas_tools() -> None:
    latencies = [float(each) for each in range(1000, 0, -1)]
    assert percentiles(latencies, (0.5, 0.95, 0.99, 0.999)) == [501, 951, 991, 1000]
    assert percentiles([7.0], (0.5, 0.999)) == [7, 7]
    assert percentiles([], (0.5,)) == [0]
    assert [percentile_name(each) for each in (0.5, 0.95, 0.999)] == ["p50", "p95", "p999"]


def test_the_summary_of_sending_reads_as_that_of_kafka_producer_perf_test() -> None:
    figures = SendFigures(expected=4, began_s=100.0)
    for latency_ms in (1.0, 2.0, 3.9, 10.0):
        figures.add(latency_ms, MB)
    assert figures.line(102.0) == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 4.22 ms avg latency, 10.00 ms max latency, "
        "3 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
    )
    steady = SendFigures(expected=1, began_s=100.0, steady=True)
    steady.add(2.0, MB)
    assert steady.line(101.0).startswith("1 steady state records sent, 1.000000 records/sec")


def test_a_window_counts_what_came_since_the_last() -> None:
    figures = SendFigures(expected=3, began_s=0.0)
    figures.add(5.0, MB)
    assert figures.next_window(1.0).line(1.0) == (
        "1 records sent, 1.0 records/sec (1.00 MB/sec), 5.0 ms avg latency, 5.0 ms max latency."
    )
    figures.add(1.0, 2 * MB)
    window = figures.next_window(1.5).as_json(1.5)
    assert (window["records_per_second"], window["mb_per_second"], window["latency_max_ms"]) == (2, 4, 1)
    assert figures.as_json(2.0)["latency_max_ms"] == 5.0


def test_of_many_records_a_sample_is_kept() -> None:
    figures = SendFigures(expected=1_500_000, began_s=0.0)
    for number in range(30):
        figures.add(float(number), 1)
    assert list(figures.samples) == [float(number) for number in range(0, 30, 3)]


def test_the_time_of_joining_a_group_is_told_apart_from_that_of_fetching() -> None:
    figures = ReadFigures(began_s=0.0, ended_s=4.0, bytes=8 * MB, records=800, rebalance_s=2.0)
    assert figures.columns(8 * MB, 800) == "8.0000, 2.0000, 800, 200.0000, 2000, 2000, 4.0000, 400.0000"
    assert ReadFigures(0.0, 1.0, 0, 0, 1.0).columns(0, 0).endswith("1000, 0, 0.0000, 0.0000")


def test_latencies_are_told_as_end_to_end_latency_does() -> None:
    assert latency_lines([1.2, 3.4, 8.9]) == [
        "Avg latency: 4.5000 ms",
        "Percentiles: 50th = 3, 99th = 8, 99.9th = 8",
    ]
    assert latency_json([1.2, 3.4, 8.9])["latency_p50_ms"] == pytest.approx(3.4)
