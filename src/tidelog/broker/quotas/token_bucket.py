"""Tokens that come back at a steady rate: how changes of the cluster are limited (KIP-599).

A bucket holds what a quota gives in all its windows, and a change takes one token for each partition that it
makes or removes, also where that leaves less than none. Who has less than none waits until the tokens are
back. Pure; ``now_ms`` never goes back.
"""

from __future__ import annotations


class TokenBucket:
    """The tokens of one client."""

    __slots__ = ("_last_ms", "_tokens", "_windows_s")

    def __init__(self, windows: int = 11, window_ms: float = 1000.0) -> None:
        self._windows_s = windows * window_ms / 1000.0
        self._tokens = float("inf")
        self._last_ms = 0.0

    def tokens(self, rate: float, now_ms: float) -> float:
        """How many there are, of those that come back at ``rate`` a second."""
        gained = rate * max(now_ms - self._last_ms, 0.0) / 1000.0
        self._tokens = min(rate * self._windows_s, self._tokens + gained)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: float) -> None:
        """Take tokens, whether or not there are as many."""
        self._tokens = self.tokens(rate, now_ms) - count

    def pause_ms(self, rate: float, now_ms: float) -> int:
        """How long it takes until there are no less than none; where none come back, all windows."""
        missing = -self.tokens(rate, now_ms)
        if missing <= 0:
            return 0
        return int((missing / rate if rate > 0 else self._windows_s) * 1000.0 + 0.5)
