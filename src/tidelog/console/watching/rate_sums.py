"""What is written to some topics together, over time: of rates of single topics, as the history has them.

People who may see some topics have charts of these. Thousands of topics have a figure at each look, and pages
ask again after each: what was added up once is kept, and only what is new is read. Used by ``history``, in
its thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec

GAP_S = 720
"""No figure holds for longer: nobody looked. Charts have the same bound."""
_KEPT = 16
_QUERY = (
    "SELECT topic, at_s, records, size_bytes FROM rate WHERE cluster = ? AND at_s >= ? "
    "AND topic IN (SELECT value FROM json_each(?)) ORDER BY at_s"
)


class RateSum(NamedTuple):
    """Records and bytes a second at a moment."""

    at_s: int
    records: float
    size_bytes: float


class RateSums:
    """The sums that were asked for lately."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._kept: dict[tuple[str, frozenset[str]], _Sums] = {}
        """The one that was asked for last is the last."""

    def read(self, cluster: str, topics: Collection[str], since_s: int) -> list[RateSum]:
        """The sums at each moment from ``since_s`` on when one of the topics has a figure."""
        name = cluster, frozenset(topics)
        sums = self._kept.pop(name, None)
        if sums is None or since_s < sums.since_s:  # a longer time, or the clock was set back
            sums = _Sums(since_s)
        sums.begin(since_s)
        sums.add(self._db.execute(_QUERY, (cluster, sums.read_to_s, msgspec.json.encode([*topics]).decode())))
        self._kept[name] = sums
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return [*sums.points.values()]


class _Sums:
    """Those of some topics; each figure holds until the next of its topic."""

    def __init__(self, since_s: int) -> None:
        self.since_s = since_s
        self.read_to_s = since_s - GAP_S
        """Figures of this second may still change."""
        self.points: dict[int, RateSum] = {}
        self._held: dict[str, tuple[int, float, float]] = {}  # by topic, the oldest first

    def begin(self, since_s: int) -> None:
        """Forget what was before."""
        self.since_s = since_s
        for at_s in [*self._before(since_s)]:
            del self.points[at_s]

    def _before(self, since_s: int) -> Iterator[int]:
        for at_s in self.points:
            if at_s >= since_s:
                return
            yield at_s

    def add(self, figures: Iterable[tuple[str, int, float, float]]) -> None:
        """Take figures, by time, from ``read_to_s`` on."""
        for at_s, of_moment in groupby(figures, lambda each: each[1]):
            for topic, _, records, size_bytes in of_moment:
                self._held.pop(topic, None)
                self._held[topic] = at_s, records, size_bytes
            while self._held[oldest := next(iter(self._held))][0] < at_s - GAP_S:
                del self._held[oldest]
            self.read_to_s = at_s
            if at_s >= self.since_s:
                held = self._held.values()
                records = round(sum(each[1] for each in held), 2)
                self.points[at_s] = RateSum(at_s, records, sum(each[2] for each in held))
