"""Work that takes long, done in slices between which everybody else is served.

A request that lists a hundred thousand partitions is no reason to keep the others waiting. Whoever has such
work writes it as a generator that yields often (``Work``), and the lane runs it: for a moment, then not
before the loop has looked at its connections again. There is one lane for a broker, and in each turn of the
loop one of those who wait in it gets a slice, so that a hundred such requests take no more of a turn than
one.

The dispatcher runs here what handlers return as generators, and reads and writes messages that may be long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from tidelog.clock import Clock
from tidelog.wire.schema import Message, Payload

T = TypeVar("T")

Work = Generator[None, None, T]
"""Yields wherever others may have their turn; returns its result."""

_SLICE_MS = 2.0
_TRIED_MS = 0.5
_FREED_AT_ONCE = 256
# A response with fewer elements than this is written at once.
_LONG_ELEMENTS = 1000


class EncodedResponse(NamedTuple):
    """A response whose longest array is there already as bytes, from a cache."""

    message: Payload
    array: str
    length: int
    elements: bytes


def emptied(entries: dict[Any, Any]) -> Work[None]:
    """Let go of what may be very many entries, which takes as long as to make them."""
    while entries:
        for _ in range(min(len(entries), _FREED_AT_ONCE)):
            entries.popitem()
        yield


def is_long(response: Payload) -> bool:
    """Whether a response should be written in slices."""
    return _count(response, _LONG_ELEMENTS) <= 0


def _count(message: Message, left: int) -> int:
    """What is left of ``left`` after the elements of the message's arrays, at least until it is used up."""
    for name, of_structures in _arrays(type(message)):
        elements = getattr(message, name)
        if elements:
            left -= len(elements)
            if of_structures:
                for element in elements:
                    if left <= 0:
                        return left
                    left = _count(element, left)
    return left


@cache
def _arrays(message: type[Message]) -> tuple[tuple[str, bool], ...]:
    """The arrays of a message by name, and whether their elements can have arrays in turn."""
    return tuple(
        (field.name, not isinstance(field.type, str) and bool(_arrays(field.type)))
        for field in message.FIELDS
        if field.array
    )


class SlowLane:
    """The queue of those who have more to do than fits into one turn of the loop."""

    def __init__(self, clock: Clock) -> None:
        self._now_ms = clock.monotonic_ms
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    def try_now(self, work: Work[T]) -> T | None:
        """The result of work that ends within a moment; of other work a part is done."""
        end_ms = self._now_ms() + _TRIED_MS
        while self._now_ms() < end_ms:
            try:
                next(work)
            except StopIteration as end:
                return cast(T, end.value)
        return None

    async def run(self, work: Work[T]) -> T:
        """Do the work to its end."""
        while True:
            await self._turn()
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
