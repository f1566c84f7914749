"""All faults in any order, for minutes, with producers, readers, groups and transactions at work."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.chaos.cluster.faults import KINDS
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT, TIDELOG

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

DURATION_S = float(os.environ.get("TIDELOG_CHAOS_SECONDS", "180"))


def test_a_storm_of_all_faults_loses_nothing(tmp_path: Path, seed: int) -> None:
    with Scenario(tmp_path, seed=seed, title="storm", zookeeper_servers=3) as scenario:
        scenario.topic("orders", 3)
        scenario.topic("bills", 3)
        for client in (TIDELOG, CONFLUENT):
            scenario.produce("orders", rate=100, client=client)
            scenario.assign("orders", client=client)
            scenario.subscribe("bills", "readers", client=client)
            scenario.copy("orders", "bills", client=client, per_transaction=100)
        scenario.wait_acknowledged(200)
        end_s = time.monotonic() + DURATION_S
        # All of them once, then any.
        kinds = sorted(KINDS)
        scenario.chance.shuffle(kinds)
        while time.monotonic() < end_s:
            kind = kinds.pop() if kinds else scenario.chance.choice(sorted(KINDS))
            scenario.storm(kind)
            if scenario.chance.random() < 0.2:
                copier = scenario.chance.choice(scenario.of_kind("copy"))
                scenario.nemesis.kill_client(copier.kill, copier.work.name)
                scenario.keep_running()
        scenario.finish()
