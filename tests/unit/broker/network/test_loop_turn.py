"""The time of a turn that is shared: nobody who has been put off waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

import pytest

from tidelog.broker.network.loop_turn import LoopTurn


async def turns(go_on: Callable[[], bool]) -> None:
    """Let the loop turn for as long as ``go_on`` says so."""
    while go_on():  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_who_always_has_more_to_do_starves_nobody() -> None:
    """Somebody spends each of his turns and comes again at once; the other one is behind him every time."""
    had: list[str] = []

    async def scenario() -> None:
        turn = LoopTurn(asyncio.get_running_loop())

        def greedy() -> None:
            had.append("greedy")
            turn.spend_since(monotonic() - 1)
            turn.put_off(greedy)

        def modest() -> None:
            had.append("modest")
            turn.put_off(modest)

        turn.put_off(greedy)
        turn.put_off(modest)
        await turns(lambda: len(had) < 20)

    asyncio.run(scenario())
    assert had.count("modest") >= 9


def test_there_is_time_left_for_whoever_has_been_put_off() -> None:
    left: list[bool] = []

    async def scenario() -> None:
        turn = LoopTurn(asyncio.get_running_loop())

        def go_on() -> None:
            left.append(not turn.is_spent)
            turn.spend_since(monotonic() - 1)

        for _ in range(100):
            turn.put_off(go_on)
        await turns(lambda: len(left) < 100)

    asyncio.run(scenario())
    assert all(left)


def test_one_that_fails_takes_nobodys_turn() -> None:
    done = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        turn = LoopTurn(loop)

        def fails() -> None:
            raise RuntimeError("it was not to be")

        turn.put_off(fails)
        turn.put_off(lambda: done.append(True))
        await turns(lambda: not done)

    asyncio.run(asyncio.wait_for(scenario(), 10))
    assert done == [True]


@pytest.mark.parametrize("count", [1, 64, 200])
def test_all_are_called_in_their_order(count: int) -> None:
    called: list[int] = []

    async def scenario() -> None:
        turn = LoopTurn(asyncio.get_running_loop())
        for number in range(count):
            turn.put_off(lambda number=number: called.append(number))  # type: ignore[misc]
        await turns(lambda: len(called) < count)

    asyncio.run(scenario())
    assert called == list(range(count))
