"""Timers by name, without an event loop: who drives them calls ``run_due``.

Every name has one timer at most; scheduling it again moves it. Moving a timer to a later time, which every
heartbeat does, costs a dictionary entry: the heap still has the old deadline, and finds out when that comes.

The broker drives them with its loop (``on_earlier`` tells it when the next deadline has come nearer); tests
move a ``ManualClock`` and call ``run_due``.
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable, Hashable

from tidelog.clock import Clock

logger = logging.getLogger(__name__)


class Timers:
    """Deadlines by key, on the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.on_earlier: Callable[[], None] = lambda: None
        """Told when ``next_delay_ms`` has become less than it was."""
        self._armed: dict[Hashable, tuple[float, int, Callable[[], object]]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._waiting: dict[Hashable, float] = {}
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._armed)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._armed

    def schedule(self, key: Hashable, delay_ms: float, action: Callable[[], object]) -> None:
        """Run ``action`` in ``delay_ms``, instead of whatever ``key`` was to run."""
        deadline = self.clock.monotonic_ms() + max(delay_ms, 0)
        number = next(self._count)
        self._armed[key] = deadline, number, action
        waiting = self._waiting.get(key)
        if waiting is None or deadline < waiting:
            self._push(deadline, number, key)

    def cancel(self, key: Hashable) -> None:
        """Forget the timer of ``key``, if there is one."""
        self._armed.pop(key, None)

    @property
    def next_delay_ms(self) -> float | None:
        """How long until the heap has to be looked at again; None if nothing is waited for."""
        if not self._heap:
            return None
        return max(self._heap[0][0] - self.clock.monotonic_ms(), 0.0)

    def run_due(self, for_ms: float | None = None) -> int:
        """Run every action whose time has come, in order of deadlines; gives their number.

        After ``for_ms`` the rest waits for the next call: thousands may be due at the same time.
        """
        now = self.clock.monotonic_ms()
        ran = 0
        while self._heap and self._heap[0][0] <= now:
            if for_ms is not None and self.clock.monotonic_ms() - now > for_ms:
                break
            deadline, _, key = heapq.heappop(self._heap)
            if self._waiting.get(key) == deadline:
                del self._waiting[key]
            armed = self._armed.get(key)
            if armed is None:
                continue
            due, number, action = armed
            if due > now:
                if key not in self._waiting:
                    self._push(due, number, key, quietly=True)
                continue
            del self._armed[key]
            ran += 1
            try:
                action()
            except Exception:
                logger.exception("Unexpected error in the timer %r", key)
        return ran

    def _push(self, deadline: float, number: int, key: Hashable, *, quietly: bool = False) -> None:
        earlier = not self._heap or deadline < self._heap[0][0]
        heapq.heappush(self._heap, (deadline, number, key))
        self._waiting[key] = deadline
        if earlier and not quietly:
            self.on_earlier()
