"""The history: what is kept, for how long, and how finely."""

from __future__ import annotations

import asyncio
import logging
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.console.watching import history as history_module
from tidelog.console.watching.changes import Event
from tidelog.console.watching.history import ALL_TOPICS, History, LagFigure, Point, RateFigure
from tidelog.console.watching.partition_lag import LagPoint, Place, PlaceLag
from tidelog.errors import ConfigError

NOW = 2_000_000_000
TOPICS = ("one", "other", "third")


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


def test_rates_of_some_topics_are_added_up_and_each_holds_until_its_next(tmp_path: Path) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)
        looks = {0: (1.1, 2.2), 10: (1.1, 5.0), 20: (0.0, 5.0), 30: (0.0, 5.0), 340: (0.0, 6.0)}
        for at, (one, other) in looks.items():
            rates = [
                RateFigure("one", one, 10),
                RateFigure("other", other, 100),
                RateFigure("hidden", at, at),
            ]
            await history.write("c", NOW + at, [], rates, [])
        found = await history.rates_together("c", ["one", "other", "new"], NOW)
        assert [(each.at_s - NOW, each.values) for each in found] == [
            (0, (3.3, 110)),
            (10, (6.1, 110)),
            (20, (5.0, 110)),
            (340, (6.0, 110)),
        ]
        # Those of which the last figure was before the time that was asked for count, too.
        assert await history.rates_together("c", ["one", "other"], NOW + 340 + 300) == found[-1:]
        assert await history.rates_together("c", ["new"], NOW) == []
        # Nobody looked for an hour: what was before says nothing of what is after.
        await history.write("c", NOW + 4000, [], [RateFigure("one", 7.0, 70)], [])
        assert (await history.rates_together("c", ["one", "other"], NOW))[-1].values == (7.0, 70)
        await history.close()

    asyncio.run(check())


def test_rates_that_were_added_up_once_are_not_read_again(tmp_path: Path) -> None:
    """Pages ask at each look, and thousands of topics have a figure then."""
    path = tmp_path / "h.sqlite"
    chance = random.Random(7)

    async def added_up_anew(since_s: int) -> list[Point]:
        history = History(path, 7)
        try:
            return await history.rates_together("c", TOPICS, since_s)
        finally:
            await history.close()

    async def check() -> None:
        history = History(path, 7)
        at_s = NOW
        for _ in range(60):
            at_s += chance.choice((0, 1, 5, 300, 900))
            rates = [
                RateFigure(each, chance.random(), 1) for each in (*TOPICS, "hidden") if chance.random() < 0.5
            ]
            await history.write("c", at_s, [], rates, [])
            for since_s in (at_s - 3600, at_s - 3600 + chance.randrange(600)):
                found = await history.rates_together("c", TOPICS, since_s)
                assert found == await added_up_anew(since_s)
        since_s = at_s - 3000
        before = await history.rates_together("c", TOPICS, since_s)
        await history._run(lambda: history._db.execute("DELETE FROM rate WHERE at_s < ?", (at_s,)))
        await history.write("c", at_s + 5, [], [RateFigure(TOPICS[0], 9.0, 1)], [])
        assert len(before) > 2
        assert (await history.rates_together("c", TOPICS, since_s))[:-1] == before
        # Of a longer time all are.
        assert await history.rates_together("c", TOPICS, at_s - 4000) == await added_up_anew(at_s - 4000)
        for number in range(100):
            await history.rates_together("c", [f"other-{number}"], at_s)
        assert len(history._sums._kept) < 50
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
    with pytest.raises(ConfigError, match="--data-dir: cannot use the history"):
        History(tmp_path / "h.sqlite", 7)


def test_lag_that_could_not_be_committed_does_not_show_up_under_another_group(tmp_path: Path) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)
        secret, other = PlaceLag(Place("secret", "t", 0), 5, None), PlaceLag(Place("other", "t", 0), 7, None)
        with full_disk():
            assert not await history.write("c", NOW, [], [], [], [secret])
        await history.write("c", NOW + 10, [], [], [], [other])
        await history.write("c", NOW + 20, [], [], [], [secret, other])
        assert await history.partition_lag("c", "other", "t", NOW) == {0: [LagPoint(NOW + 10, 7, None)]}
        assert await history.partition_lag("c", "secret", "t", NOW) == {0: [LagPoint(NOW + 20, 5, None)]}
        await history.close()

    asyncio.run(check())


def test_figures_that_could_not_be_written_are_written_with_the_next_look(tmp_path: Path) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)

        async def write(at_s: int, lag: int) -> bool:
            place = PlaceLag(Place("g", "t", 0), lag, None)
            return await history.write(
                "c", at_s, [LagFigure("g", "t", lag, None)], [RateFigure("t", lag, 0.0)], [], [place]
            )

        await write(NOW, 5)
        with full_disk():
            assert not await write(NOW + 10, 0)
        await write(NOW + 20, 0)
        assert await history.lag("c", "g", NOW) == {"t": [Point(NOW, (5, None)), Point(NOW + 20, (0, None))]}
        assert [each.at_s for each in await history.rates("c", "t", NOW)] == [NOW, NOW + 20]
        assert await history.partition_lag("c", "g", "t", NOW) == {
            0: [LagPoint(NOW, 5, None), LagPoint(NOW + 20, 0, None)]
        }
        await history.close()

    asyncio.run(check())


def damaged_file(path: Path) -> bytes:
    """A history whose pages are nonsense, but for those that are read when it is opened; what it holds."""

    async def fill() -> None:
        history = History(path, 7)
        events = [Event(NOW * 1000 + number, "k" * 100, "info", {}) for number in range(1000)]
        assert await history.write("c", NOW, [], [], events)
        await history.close()

    asyncio.run(fill())
    data = path.read_bytes()
    kept = 12 * 4096
    path.write_bytes(data[:kept] + b"\xff" * (len(data) - kept))
    return path.read_bytes()


@pytest.mark.parametrize("found", ["at the start", "while it is read", "while it is written"])
def test_a_damaged_file_is_put_aside_and_another_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, found: str
) -> None:
    path = tmp_path / "h.sqlite"
    damaged = damaged_file(path)
    if found != "at the start":
        monkeypatch.setattr(history_module, "_CHECKED_BYTES", 0)

    async def check() -> None:
        history = History(path, 7)
        if found == "while it is read":
            assert await history.events("c", 10) == []
        told = Event(NOW * 1000, "topic-created", "info", {"topic": "t"})
        assert await history.write("c", NOW, [LagFigure("g", "t", 1, None)], [], [told])
        assert await history.events("c", 10) == [told]
        assert history.problems == []
        await history.close()

    asyncio.run(check())
    assert (tmp_path / "h.sqlite.damaged").read_bytes() == damaged
    (line,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert f"the history {path} is damaged" in line
    assert f"renamed to {path}.damaged" in line


def test_why_nothing_is_written_is_said_once_and_until_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        history = History(tmp_path / "h.sqlite", 7)
        with full_disk():
            for at in (0, 10):
                assert not await history.write("c", NOW + at, [LagFigure("g", "t", 5, None)], [], [])
        (told,) = history.problems
        assert str(tmp_path / "h.sqlite") in told
        assert "cannot be written" in told
        assert "check its disk" in told
        assert [each.getMessage() for each in caplog.records] == [told]
        assert await history.write("c", NOW + 20, [LagFigure("g", "t", 5, None)], [], [])
        assert history.problems == []
        await history.close()

    asyncio.run(check())
