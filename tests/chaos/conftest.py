"""What all scenarios share: a seed that can be set, and broker processes that are gone when the test is.

The seed of a test is made from its name, so a run can be repeated; ``TIDELOG_SEED=random`` draws another one,
and ``TIDELOG_SEED=<number>`` replays what a failed run has printed. At which instruction a process is killed
is still up to the machine: the invariants hold for every instant.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidelog.testing.broker_process import STRICT_LOOP, BrokerProcess

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """The dice of one test."""
    wish = os.environ.get("TIDELOG_SEED", "")
    if wish == "random":
        seed = random.SystemRandom().randrange(1 << 32)
    else:
        seed = int(wish) if wish else zlib.crc32(request.node.name.encode())
    print(f"seed {seed} (repeat with TIDELOG_SEED={seed})")
    return random.Random(seed)


@pytest.fixture
def broker_at(tmp_path: Path) -> Iterator[StartBroker]:
    """Makes brokers, not yet started, with their data under the test's directory."""
    made: list[BrokerProcess] = []

    def make(*log_dirs: Path, **options: str) -> BrokerProcess:
        """Options with ``_`` in the place of ``.``; without directories one is made."""
        named = {name.replace("_", "."): value for name, value in options.items()}
        options = {**STRICT_LOOP, **named}
        broker = BrokerProcess(tmp_path / f"broker{len(made)}", options=options, log_dirs=log_dirs or None)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()
    print(*(line for broker in made for line in broker.hold_ups), sep="\n")
    assert [line for broker in made for line in broker.broken_rule] == []
