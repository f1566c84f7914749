"""Kafka's transactions test: 100,000 messages in transactions of 750, brokers and clients bounced."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.scenario import Scenario
from tests.chaos.cluster.workloads import CONFLUENT, TIDELOG

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MESSAGES = 100_000
PER_TRANSACTION = 750
BOUNCES = ("hard bounce", "clean bounce", "client", "hard bounce", "client", "clean bounce")


def test_the_output_is_the_input_once(tmp_path: Path, seed: int) -> None:
    with Scenario(tmp_path, seed=seed, title=f"{MESSAGES} messages copied") as scenario:
        scenario.topic("orders", 4)
        scenario.topic("bills", 4)
        scenario.produce("orders", rate=20_000, count=MESSAGES // 2).wait()
        scenario.produce("orders", rate=20_000, count=MESSAGES // 2, client=CONFLUENT).wait()
        scenario.assign("bills", client=CONFLUENT)
        copiers = [
            scenario.copy("orders", "bills", client=client, per_transaction=PER_TRANSACTION)
            for client in (TIDELOG, CONFLUENT)
        ]
        nemesis = scenario.nemesis
        for number, kind in enumerate(BOUNCES):
            scenario.wait_copied(MESSAGES * (number + 1) // (len(BOUNCES) + 2))
            if kind == "client":
                copier = scenario.chance.choice(copiers)
                nemesis.kill_client(copier.kill, copier.work.name)
            else:
                topic = scenario.chance.choice(
                    ["orders", "bills", "__transaction_state", "__consumer_offsets"]
                )
                nemesis.wait_whole(nemesis.harm(kind, nemesis.leader_of(topic, 0)))
            scenario.keep_running()
        scenario.finish()
