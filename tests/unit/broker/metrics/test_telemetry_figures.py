"""What clients have pushed, as the pages of a broker tell it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from tests.rigs.clock import ManualClock

from tidelog.broker.metrics.telemetry_figures import telemetry_page
from tidelog.broker.telemetry.client_figures import AllFigures, Client
from tidelog.ids import Uuid
from tidelog.metrics.otlp import Gauge, Metric, NumberPoint, ResourceMetrics, ScopeMetrics

PUSHED = [ResourceMetrics([ScopeMetrics([Metric("x", Gauge([NumberPoint(1.5)]))])], {"client_rack": "r1"})]


def broker_with(clients: int) -> Any:
    clock = ManualClock()
    figures = AllFigures(clock, clients)
    for number in range(clients):
        me = Client(Uuid(number.to_bytes(16, "big")), f"orders-{number}", "librdkafka", "2.16", "10.0.0.7")
        for _ in figures.take(me, 1000, PUSHED):
            pass
    return SimpleNamespace(
        broker_id=3,
        image=SimpleNamespace(cluster_id="here"),
        running_telemetry=SimpleNamespace(figures=figures),
        clock=clock,
    )


def test_a_page_tells_of_each_client_what_it_has_pushed() -> None:
    (row,) = json.loads("".join(telemetry_page(broker_with(1))))["clients"]
    assert (row["client_id"], row["client_source_address"]) == ("orders-0", "10.0.0.7")
    assert row["about"] == {"client_rack": "r1"}
    assert row["metrics"] == [{"name": "kafka_client_x", "labels": "", "value": 1.5}]


def test_a_page_tells_of_some_thousand_clients_and_how_many_more_there_are() -> None:
    page = json.loads("".join(telemetry_page(broker_with(5010))))
    assert len(page["clients"]) == 5000
    assert page["left_out"] == 10
