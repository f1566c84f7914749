"""Lag of single partitions: which figures have rows, and how many rows are left."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from tidelog.console.watching.history import History
from tidelog.console.watching.partition_lag import LagPoint, PartitionLag, Place, PlaceLag

NOW = 2_000_000_000 - 2_000_000_000 % 3600
PLACE = Place("g", "t", 0)


def lag(records: int, seconds: int | None = None, place: Place = PLACE) -> PlaceLag:
    return PlaceLag(place, records, seconds)


def test_partitions_that_are_not_behind_have_no_rows_but_for_the_moment_they_caught_up() -> None:
    table = PartitionLag(sqlite3.connect(":memory:"))

    def news(at_s: int, records: int) -> bool:
        return bool(table.news("c", at_s, [lag(records)]))

    assert not news(0, 0)
    assert news(10, 5)
    assert not news(20, 5)
    assert news(30, 7)
    assert not news(329, 7)
    assert news(330, 7)  # it is still so
    assert news(340, 0)
    assert not news(9999, 0)
    assert bool(table.news("other", 340, [lag(7)]))


def test_rows_are_read_by_topic_and_partition_and_outlive_a_restart(tmp_path: Path) -> None:
    async def check() -> None:
        second = Place("g", "t", 1)
        for number in range(2):
            history = History(tmp_path / "h.sqlite", 7)
            figures = [lag(5 + number, None), lag(9, 3, second), lag(1, 1, Place("g", "u", 0))]
            await history.write("c", NOW + 20 * number, [], [], [], figures)
            await history.write("c", NOW + 20 * number + 10, [], [], [])  # another look, without partitions
            await history.close()
        history = History(tmp_path / "h.sqlite", 7)
        assert await history.partition_lag("c", "g", "t", NOW) == {
            0: [LagPoint(NOW, 5, None), LagPoint(NOW + 20, 6, None)],
            1: [LagPoint(NOW, 9, 3), LagPoint(NOW + 20, 9, 3)],
        }
        assert await history.partition_lag("other", "g", "t", NOW) == {}
        assert await history.partition_lag("c", "g", "t", NOW + 1000) == {}
        await history.close()

    asyncio.run(check())


def test_rows_are_thinned_out_with_their_age_and_dropped_with_their_names() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    table = PartitionLag(db)
    day = 86_400
    for at in (*range(-2 * day, -2 * day + 7200, 60), *range(-2 * 3600, -3600, 10), *range(-600, 0, 10)):
        table.write("c", NOW + at, [lag(1000 + at)])
    table.write("c", NOW - 8 * day, [lag(1, None, Place("gone", "t", 0))])
    for _ in range(2):  # again changes nothing
        table.clean(NOW, NOW - 7 * day)
        found = [each.at_s - NOW for each in table.read("c", "g", "t", 0)[0]]
        assert found == [
            *(-2 * day + 3540, -2 * day + 7140),  # one an hour
            *range(-7200 + 290, -3600, 300),  # one for five minutes
            *range(-600, 0, 10),
        ]
    assert db.execute("SELECT grp FROM lag_series").fetchall() == [("g",)]
    table.write("c", NOW, [lag(3, None, Place("gone", "t", 0))])
    assert table.read("c", "gone", "t", 0) == {0: [LagPoint(NOW, 3, None)]}


def test_thinning_goes_on_where_it_ended() -> None:
    table = PartitionLag(sqlite3.connect(":memory:", isolation_level=None))
    for hour in range(30):
        for at in range(0, 3600, 100):
            table.write("c", NOW + hour * 3600 + at, [lag(at + 1)])
        table.clean(NOW + (hour + 1) * 3600, 0)
    kept = table.read("c", "g", "t", 0)[0]
    # Six hours are of age for one row each, 23 for twelve each, the last has all.
    assert len(kept) == 6 + 23 * 12 + 36
