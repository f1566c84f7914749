"""Time, handed in and never reached for.

``time_ms`` is the wall clock that goes into records and retention; ``monotonic_ms`` measures waits.
Timers belong to the asyncio loop. ``tests/rigs/clock`` is the one that tests move by hand.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch, as records carry them."""

    def monotonic_ms(self) -> float:
        """Milliseconds that never jump or go back."""


class SystemClock:
    """The machine's own clocks."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
