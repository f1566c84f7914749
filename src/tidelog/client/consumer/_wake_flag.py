"""A flag that one task, or one thread beside the loop's, waits for: something has happened, look again."""

from __future__ import annotations

import asyncio
import contextlib
import queue


class WakeFlag:
    """Told by callbacks of the loop, waited for by the one task that polls.

    ``clear`` before looking, ``wait`` after: what is told in between is not missed.
    """

    def __init__(self) -> None:
        self._told = False
        self._waiter: asyncio.Future[None] | None = None
        self._thread_waits = False
        self._for_thread: queue.SimpleQueue[None] = queue.SimpleQueue()

    def clear(self) -> None:
        self._told = False

    def tell(self) -> None:
        self._told = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._thread_waits:
            self._thread_waits = False
            self._for_thread.put(None)

    def expect(self) -> None:
        """In another thread: what is told from now on ends :meth:`wait_in_thread`."""
        self._thread_waits = True

    def wait_in_thread(self, seconds: float) -> None:
        """Wait, not on the loop, for what is told after :meth:`expect`; at times less than that."""
        with contextlib.suppress(queue.Empty):
            self._for_thread.get(timeout=seconds)

    def no_longer_expect(self) -> None:
        """In another thread: nobody waits there any more."""
        self._thread_waits = False

    async def wait(self, seconds: float) -> None:
        """Until something is told, or time is up."""
        if self._told or seconds <= 0:
            # Even so give others a turn: a poll that never waits must not starve the loop.
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = loop.call_later(seconds, _release, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
