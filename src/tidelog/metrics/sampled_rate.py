"""A rate over the last windows, as Kafka measures it for quotas.

Values are summed in windows (``quota.window.num`` of ``quota.window.size.seconds``); a window begins with the
first value after the one before it was over, so that there are none while nothing happens. The rate is the
sum of all windows, of which none is older than that number of windows, by the time since the oldest began,
which counts as one window less than that number at least: a client may use what a quota gives it in ten
seconds at once. Pure; ``now_ms`` never goes back.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from math import inf
from typing import Final

# Windows begin and end by differences of times, which are rounded: so much before they do it is looked at.
_ROUNDED_MS: Final = 0.001


class _Window:
    __slots__ = ("begun_ms", "last_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.begun_ms = now_ms
        self.last_ms = now_ms
        self.total = 0.0


_NONE: Final = _Window(-inf)
"""In place of the last window while there is none; nothing is ever added to it."""


class SampledRate:
    """What was recorded of late, per second."""

    __slots__ = ("_before", "_count", "_last", "_until_ms", "_window_ms", "_windows")

    def __init__(self, count: int = 11, window_ms: float = 1000.0) -> None:
        self._count = count
        self._window_ms = window_ms
        # One more than counts: the oldest may have begun before the time that is looked at, and end in it.
        self._windows: deque[_Window] = deque(maxlen=count + 1)
        self._last = _NONE
        # The sum of all windows but the last; and until when no window begins, and none is too old.
        self._before = 0.0
        self._until_ms = -inf

    def record(self, value: float, now_ms: float) -> None:
        """Add ``value``; a negative one takes back what was recorded before."""
        if now_ms >= self._until_ms:
            self._expire(now_ms)
            if now_ms - self._last.begun_ms >= self._window_ms:
                self._windows.append(_Window(now_ms))
                self._look_ahead()
        window = self._last
        window.last_ms = now_ms
        window.total += value

    def record_within(self, value: float, most: float, now_ms: float) -> bool:
        """Add ``value`` if all windows together have no more than ``most`` then; whether they have."""
        if now_ms >= self._until_ms:
            self._expire(now_ms)
            if self._before + self._last.total + value > most:
                return False
            self.record(value, now_ms)
            return True
        window = self._last
        total = window.total + value
        if self._before + total > most:
            return False
        window.last_ms = now_ms
        window.total = total
        return True

    @property
    def total(self) -> float:
        """What all windows have together, those that are too old by now included."""
        return self._before + self._last.total

    def measure(self, now_ms: float) -> float:
        """The rate per second."""
        span_ms = self.span_ms(now_ms)
        return (self._before + self._last.total) * 1000.0 / span_ms

    def span_ms(self, now_ms: float) -> float:
        """The time over which the rate is taken."""
        self._expire(now_ms)
        windows = self._windows
        elapsed_ms = now_ms - windows[0].begun_ms if windows else 0.0
        missing = self._count - 1 - int(elapsed_ms / self._window_ms)
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return max(elapsed_ms, 1.0)

    def _expire(self, now_ms: float) -> None:
        """Forget the windows that are too old."""
        windows = self._windows
        expired_ms = now_ms - self._count * self._window_ms
        if windows and windows[0].last_ms <= expired_ms:
            while windows and windows[0].last_ms <= expired_ms:
                windows.popleft()
            self._look_ahead()

    def _look_ahead(self) -> None:
        """There are other windows than before: work out what stays as it is until the next time."""
        windows = self._windows
        self._last = windows[-1] if windows else _NONE
        self._before = sum(window.total for window in islice(windows, max(len(windows) - 1, 0)))
        until_ms = self._last.begun_ms + self._window_ms
        if len(windows) > 1:
            until_ms = min(until_ms, windows[0].last_ms + self._count * self._window_ms)
        self._until_ms = until_ms - _ROUNDED_MS


def throttle_time_ms(rate: float, limit: float, span_ms: float) -> int:
    """How long to pause until a rate over ``span_ms`` is down to ``limit``, if nothing more is recorded."""
    if rate <= limit:
        return 0
    if limit <= 0:
        return MAX_PAUSE_MS
    return int(min((rate - limit) / limit * span_ms + 0.5, MAX_PAUSE_MS))


MAX_PAUSE_MS = 2**31 - 1
"""The longest pause that an answer can ask for."""
