"""Spark's queries in ``tidelog top``: of two samples, as rows, in the picture."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from tests.unit.cli.top.samples import ORDERS_0, sample

from tidelog.cli.top.loads import load_between
from tidelog.cli.top.picture import Frame, draw
from tidelog.cli.top.sample import Sample
from tidelog.cli.top.sections import sections
from tidelog.spark.report.application import Application
from tidelog.spark.report.query_report import REPORT_PREFIX, BatchReport, QueryReport, encode

NOW_MS = 1_800_000_000_000
GROUP = f"{REPORT_PREFIX}a"


def with_query(found: Sample, at_ms: int, offset: int, error: str | None = None) -> Sample:
    """The sample with a query that reads the first partition of ``orders``."""
    report = QueryReport(
        NOW_MS,
        NOW_MS - 30_000,
        Application("id", "host-1", "etl\x1b[31m"),
        4,
        recent=[BatchReport(NOW_MS - 20_000, 600, 250)],
        error=error,
    )
    committed = {**found.committed, GROUP: {ORDERS_0: offset}}
    return replace(found, at_ms=at_ms, committed=committed, notes={GROUP: (encode(report),)})


def test_a_query_has_its_rows_its_lag_and_how_that_changes() -> None:
    before = with_query(sample(10.0, (1000, 0)), NOW_MS - 2000, 900)
    now = with_query(sample(12.0, (1100, 300)), NOW_MS, 1060)
    (query,) = load_between(before, now).queries
    assert (query.running, query.reads, query.writes) == (True, ["orders"], [])
    assert (query.lag, query.lag_per_second) == (40, -30.0)
    assert (query.rows_per_second, query.batch_ms, query.batches) == (20.0, 250, 4)


def test_a_query_that_is_silent_has_ended() -> None:
    later = with_query(sample(12.0, (1100, 300)), NOW_MS + 60_000, 1060)
    (query,) = load_between(later, later).queries
    assert (query.running, query.rows_per_second, query.seen_age_s) == (False, 0.0, 60.0)


def test_the_picture_has_queries_where_there_are_some_and_no_control_characters() -> None:
    plain = sample(12.0, (1100, 300))
    told = with_query(plain, NOW_MS, 1060, error="DataLossError: gone")
    for width in (80, 200):
        console = Console(width=width, record=True)
        console.print(draw(Frame(load_between(told, told)), width, 50))
        text = console.export_text()
        assert "Spark queries" in text
        assert "\x1b" not in text
        console = Console(width=width, record=True)
        console.print(draw(Frame(load_between(plain, plain)), width, 50))
        assert "Spark queries" not in console.export_text()
    (section,) = [
        each for each in sections(load_between(told, told), for_people=False) if each.title == "Spark queries"
    ]
    assert section.bad == {0}
    assert len(section.rows[0]) == len(section.columns)
    assert section.rows[0][-1] == "DataLossError: gone"
