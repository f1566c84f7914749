"""What each kind of quota costs, in instructions of the broker: *quota cost* for a machine that is busy."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contestants import scratch
from benchmarks.figures import Figures
from benchmarks.quota_cost import CountedTidelog, compare

NAME = "quota instructions"


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with scratch(root) as directory:
        broker = CountedTidelog(directory)
        broker.start()
        try:
            turns, requests = (1, 2400) if quick else (3, 9600)
            compare(
                NAME,
                contestant,
                broker,
                figures,
                turns=turns,
                requests=requests,
                unit="instructions",
                per=1.0,
            )
        finally:
            broker.kill()
