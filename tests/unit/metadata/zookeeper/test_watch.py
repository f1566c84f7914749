"""A standing watch is set again in every session, whenever the last one ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tidelog.metadata.store import SessionExpired
from tidelog.metadata.zookeeper.watch import Watch

PATH = "/controller"


class Ensemble:
    """Sets watches when it is told to, or fails as a session does that has ended."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[None]] = []

    async def set_watch(self, path: str, of_children: bool, on_event: Callable[[Any], None]) -> None:
        self.asked.append(asyncio.get_running_loop().create_future())
        await self.asked[-1]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_session_that_begins_while_the_last_ones_watch_fails_sets_it_again() -> None:
    async def test() -> None:
        ensemble = Ensemble()
        looks: list[str] = []
        loop = asyncio.get_running_loop()
        watch = Watch(PATH, lambda: looks.append(PATH), False, loop, ensemble.set_watch)
        watch.begin()
        await turns()
        # The new session is there before the old one's request has failed.
        watch.begin()
        ensemble.asked[0].set_exception(SessionExpired(PATH))
        await turns()
        assert len(ensemble.asked) == 2
        ensemble.asked[1].set_result(None)
        await turns()
        assert looks == [PATH]
        assert len(ensemble.asked) == 2

    asyncio.run(test())


def test_a_watch_that_fails_with_its_session_waits_for_the_next() -> None:
    async def test() -> None:
        ensemble = Ensemble()
        looks: list[str] = []
        loop = asyncio.get_running_loop()
        watch = Watch(PATH, lambda: looks.append(PATH), False, loop, ensemble.set_watch)
        watch.begin()
        await turns()
        ensemble.asked[0].set_exception(SessionExpired(PATH))
        await turns()
        assert len(ensemble.asked) == 1
        watch.begin()
        await turns()
        ensemble.asked[1].set_result(None)
        await turns()
        assert looks == [PATH]

    asyncio.run(test())
