"""What a benchmark yields: named figures with a unit, one value per contestant and round."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Better = Literal["higher", "lower"]

OURS, PEER, OLD_PEER = "tidelog", "apache", "apache-3.9"


@dataclass
class Figure:
    """One line of the report."""

    benchmark: str
    name: str
    unit: str
    better: Better
    values: dict[str, list[float]] = field(default_factory=dict)
    mark: float | None = None  # the prototype's figure, where there is one

    def median(self, contestant: str) -> float | None:
        values = self.values.get(contestant)
        return statistics.median(values) if values else None

    def spread(self, contestant: str) -> tuple[float, float] | None:
        """The least and the greatest value, where there were several."""
        values = self.values.get(contestant, [])
        return (min(values), max(values)) if len(values) > 1 else None

    def times_better(self, peer: str = PEER) -> float | None:
        """How many times better than the peer we are; below 1 we are worse."""
        ours, theirs = self.median(OURS), self.median(peer)
        if not ours or not theirs:
            return None
        return ours / theirs if self.better == "higher" else theirs / ours

    @property
    def of_mark(self) -> float | None:
        """Our figure as a multiple of the prototype's."""
        ours = self.median(OURS)
        return ours / self.mark if ours and self.mark else None


class Figures:
    """All figures of a run, in the order in which they first came."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], Figure] = {}

    def __iter__(self) -> Iterator[Figure]:
        return iter(self._figures.values())

    def add(
        self, benchmark: str, contestant: str, name: str, value: float, unit: str, better: Better,
        mark: float | None = None,
    ) -> None:  # fmt: skip
        figure = self._figures.setdefault((benchmark, name), Figure(benchmark, name, unit, better, mark=mark))
        figure.values.setdefault(contestant, []).append(value)
