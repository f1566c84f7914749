"""What is shown of running pipelines: a page, whether they run, and the same to a collector."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from tests.rigs.otlp_collector import Collector
from tests.rigs.waiting import wait_until

from tidelog.errors import ConfigError
from tidelog.metrics.otlp_export import Target, endpoint_of
from tidelog.metrics.pipeline_catalog import FAMILIES
from tidelog.spark.pipelines.metrics_export import MetricsExport
from tidelog.spark.pipelines.quality import Quality
from tidelog.spark.pipelines.query_figures import QueryFigures, of_progress

PROGRESS: dict[str, Any] = {
    "inputRowsPerSecond": 120.5,
    "processedRowsPerSecond": 480.0,
    "batchDuration": 250,
    "durationMs": {"addBatch": 200, "walCommit": 10},
    "timestamp": "2026-11-17T06:00:00.000Z",
    "eventTime": {"watermark": "2026-11-17T05:59:00.000Z"},
    "stateOperators": [{"memoryUsedBytes": 1000}, {"memoryUsedBytes": 24}],
}
AT_S = 1794895200.0
QUALITY = Quality(300, 6, 7, {"not-json": 4, "missing:ip": 2}, {"ip": 2}, {"ip": 296, "source": 296})
FIGURES = QueryFigures(
    *("earnings", True, 3, 300, 1, 4, 5, 600),
    **{**of_progress(PROGRESS), "behind": 9},
    quality=QUALITY,
    batch_quality=Quality(4, 1, 0, {"missing:ip": 1}, {"ip": 1}, {"ip": 4}),
)


@pytest.fixture
def export() -> Iterator[MetricsExport]:
    with MetricsExport(("127.0.0.1", 0), None, {}) as running:
        yield running


def get(export: MetricsExport, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{export.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_progress_of_a_batch_becomes_figures() -> None:
    assert of_progress(PROGRESS) == {
        "input_rate": 120.5,
        "processed_rate": 480.0,
        "batch_s": 0.25,
        "phases_s": {"addBatch": 0.2, "walCommit": 0.01},
        "batch_at_s": AT_S,
        "state_bytes": 1024,
        "watermark_s": AT_S - 60,
    }


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), None])
def test_rates_that_are_none_and_a_watermark_of_nothing_are_left_out(rate: float | None) -> None:
    empty = {"watermark": "1970-01-01T00:00:00.000Z"}
    told = of_progress({**PROGRESS, "inputRowsPerSecond": rate, "eventTime": empty})
    assert (told["input_rate"], told["watermark_s"]) == (None, None)
    assert of_progress({**PROGRESS, "eventTime": {}})["watermark_s"] is None


def test_the_page_has_every_family_and_the_values_that_were_given(export: MetricsExport) -> None:
    export.update([FIGURES], {"earnings": 70}, {"earnings": 2, "collect": 8})
    status, page = get(export, "/metrics")
    assert status == 200
    for metric in FAMILIES:
        assert f"# TYPE {metric.name} {metric.kind}\n" in page
    of = '{pipeline="earnings"}'
    for line in (
        f"tidelog_pipeline_up{of} 1",
        f"tidelog_pipeline_batches_total{of} 3",
        f"tidelog_pipeline_input_rows_total{of} 300",
        f"tidelog_pipeline_restarts_total{of} 1",
        f"tidelog_pipeline_late_events_total{of} 4",
        f"tidelog_pipeline_dropped_searches_total{of} 5",
        f"tidelog_pipeline_state_rows{of} 600",
        f"tidelog_pipeline_state_memory_bytes{of} 1024",
        f"tidelog_pipeline_offsets_behind_latest{of} 9",
        f"tidelog_pipeline_lag{of} 70",
        f"tidelog_pipeline_dead_letters{of} 2",
        'tidelog_pipeline_batch_phase_seconds{pipeline="earnings",phase="addBatch"} 0.2',
        f"tidelog_pipeline_malformed_records_total{of} 6",
        'tidelog_pipeline_malformed_reasons_total{pipeline="earnings",reason="missing:ip"} 2',
        f"tidelog_pipeline_duplicated_events_total{of} 7",
        'tidelog_pipeline_field_nulls_total{pipeline="earnings",field="source"} 0',
        'tidelog_pipeline_field_null_ratio{pipeline="earnings",field="ip"} 0.25',
    ):
        assert f"{line}\n" in page
    (delay,) = [line for line in page.splitlines() if line.startswith("tidelog_pipeline_watermark_delay")]
    assert float(delay.split()[-1]) == pytest.approx(time.time() - AT_S + 60, abs=300)
    assert "process_cpu_seconds_total" in page


def test_what_nobody_knows_has_no_line(export: MetricsExport) -> None:
    export.update([QueryFigures("collect", False)], {}, None)
    _, page = get(export, "/metrics", Accept="application/openmetrics-text")
    assert page.endswith("# EOF\n")
    assert 'tidelog_pipeline_up{pipeline="collect"} 0\n' in page
    for name in ("lag", "dead_letters", "watermark_delay_seconds", "batch_duration_seconds"):
        assert f"tidelog_pipeline_{name}{{" not in page


def test_it_is_ready_while_all_queries_run(export: MetricsExport) -> None:
    assert get(export, "/live") == (200, "live\n")
    assert get(export, "/ready") == (503, "the queries have not begun\n")
    export.update([FIGURES], {}, None)
    assert get(export, "/ready") == (200, "ready\n")
    export.update([FIGURES, QueryFigures("collect", False)], {}, None)
    assert get(export, "/ready") == (503, "collect does not run\n")
    assert get(export, "/elsewhere") == (404, "there are /metrics, /live and /ready\n")


def test_an_address_that_is_taken_is_refused_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"--metrics 127.0.0.1:{port} cannot be opened .*choose another"),
            MetricsExport(("127.0.0.1", port), None, {}),
        ):
            pass


def test_a_collector_gets_the_same() -> None:
    collector = Collector()
    target = Target(endpoint_of(f"http://127.0.0.1:{collector.port}"), {}, 0.05, 60.0)
    try:
        with MetricsExport(None, target, {"service.name": "tidelog-pipeline"}) as export:
            assert export.port is None
            export.update([FIGURES], {"earnings": 70}, {})
            wanted = {metric.name for metric in FAMILIES}
            wait_until(lambda: wanted <= collector.names(), "all figures")
        assert ("tidelog_pipeline_input_rows_total", 300) in collector.points()
    finally:
        collector.close()


def test_the_last_figures_are_sent_however_short_the_run() -> None:
    collector = Collector()
    an_hour = Target(endpoint_of(f"http://127.0.0.1:{collector.port}"), {}, 3600.0, 60.0)
    try:
        with MetricsExport(None, an_hour, {}) as export:
            wait_until(lambda: collector.requests, "the first figures")
            export.update([FIGURES], {}, {})
        assert ("tidelog_pipeline_input_rows_total", 300) in collector.points()
    finally:
        collector.close()
