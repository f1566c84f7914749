"""Whole clusters under seeded storms: what was promised holds, the same seed does the same, and a fault
that is planted is found.

More seeds: ``TIDELOG_SEEDS=200 pytest tests/simulation/test_cluster.py``, or thousands of them with
``python -m tests.simulation.search --seeds 5000``. A failing seed says how it is replayed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.cluster.history import BrokenPromise
from tests.simulation.planted import PLANTED
from tests.simulation.search import one

_ROOT = Path(__file__).parents[2]
_ONE = os.environ.get("TIDELOG_SEED")
ONCE_BROKEN = (53, 65, 204, 565, 1257, 1338, 1443, 2015, 3549)
SEEDS = [int(_ONE)] if _ONE else [*range(int(os.environ.get("TIDELOG_SEEDS", "20"))), *ONCE_BROKEN]


@pytest.mark.parametrize("seed", sorted(set(SEEDS)))
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    assert one(seed).acknowledged > 0


def test_a_seed_does_the_same_in_every_process() -> None:
    program = "from tests.simulation.search import one; record = one(5); print(record.digest, record.events)"
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for number in ("1", "2")
    }
    assert len(told) == 1, told


@pytest.mark.parametrize("fault", sorted(PLANTED))
def test_a_planted_fault_is_found(fault: str) -> None:
    planted = PLANTED[fault]

    def search() -> None:
        with planted.sown():
            for seed in planted.seeds:
                one(seed)

    with pytest.raises(BrokenPromise, match=planted.breaks):
        search()
