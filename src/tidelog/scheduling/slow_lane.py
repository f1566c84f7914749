"""Runs work that takes long in slices, between which every other client is served.

A request that lists a hundred thousand partitions must not keep the others waiting. Such work is a generator
that yields often (``slices.Slices``). The lane runs it for two milliseconds, then lets the loop read and
write its connections. A broker has one lane, and in each turn of the loop one waiting piece of work gets a
slice, so a hundred such requests take no more of a turn than one.

The dispatcher runs here what handlers return as generators, and long messages that it reads or writes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

from tidelog.clock import Clock
from tidelog.scheduling.slices import Slices

T = TypeVar("T")

_SLICE_MS = 2.0
_TRIED_MS = 0.5


class Unwanted(Exception):
    """The client that asked for the work has disconnected."""


def _always() -> bool:
    return True


class SlowLane:
    """The queue of work that does not fit into one turn of the loop."""

    def __init__(self, clock: Clock) -> None:
        self._now_ms = clock.monotonic_ms
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    def try_now(self, work: Slices[T]) -> T | None:
        """Run the work for half a millisecond: its result, or None if more is left to do."""
        try:
            # Nearly all work is over before it yields, and its time need not be taken.
            next(work)
            end_ms = self._now_ms() + _TRIED_MS
            while self._now_ms() < end_ms:
                next(work)
        except StopIteration as end:
            return cast(T, end.value)
        return None

    async def run(self, work: Slices[T], is_wanted: Callable[[], bool] = _always) -> T:
        """Run the work to its end; raises ``Unwanted`` as soon as ``is_wanted`` returns False."""
        while True:
            await self._turn()
            if not is_wanted():
                work.close()
                raise Unwanted
            end_ms = self._now_ms() + _SLICE_MS
            while self._now_ms() < end_ms:
                try:
                    next(work)
                except StopIteration as end:
                    return cast(T, end.value)

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        self._schedule(loop)
        await turn

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._schedule(loop)
