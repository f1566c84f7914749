"""The short form of the storm: one fault of each sort under load, and nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_kills_pauses_and_cuts_lose_nothing(tmp_path: Path, seed: int) -> None:
    with Scenario(tmp_path, seed=seed, title="a short storm") as scenario:
        scenario.topic("orders", 2)
        scenario.topic("bills", 2)
        scenario.produce("orders", rate=50)
        scenario.produce("orders", rate=50, client=CONFLUENT)
        scenario.assign("orders")
        scenario.assign("bills", client=CONFLUENT)
        scenario.copy("orders", "bills", client="tidelog", per_transaction=50)
        scenario.wait_acknowledged(50)
        nemesis = scenario.nemesis
        for kind, victim in (
            ("hard bounce", nemesis.leader_of("orders", 0)),
            ("session expiry", nemesis.controller()),
            ("cut from brokers", nemesis.leader_of("orders", 1)),
        ):
            nemesis.wait_whole(nemesis.harm(kind, victim))
            scenario.keep_running()
        scenario.finish()
