"""Lag of single partitions over days, in a table of the console's history.

Only partitions that are behind have rows, and one of zero when they have caught up; a figure is written when
it has changed, or after ``_HEARTBEAT_S``. For an hour all are kept, for a day the last of five minutes, after
that the last of each hour. With 5,000 partitions that are always behind, a week of it was 46 MB.

    lag_series (id, cluster, grp, topic, partition)      names, once
    partition_lag (series, at_s, records, seconds)       whole seconds; null where nobody can tell

Everything here runs in the thread of the history, but for :meth:`PartitionLag.news` and ``forget_news``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

_HEARTBEAT_S = 300
_STEPS = ((3600, 300), (86_400, 3600))
"""From what age on, in seconds, of how long a time one row is kept."""
_MARGIN_S = 2 * 3600
_SCHEMA = """
CREATE TABLE IF NOT EXISTS lag_series (
    id INTEGER PRIMARY KEY, cluster TEXT, grp TEXT, topic TEXT, partition INTEGER,
    UNIQUE (cluster, grp, topic, partition)
);
CREATE TABLE IF NOT EXISTS partition_lag (
    series INTEGER, at_s INTEGER, records INTEGER, seconds INTEGER, PRIMARY KEY (series, at_s)
) WITHOUT ROWID;
"""
_THIN = """
DELETE FROM partition_lag WHERE at_s >= :from AND at_s < :to AND EXISTS (
    SELECT 1 FROM partition_lag AS later WHERE later.series = partition_lag.series
    AND later.at_s > partition_lag.at_s AND later.at_s < (partition_lag.at_s / :step + 1) * :step
)
"""


class Place(NamedTuple):
    """A partition that a group reads."""

    group: str
    topic: str
    partition: int


class PlaceLag(NamedTuple):
    """How far a group is behind in one partition; seconds are None where nobody can tell."""

    place: Place
    records: int
    seconds: int | None


class LagPoint(NamedTuple):
    """One moment."""

    at_s: int
    records: int
    seconds: int | None


class PartitionLag:
    """The table; several clusters share it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._written: dict[str, dict[Place, LagPoint]] = {}
        self._written_before: dict[str, dict[Place, LagPoint]] = {}
        self._series: dict[tuple[str, Place], int] = {}
        self._thinned_s = 0
        db.executescript(_SCHEMA)

    def news(self, cluster: str, at_s: int, figures: Iterable[PlaceLag]) -> list[PlaceLag]:
        """Those of all figures of one look that are worth a row; on the loop, before :meth:`write`."""
        before, now = self._written.get(cluster, {}), {}
        found: list[PlaceLag] = []
        for each in figures:
            known = before.get(each.place)
            if not each.records:
                if known is not None:
                    found.append(each)
                continue
            is_same = known is not None and (known.records, known.seconds) == (each.records, each.seconds)
            if known is not None and is_same and at_s - known.at_s < _HEARTBEAT_S:
                now[each.place] = known
                continue
            now[each.place] = LagPoint(at_s, each.records, each.seconds)
            found.append(each)
        self._written_before[cluster], self._written[cluster] = before, now
        return found

    def forget_news(self, cluster: str) -> None:
        """The last news could not be written: they are news at the next look, too; on the loop."""
        if cluster in self._written_before:
            self._written[cluster] = self._written_before[cluster]

    def write(self, cluster: str, at_s: int, figures: list[PlaceLag]) -> None:
        """Add rows, within a transaction of the caller's."""
        self._db.executemany(
            "INSERT OR REPLACE INTO partition_lag VALUES (?, ?, ?, ?)",
            [(self._id(cluster, each.place), at_s, each.records, each.seconds) for each in figures],
        )

    def read(self, cluster: str, group: str, topic: str, since_s: int) -> dict[int, list[LagPoint]]:
        """By partition, in the order of time."""
        rows = self._db.execute(
            "SELECT partition, at_s, records, seconds FROM lag_series JOIN partition_lag ON series = id "
            "WHERE cluster = ? AND grp = ? AND topic = ? AND at_s >= ? ORDER BY partition, at_s",
            (cluster, group, topic, since_s),
        )
        found: dict[int, list[LagPoint]] = {}
        for partition, *point in rows:
            found.setdefault(partition, []).append(LagPoint(*point))
        return found

    def clean(self, now_s: int, oldest_s: int) -> None:
        """Drop what is too old, thin out the rest, and forget names that have no rows any more."""
        self._db.execute("DELETE FROM partition_lag WHERE at_s < ?", (oldest_s,))
        for age_s, step in _STEPS:
            # What was thinned out before stays so: only what has come of age since then is looked at.
            since_s = max(0, self._thinned_s - age_s - _MARGIN_S)
            self._db.execute(_THIN, {"from": since_s, "to": now_s - age_s, "step": step})
        self._thinned_s = now_s
        self._db.execute(
            "DELETE FROM lag_series WHERE NOT EXISTS (SELECT 1 FROM partition_lag WHERE series = id)"
        )
        self.forget_names()

    def forget_names(self) -> None:
        """Look names up again: some may not have been kept."""
        self._series.clear()

    def _id(self, cluster: str, place: Place) -> int:
        known = self._series.get((cluster, place))
        if known is None:
            names = (cluster, *place)
            self._db.execute(
                "INSERT OR IGNORE INTO lag_series (cluster, grp, topic, partition) VALUES (?, ?, ?, ?)", names
            )
            (known,) = self._db.execute(
                "SELECT id FROM lag_series WHERE cluster = ? AND grp = ? AND topic = ? AND partition = ?",
                names,
            ).fetchone()
            self._series[cluster, place] = known
        return int(known)
