"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """Satisfies :class:`tidelog.clock.Clock`; both clocks advance together, unless the wall clock is set."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def time_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, delta_ms: int) -> None:
        """Let ``delta_ms`` milliseconds pass."""
        if delta_ms < 0:
            raise ValueError(f"time does not run backwards (asked for {delta_ms} ms)")
        self._now_ms += delta_ms
        self._monotonic_ms += delta_ms

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, forward or back, as an operator or NTP does; no time passes."""
        self._now_ms = now_ms
