"""A flag that one task waits for: something has happened, look again."""

from __future__ import annotations

import asyncio


class News:
    """Told by callbacks of the loop, waited for by the one task that polls.

    ``clear`` before looking, ``wait`` after: what is told in between is not missed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told = False
        self._waiter: asyncio.Future[None] | None = None

    def clear(self) -> None:
        self._told = False

    def tell(self) -> None:
        self._told = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Until something is told, or time is up."""
        if self._told or seconds <= 0:
            # Even so give others a turn: a poll that never waits must not starve the loop.
            await asyncio.sleep(0)
            return
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, _release, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
