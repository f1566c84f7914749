"""Exactly once from Spark: workers, executors, drivers and the broker are killed; the output is the input.

``TIDELOG_SEEDS=<number>`` runs so many, each second one on executors that are processes of their own
(``local-cluster``), ``TIDELOG_SPARK_EVENTS`` says how much happens in each.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.chaos.spark_chaos import SparkChaos

from tidelog.testing.broker_process import BrokerProcess

SEEDS = range(int(os.environ.get("TIDELOG_SEEDS", "1")))
EVENTS = int(os.environ.get("TIDELOG_SPARK_EVENTS", "4"))
OPTIONS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200 + 120 * EVENTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_output_is_input_whoever_is_killed(tmp_path: Path, seed: int) -> None:
    master = "local-cluster[2,1,512]" if seed % 2 else "local[2,4]"
    chance = random.Random(seed)
    with BrokerProcess(tmp_path / "data", options=OPTIONS) as broker:
        chaos = SparkChaos(broker, tmp_path, chance, master=master, guarantee="exactly-once", events=EVENTS)
        try:
            chaos.fill()
            chaos.run()
            print(chaos.happened)
            chaos.check()
            _prove_that_the_check_can_fail(chaos)
        finally:
            chaos.close()


def _prove_that_the_check_can_fail(chaos: SparkChaos) -> None:
    chaos.plant("copy of 0")
    with pytest.raises(AssertionError, match="doubled: 1 records, such as 'copy of 0'"):
        chaos.check()
    chaos.expected["copy of 0"] += 1
    chaos.expected["copy of nothing"] += 1
    with pytest.raises(AssertionError, match="lost: 1 records, such as 'copy of nothing'"):
        chaos.check()
