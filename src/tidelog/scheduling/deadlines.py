"""Those who wait, at most for so long: one timer for all whose patience is the same.

Nearly every long poll and every produce request ends before its time is up, and clients wait for the same
time again and again. Whoever waits equally long stands in one queue, in the order of coming, which is that of
the deadlines; only the first of each queue is timed. So beginning and ending a wait costs a look into a dict
each, where a timer of its own would go onto the loop's heap and stay there, cancelled, until it is due.

Used by ``delayed_fetch`` and ``produce_wait``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

logger = logging.getLogger(__name__)

# As many may be kept for those who come again.
_IDLE_QUEUES = 16


class Expiring(Protocol):
    """Somebody whose time can be up."""

    def time_is_up(self) -> None:
        """The wait has lasted as long as it may; called once, and not after ``remove``."""


class _Queue:
    """Those who wait equally long, first come first, and the timer of the first."""

    __slots__ = ("timer", "waiting")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.waiting: dict[Expiring, float] = {}


class Deadlines:
    """The waits of one broker."""

    __slots__ = ("_loop", "_queues")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[int, _Queue] = {}

    def add(self, waiter: Expiring, delay_ms: int) -> None:
        """Tell ``waiter`` when ``delay_ms`` are over."""
        deadline = self._loop.time() + delay_ms / 1000
        queue = self._queues.get(delay_ms)
        if queue is None:
            queue = self._queues[delay_ms] = _Queue(self._loop.call_at(deadline, self._look, delay_ms))
        queue.waiting[waiter] = deadline

    def remove(self, waiter: Expiring, delay_ms: int) -> None:
        """``waiter``, who was added with ``delay_ms``, waits no longer."""
        queue = self._queues.get(delay_ms)
        if queue is None:
            return
        queue.waiting.pop(waiter, None)
        if not queue.waiting and len(self._queues) > _IDLE_QUEUES:
            # Clients may think of any number of times to wait.
            queue.timer.cancel()
            del self._queues[delay_ms]

    def waiting(self) -> list[Expiring]:
        """All who wait."""
        return [waiter for queue in self._queues.values() for waiter in queue.waiting]

    def close(self) -> None:
        """Tell nobody any more."""
        for queue in self._queues.values():
            queue.timer.cancel()
        self._queues.clear()

    def _look(self, delay_ms: int) -> None:
        now = self._loop.time()
        queue = self._queues[delay_ms]
        waiting = queue.waiting
        while waiting:
            waiter, deadline = next(iter(waiting.items()))
            if deadline > now:
                queue.timer = self._loop.call_at(deadline, self._look, delay_ms)
                return
            del waiting[waiter]
            try:
                waiter.time_is_up()
            except Exception:
                # The others in this queue have no other timer.
                logger.exception("The end of a wait of %d ms failed", delay_ms)
        # Who was told may have taken it away, and another have come since.
        if self._queues.get(delay_ms) is queue:
            del self._queues[delay_ms]
