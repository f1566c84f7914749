"""Idempotent producers with several requests under way: whoever leads next knows what they repeat."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT, TIDELOG

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TIMES = 6


@pytest.mark.parametrize("kind", ["all killed", "clean bounce"])
def test_nothing_is_written_twice_when_brokers_restart_under_a_producer(
    tmp_path: Path, seed: int, kind: str
) -> None:
    with Scenario(tmp_path, seed=seed, title=f"{TIMES} times {kind}") as scenario:
        scenario.topic("orders", 3)
        for client in (TIDELOG, CONFLUENT, CONFLUENT):
            scenario.produce("orders", rate=300, client=client)
        for number in range(TIMES):
            scenario.wait_acknowledged(300)
            victim = scenario.nemesis.leader_of("orders", number % 3)
            scenario.nemesis.wait_whole(scenario.nemesis.harm(kind, victim))
            scenario.keep_running()
        scenario.finish()
