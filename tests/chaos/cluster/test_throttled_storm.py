"""Brokers of a cluster are killed while quotas hold its clients back: nothing acknowledged is lost, and when
the quotas are gone everybody catches up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT

from tidelog import Admin
from tidelog.client.admin.quotas import QuotaAlteration

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RATES = {"producer_byte_rate": 2000.0, "consumer_byte_rate": 4000.0}


def set_quotas(scenario: Scenario, rates: dict[str, float | None]) -> None:
    with Admin(bootstrap_servers=scenario.cluster.bootstrap) as admin:
        for result in admin.alter_client_quotas([QuotaAlteration({"client-id": None}, rates)]):
            assert result.error is None


def test_kills_under_quotas_lose_nothing(tmp_path: Path, seed: int) -> None:
    with Scenario(tmp_path, seed=seed, title="a storm under quotas") as scenario:
        scenario.topic("orders", 3)
        set_quotas(scenario, {**RATES})
        for client in ("tidelog", CONFLUENT):
            scenario.produce("orders", rate=100, client=client)
            scenario.assign("orders", client=client)
        scenario.wait_acknowledged(50)
        nemesis = scenario.nemesis
        for kind in ("hard bounce", "clean bounce", "hard bounce", "cut from brokers"):
            nemesis.wait_whole(nemesis.harm(kind, nemesis.leader_of("orders", 0)))
            scenario.keep_running()
        set_quotas(scenario, dict.fromkeys(RATES))
        scenario.finish()
