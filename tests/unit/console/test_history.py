"""The history: what is kept, for how long, and how finely."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.console.watching.changes import Event
from tidelog.console.watching.history import ALL_TOPICS, History, LagFigure, Point, RateFigure
from tidelog.console.watching.partition_lag import LagPoint, Place, PlaceLag
from tidelog.errors import ConfigError

NOW = 2_000_000_000


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process takes more than a thousand bytes: what is committed cannot be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_figures_are_kept_when_they_change_and_now_and_then(tmp_path: Path) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)
        for at, lag in ((0, 5), (10, 5), (20, 7), (400, 7)):
            await history.write("c", NOW + at, [LagFigure("g", "t", lag, None)], [], [])
        found = await history.lag("c", "g", NOW)
        assert found == {
            "t": [Point(NOW, (5, None)), Point(NOW + 20, (7, None)), Point(NOW + 400, (7, None))]
        }
        assert await history.lag("other", "g", NOW) == {}
        await history.close()

    asyncio.run(check())


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    async def check() -> None:
        for number in range(2):
            history = History(tmp_path / "h.sqlite", 7)
            event = Event(NOW * 1000 + number, "topic-created", "info", {"topic": "t"})
            await history.write("c", NOW + number, [], [RateFigure(ALL_TOPICS, number, 0.0)], [event])
            await history.close()
        history = History(tmp_path / "h.sqlite", 7)
        assert [each.at_ms - NOW * 1000 for each in await history.events("c", 10)] == [1, 0]
        assert [each.values[0] for each in await history.rates("c", ALL_TOPICS, NOW)] == [0.0, 1.0]
        await history.close()

    asyncio.run(check())


def test_old_figures_are_thinned_out_and_then_dropped(tmp_path: Path) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)
        day = 86_400
        for at in (-8 * day, *range(-2 * day, -2 * day + 300, 10), -10):
            figure = LagFigure("g", "t", at % 1000, None)
            await history.write("c", NOW - NOW % 300 + at, [figure], [], [])
        await history._run(lambda: history.clean(NOW))
        (points,) = (await history.lag("c", "g", 0)).values()
        assert [each.at_s - (NOW - NOW % 300) for each in points] == [-2 * day + 290, -10]
        await history.close()

    asyncio.run(check())


def test_events_are_chosen_by_kind_and_group(tmp_path: Path) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)
        events = [
            Event(NOW * 1000 + number, kind, "info", {"group": group})
            for number, (kind, group) in enumerate((("a", "g"), ("b", "g"), ("a", "h"), ("a", "g")))
        ]
        await history.write("c", NOW, [], [], events)
        found = await history.events("c", 10, ("a",), "g")
        assert [each.at_ms - NOW * 1000 for each in found] == [3, 0]
        assert len(await history.events("c", 10, ("a", "b"))) == 4
        assert await history.events("other", 10, ("a",)) == []
        await history.close()

    asyncio.run(check())


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "h.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(ConfigError, match="--data-dir: the history"):
        History(tmp_path / "h.sqlite", 7)


def test_lag_that_could_not_be_committed_does_not_show_up_under_another_group(tmp_path: Path) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)
        secret, other = PlaceLag(Place("secret", "t", 0), 5, None), PlaceLag(Place("other", "t", 0), 7, None)
        with full_disk(), pytest.raises(sqlite3.Error):
            await history.write("c", NOW, [], [], [], [secret])
        await history.write("c", NOW + 10, [], [], [], [other])
        await history.write("c", NOW + 20, [], [], [], [secret, other])
        assert await history.partition_lag("c", "other", "t", NOW) == {0: [LagPoint(NOW + 10, 7, None)]}
        assert await history.partition_lag("c", "secret", "t", NOW) == {0: [LagPoint(NOW + 20, 5, None)]}
        await history.close()

    asyncio.run(check())


def test_figures_that_could_not_be_written_are_written_with_the_next_look(tmp_path: Path) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)

        async def write(at_s: int, lag: int) -> None:
            place = PlaceLag(Place("g", "t", 0), lag, None)
            await history.write(
                "c", at_s, [LagFigure("g", "t", lag, None)], [RateFigure("t", lag, 0.0)], [], [place]
            )

        await write(NOW, 5)
        with full_disk(), pytest.raises(sqlite3.Error):
            await write(NOW + 10, 0)
        await write(NOW + 20, 0)
        assert await history.lag("c", "g", NOW) == {"t": [Point(NOW, (5, None)), Point(NOW + 20, (0, None))]}
        assert [each.at_s for each in await history.rates("c", "t", NOW)] == [NOW, NOW + 20]
        assert await history.partition_lag("c", "g", "t", NOW) == {
            0: [LagPoint(NOW, 5, None), LagPoint(NOW + 20, 0, None)]
        }
        await history.close()

    asyncio.run(check())
