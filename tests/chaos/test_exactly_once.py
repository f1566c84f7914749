"""Exactly once with our clients and librdkafka: workers and the broker are killed, the output is the input.

``TIDELOG_EXACTLY_ONCE_EVENTS=<number>`` makes a longer run of it, with as many kills.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.chaos.amount import WHOLE, times
from tests.rigs.exactly_once.brokers import transaction_broker
from tests.rigs.exactly_once.loop import Command, Loop, librdkafka, tidelog

EVENTS = int(os.environ.get("TIDELOG_EXACTLY_ONCE_EVENTS", times(3, 5)))
RECORDS_PER_EVENT = 60


CASTS: dict[str, list[Command]] = {
    "librdkafka": [librdkafka, librdkafka],
    "ours": [tidelog(), tidelog()],
    "ours, consumer protocol": [tidelog("consumer"), tidelog("consumer")],
    "ours and librdkafka": [tidelog(), librdkafka],
}
SAMPLE = ["ours, consumer protocol", "ours and librdkafka"]


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * EVENTS)
@pytest.mark.parametrize("cast", CASTS if WHOLE else SAMPLE)
def test_output_is_input_whoever_is_killed(tmp_path: Path, chance: random.Random, cast: str) -> None:
    broker = transaction_broker(tmp_path)
    broker.start()
    loop = Loop(broker, tmp_path, chance, RECORDS_PER_EVENT * (EVENTS + 2), CASTS[cast])
    try:
        loop.run(EVENTS)
        print(loop.happened)
        loop.check()
    finally:
        loop.close()
        broker.kill()
