"""The history: what is kept, for how long, and how finely."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tidelog.console.watching.changes import Event
from tidelog.console.watching.history import ALL_TOPICS, History, LagFigure, Point, RateFigure
from tidelog.errors import ConfigError

NOW = 2_000_000_000


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
