"""Deadlines and back-off: how long an operation may take, and how long to wait before it is tried again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.client.errors import ClientError, RequestTimeoutError, is_retriable

T = TypeVar("T")

_BACKOFF_MULTIPLIER = 2.0
_BACKOFF_JITTER = 0.2
_MOST_DOUBLINGS = 64
"""Beyond these every wait is at its limit; a power of some thousand is no number any more."""


def check_seconds(call: str, timeout: object, argument: str = "timeout") -> None:
    """Raise ``TypeError`` unless ``timeout``, an argument of ``call``, is a number of seconds."""
    try:
        is_number = timeout >= 0 or timeout < 0  # type: ignore[operator]  # neither is true of NaN
    except TypeError:
        is_number = False
    if not is_number:
        raise TypeError(f"{call}() takes {argument} as a number of seconds, got {timeout!r}")


def running_loop(client: str) -> asyncio.AbstractEventLoop:
    """The loop that runs here; raises ``ClientError`` where there is none, as in a plain function."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ClientError(
            f"{client} works on an event loop: call it in a coroutine, or use {client.split('Async')[-1]}, "
            "which needs none"
        ) from None


def check_loop(loop: asyncio.AbstractEventLoop | None, client: str) -> None:
    """Raise ``ClientError`` unless ``loop``, on which the client has started, runs here."""
    if running_loop(client) is not loop:
        raise ClientError(
            f"{client} belongs to the event loop that it was first used on: make one in each asyncio.run, "
            f"or use {client.split('Async')[-1]}, which needs no loop"
        )


class Deadline:
    """A moment after which waiting ends; handed down so that all steps of an operation share it."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._end = time.monotonic() + timeout_ms / 1000

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def remaining_ms(self) -> int:
        return int(self.remaining * 1000)

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._end


def doubled_ms(initial_ms: float, max_ms: float, times: int) -> float:
    """``initial_ms`` doubled so many times, up to ``max_ms``."""
    return min(initial_ms * _BACKOFF_MULTIPLIER ** min(times, _MOST_DOUBLINGS), max_ms)


class Backoff:
    """Kafka's exponential back-off with jitter: ``initial_ms`` doubled per attempt, up to ``max_ms``.

    ``retries`` is how often may be tried again at all; None: as often as there is time.
    """

    def __init__(self, initial_ms: float = 100, max_ms: float = 1000, retries: int | None = None) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._retries = retries
        self._attempts = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether what has failed now must not be tried again; ask after :meth:`next_ms`."""
        return self._retries is not None and self._attempts > self._retries

    def next_ms(self) -> float:
        """How long to wait before the next attempt."""
        wait_ms = doubled_ms(self._initial_ms, self._max_ms, self._attempts)
        self._attempts += 1
        return wait_ms * random.uniform(1 - _BACKOFF_JITTER, 1 + _BACKOFF_JITTER)


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    deadline: Deadline,
    *,
    backoff: Backoff | None = None,
    retriable: Callable[[BaseException], bool] = is_retriable,
) -> T:
    """The result of ``attempt``, called again after retriable errors until ``deadline`` or its last retry.

    When time is up, the last error that says more than "timed out" is raised.
    """
    backoff = backoff or Backoff()
    telling: Exception | None = None
    while True:
        try:
            return await attempt()
        except Exception as error:
            wait = backoff.next_ms() / 1000
            if not retriable(error):
                raise
            if not isinstance(error, RequestTimeoutError):
                telling = error
            if wait >= deadline.remaining or backoff.is_exhausted:
                raise (telling or error) from None
            await asyncio.sleep(wait)
