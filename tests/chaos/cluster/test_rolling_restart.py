"""All brokers are restarted, one after the other, under load: no client hears of it, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_a_rolling_restart_is_not_noticed_by_clients(tmp_path: Path, seed: int) -> None:
    with Scenario(tmp_path, seed=seed, title="rolling restart") as scenario:
        scenario.topic("orders", 6)
        scenario.produce("orders", rate=500)
        scenario.produce("orders", rate=500, client=CONFLUENT)
        scenario.assign("orders")
        scenario.assign("orders", client=CONFLUENT)
        scenario.subscribe("orders", "ours")
        scenario.subscribe("orders", "librdkafkas", client=CONFLUENT)
        scenario.wait_acknowledged(1000)
        for victim in (1, 2, 3, 3, 2, 1):
            scenario.nemesis.wait_whole(scenario.nemesis.harm("clean bounce", victim))
            scenario.keep_running()
            scenario.wait_acknowledged(1000)
        scenario.finish()
        assert scenario.client_errors() == []
