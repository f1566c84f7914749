"""Who waits is told when its time is up, in order, and not after its wait has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidelog.scheduling.deadlines import Deadlines

DEADLINE_S = 60.0
LONG_MS = 3_600_000


class Waiting:
    def __init__(self, told: list[str], name: str, then: Callable[[], object] = lambda: None) -> None:
        self._told = told
        self._name = name
        self._then = then

    def time_is_up(self) -> None:
        self._told.append(self._name)
        self._then()


def run(test: Callable[[Deadlines, list[str]], Awaitable[None]]) -> None:
    async def body() -> None:
        deadlines = Deadlines(asyncio.get_running_loop())
        await test(deadlines, [])
        deadlines.close()

    asyncio.run(body())


async def wait_told(told: list[str], count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len(told) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_those_who_wait_equally_long_are_told_in_the_order_of_coming() -> None:
    async def test(deadlines: Deadlines, told: list[str]) -> None:
        for name in "abc":
            deadlines.add(Waiting(told, name), 5)
        await wait_told(told, 3)
        assert told == ["a", "b", "c"]

    run(test)


def test_a_long_wait_does_not_hold_up_a_short_one() -> None:
    async def test(deadlines: Deadlines, told: list[str]) -> None:
        deadlines.add(Waiting(told, "long"), LONG_MS)
        deadlines.add(Waiting(told, "short"), 1)
        await wait_told(told, 1)
        assert told == ["short"]

    run(test)


def test_who_has_ended_its_wait_is_not_told() -> None:
    async def test(deadlines: Deadlines, told: list[str]) -> None:
        first = Waiting(told, "first")
        deadlines.add(first, 5)
        deadlines.add(Waiting(told, "second"), 5)
        deadlines.remove(first, 5)
        deadlines.remove(first, 5)
        await wait_told(told, 1)
        assert told == ["second"]

    run(test)


def test_who_is_told_may_wait_again_and_others_may_end_their_wait() -> None:
    async def test(deadlines: Deadlines, told: list[str]) -> None:
        other = Waiting(told, "other")

        def then() -> None:
            deadlines.remove(other, 5)
            deadlines.add(Waiting(told, "again"), 5)

        deadlines.add(Waiting(told, "first", then), 5)
        deadlines.add(other, 5)
        await wait_told(told, 2)
        assert told == ["first", "again"]

    run(test)


def test_times_that_nobody_waits_for_any_more_are_forgotten() -> None:
    """Otherwise each time that a client thinks of would be kept until it is over."""

    async def test(deadlines: Deadlines, told: list[str]) -> None:
        for number in range(1000):
            waiting = Waiting(told, "never")
            deadlines.add(waiting, LONG_MS + number)
            deadlines.remove(waiting, LONG_MS + number)
        assert len(deadlines._queues) < 20

    run(test)
