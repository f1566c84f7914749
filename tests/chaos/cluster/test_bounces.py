"""Kafka's replication tests: every acknowledged message is consumed after five bounces of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BOUNCES = 5
BETWEEN = 100


@pytest.mark.parametrize("role", ["leader", "controller"])
@pytest.mark.parametrize("kind", ["clean bounce", "hard bounce"])
def test_what_was_acknowledged_is_consumed_after_bounces(
    tmp_path: Path, seed: int, kind: str, role: str
) -> None:
    with Scenario(tmp_path, seed=seed, title=f"{BOUNCES} times {kind} of the {role}") as scenario:
        scenario.topic("orders", 3)
        scenario.produce("orders", rate=200)
        scenario.produce("orders", rate=200, client=CONFLUENT)
        scenario.assign("orders", client=CONFLUENT)
        scenario.subscribe("orders", "readers")
        nemesis = scenario.nemesis
        for number in range(BOUNCES):
            scenario.wait_acknowledged(BETWEEN)
            victim = nemesis.leader_of("orders", number % 3) if role == "leader" else nemesis.controller()
            nemesis.wait_whole(nemesis.harm(kind, victim, role=role))
            scenario.keep_running()
        scenario.finish()
