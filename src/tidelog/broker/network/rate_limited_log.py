"""One log line for each misbehaving peer, and no more than a few lines a second for a flood of them.

Every reason to close a connection on the broker's own account goes through here. Past the limit, lines of the
same kind are counted, and the next line of that kind that is let through says how many were left out.
"""

from __future__ import annotations

import logging

from tidelog.clock import Clock

_WINDOW_MS = 1000.0
_LINES_PER_WINDOW = 10


class RateLimitedLog:
    """Rate-limited warnings, by kind."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._kinds: dict[str, _Window] = {}

    def warn(self, kind: str, message: str, *args: object, level: int = logging.WARNING) -> None:
        """Log ``message % args`` unless too many lines of ``kind`` were logged within the last second."""
        now = self._clock.monotonic_ms()
        window = self._kinds.get(kind)
        if window is None:
            window = self._kinds[kind] = _Window(now)
        left_out = window.admit(now)
        if left_out is None:
            return
        if left_out:
            message += f" ({left_out} more lines of this kind were left out)"
        self._logger.log(level, message, *args)


class _Window:
    __slots__ = ("left_out", "lines", "start_ms")

    def __init__(self, now: float) -> None:
        self.start_ms = now
        self.lines = 0
        self.left_out = 0

    def admit(self, now: float) -> int | None:
        """How many lines were left out before this one; ``None`` leaves this one out too."""
        if now - self.start_ms >= _WINDOW_MS:
            self.start_ms = now
            self.lines = 0
        if self.lines >= _LINES_PER_WINDOW:
            self.left_out += 1
            return None
        self.lines += 1
        left_out, self.left_out = self.left_out, 0
        return left_out
