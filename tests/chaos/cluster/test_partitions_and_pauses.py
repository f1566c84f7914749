"""100,000 messages at 10,000/s, while brokers are cut off, deaf, mute, slow or stand still."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MESSAGES = 100_000
PER_SECOND = 10_000
KINDS = (
    ("cut from brokers", "long pause"),
    ("isolation", "short pause"),
    ("deaf to brokers", "mute to brokers"),
    ("session expiry", "slow network"),
)


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: " then ".join(kinds))
def test_a_flood_passes_through_partitions_and_pauses(
    tmp_path: Path, seed: int, kinds: tuple[str, str]
) -> None:
    with Scenario(tmp_path, seed=seed, title=" then ".join(kinds)) as scenario:
        scenario.topic("orders", 3)
        scenario.assign("orders")
        producers = [
            scenario.produce("orders", rate=PER_SECOND / 2, count=MESSAGES // 2),
            scenario.produce("orders", rate=PER_SECOND / 2, count=MESSAGES // 2, client=CONFLUENT),
        ]
        scenario.wait_acknowledged(PER_SECOND)
        nemesis = scenario.nemesis
        for number, kind in enumerate(kinds):
            nemesis.wait_whole(nemesis.harm(kind, nemesis.leader_of("orders", number)))
        for producer in producers:
            producer.wait()
        scenario.finish()
