"""How much of one turn of the loop goes to those who always have more to send, or to be sent.

Most connections ask for one thing and wait for the answer. Some send requests without end, or one of many
megabytes, or want answers of as many; a hundred of them could each have their moment in one turn of the loop,
and everybody else would wait for the sum of these. So all of them together, and those who have just come, get
a bounded time: when it is spent, they are not read from, or written to, before the next turn.

Used by ``connection``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

_SHARED_S = 0.0005
# Going on costs little, yet not nothing: in a crowd of thousands not all of them are to do it in one turn.
_GOING_ON = 64


class LoopTurn:
    """The time that is left, in this turn, for connections with much to send or to be sent."""

    __slots__ = ("_loop", "_put_off", "_scheduled", "_spent_s", "is_spent")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_spent = False
        """Whether they have had their share."""
        self._loop = loop
        self._spent_s = 0.0
        self._scheduled = False
        self._put_off: deque[Callable[[], None]] = deque()

    def spend_since(self, began_s: float) -> None:
        """One of them was busy from ``began_s`` (``monotonic``) until now."""
        self._spent_s += monotonic() - began_s
        self.is_spent = self._spent_s >= _SHARED_S
        self._schedule()

    def put_off(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` in a later turn, after those that came before it; there is time left then."""
        self._put_off.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            # What is scheduled now runs first in the next turn.
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        self._spent_s = 0.0
        self.is_spent = False
        try:
            for _ in range(min(len(self._put_off), _GOING_ON)):
                if self.is_spent:
                    # Who has not had a turn is the first in the next one, before those who have.
                    break
                self._put_off.popleft()()
        finally:
            if self._put_off:
                self._schedule()
