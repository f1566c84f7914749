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
import enum
from collections import deque
from collections.abc import Callable, Generator, Mapping
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
# A response with fewer elements than this is written at once. So many bytes in fields that hold any number of
# them take as long to write as an element.
_LONG_ELEMENTS = 1000
_BYTES_PER_ELEMENT = 1024


class Unwanted(Exception):
    """Nobody wants the result of the work any more: its client is gone."""


class EncodedResponse(NamedTuple):
    """A response whose longest array is there already as bytes, from a cache."""

    message: Payload
    array: str
    length: int
    elements: bytes
    refused: Mapping[int, int]
    """The errors of elements and of the items in them, and how often."""
    none: int
    """How many of them have no error."""


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
    """What is left of ``left`` after what is in the message, at least until it is used up."""
    for name, kind in _lengthy(type(message)):
        value = getattr(message, name)
        if not value:
            continue
        if kind is _Kind.STRUCTURE:
            left = _count(value, left)
        elif kind is _Kind.BYTES:
            left -= len(value) // _BYTES_PER_ELEMENT
        else:
            left -= len(value)
            if kind is _Kind.ARRAY_OF_LENGTHY:
                for element in value:
                    if left <= 0:
                        return left
                    left = _count(element, left)
    return left


class _Kind(enum.Enum):
    """How a field can be of any length."""

    BYTES = enum.auto()
    STRUCTURE = enum.auto()
    ARRAY = enum.auto()
    ARRAY_OF_LENGTHY = enum.auto()


@cache
def _lengthy(message: type[Message]) -> tuple[tuple[str, _Kind], ...]:
    """The fields of a message, by name, that can be of any length; strings cannot."""
    found: list[tuple[str, _Kind]] = []
    for field in message.FIELDS:
        nests = not isinstance(field.type, str) and bool(_lengthy(field.type))
        if field.array:
            found.append((field.name, _Kind.ARRAY_OF_LENGTHY if nests else _Kind.ARRAY))
        elif nests:
            found.append((field.name, _Kind.STRUCTURE))
        elif field.type in ("bytes", "records"):
            found.append((field.name, _Kind.BYTES))
    return tuple(found)


def _always() -> bool:
    return True


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

    async def run(self, work: Work[T], is_wanted: Callable[[], bool] = _always) -> T:
        """Do the work to its end; raises ``Unwanted`` as soon as nobody waits for that."""
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
