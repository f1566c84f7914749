"""earnings killed with -9 at arbitrary moments, Java process and all: not a cent is lost or counted twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.chaos.pipeline_kills import KILLS, finish, kill_in_a_batch
from tests.integration.pipeline_traffic import EarningsTraffic, latest_states, ledger_totals, read_all, send

from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.topics import ensure_topics

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


def test_totals_are_exact_after_kill_nine(tmp_path: Path) -> None:
    draw = random.Random(7)
    directory = tmp_path / "pipelines"
    traffic = EarningsTraffic(seed=7, users=50)
    with BrokerProcess(tmp_path / "broker") as broker:
        settings = PipelineSettings(broker.bootstrap, directory)
        ensure_topics(settings, partitions=2)
        done = -1
        for _ in range(KILLS):
            send(
                broker.bootstrap,
                traffic.shuffled([*traffic.fresh(2000), *traffic.again(400), *traffic.damaged(20)]),
            )
            done = kill_in_a_batch(settings, "earnings", done, draw)
        finish(settings, "earnings")
        assert ledger_totals(settings) == dict(traffic.cents)
        states = latest_states(broker.bootstrap)
        assert {user: state["total_cents"] for user, state in states.items()} == dict(traffic.cents)
        letters = [dict(letter.headers) for letter in read_all(broker.bootstrap, events.DEAD_LETTERS)]
        places = {(each["topic"], each["partition"], each["offset"]) for each in letters}
        assert len(letters) == len(places) == traffic.broken
