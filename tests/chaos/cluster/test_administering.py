"""Topics come, grow, move and go while brokers are killed and cut off: what was acknowledged is so in the
end, on every broker, and what was begun ends."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.chaos.cluster.administrators import settle, wrong_replicas, wrong_topics
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DURATION_S = float(os.environ.get("TIDELOG_CHAOS_SECONDS", "90"))
KINDS = (
    "kill -9",
    "hard bounce",
    "clean bounce",
    "session expiry",
    "cut from brokers",
    "long pause",
    "isolation",
)


def test_topics_move_and_come_and_go_through_faults(tmp_path: Path, seed: int) -> None:
    with Scenario(tmp_path, seed=seed, title="administered", brokers=4) as scenario:
        scenario.topic("orders", 3)
        scenario.produce("orders", rate=100)
        scenario.produce("orders", rate=100, client=CONFLUENT)
        scenario.assign("orders")
        administrator = scenario.administer("orders")
        scenario.wait_acknowledged(100)
        nemesis = scenario.nemesis
        end_s = time.monotonic() + DURATION_S
        while time.monotonic() < end_s:
            victim = scenario.chance.choice([nemesis.controller, nemesis.anybody])()
            nemesis.harm(scenario.chance.choice(KINDS), victim)
            scenario.keep_running()
            time.sleep(scenario.chance.uniform(0, 3))
        administrator.stop()
        administrator.wait()
        settle(scenario.cluster)
        assert wrong_topics(scenario.cluster, scenario.events()) == []
        log_dirs = {each: broker.data_dir for each, broker in scenario.cluster.brokers.items()}
        scenario.finish()
        missing, stray = wrong_replicas(scenario.cluster, log_dirs)
        print(f"left behind by moves: {stray}")
        assert missing == []
