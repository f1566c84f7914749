"""Dashboards and alerts ask for nothing but what is declared."""

from __future__ import annotations

import json
import re

import pytest

from tidelog.metrics.alerts import ALERTS, rules
from tidelog.metrics.catalog import FAMILIES
from tidelog.metrics.dashboards import ALL, Dashboard, grafana
from tidelog.metrics.pipeline_catalog import FAMILIES as OF_PIPELINES

NAMES = {metric.name for metric in (*FAMILIES, *OF_PIPELINES)} | {"up"}
NAMES |= {f"{metric.name}_bucket" for metric in FAMILIES if metric.kind == "histogram"}


def asked_for(query: str) -> set[str]:
    return set(re.findall(r"\b(?:kafka|tidelog|process)_\w+", query))


@pytest.mark.parametrize("dashboard", ALL, ids=lambda each: each.name)
def test_a_dashboard_asks_for_what_there_is(dashboard: Dashboard) -> None:
    for query in dashboard.queries:
        assert asked_for(query)
        assert asked_for(query) <= NAMES, query


@pytest.mark.parametrize("dashboard", ALL, ids=lambda each: each.name)
def test_a_dashboard_is_a_file_for_grafana(dashboard: Dashboard) -> None:
    page = json.loads(grafana(dashboard))
    assert [panel["title"] for panel in page["panels"]] == [panel.title for panel in dashboard.panels]
    assert len({panel["id"] for panel in page["panels"]}) == len(page["panels"])


def test_alerts_ask_for_what_there_is() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert asked_for(alert.expr) <= NAMES, alert.name
    assert rules().count("- alert:") == len(ALERTS)


def test_rates_are_asked_for_of_what_only_grows_and_slopes_of_all_else() -> None:
    """To ``rate`` a gauge that falls has been started anew, from nothing: a jump that never was."""
    kinds = {metric.name: metric.kind for metric in (*FAMILIES, *OF_PIPELINES)}
    queries = [query for each in ALL for query in each.queries] + [alert.expr for alert in ALERTS]
    for query in queries:
        for function, name in re.findall(r"\b(rate|increase|deriv|delta)\((\w+)", query):
            is_gauge = kinds.get(name.removesuffix("_bucket")) == "gauge"
            assert is_gauge == (function in ("deriv", "delta")), query
