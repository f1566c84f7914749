"""A rate over the last windows, as Kafka measures it for quotas.

Values are summed in windows (``quota.window.num`` of ``quota.window.size.seconds``); a window begins with the
first value after the one before it was over, so that there are none while nothing happens. The rate is the
sum of all windows, of which none is older than that number of windows, by the time since the oldest began,
which counts as one window less than that number at least: a client may use what a quota gives it in ten
seconds at once. Pure; ``now_ms`` never goes back.
"""

from __future__ import annotations

from collections import deque


class _Window:
    __slots__ = ("begun_ms", "last_ms", "total")

    def __init__(self, now_ms: float) -> None:
        self.begun_ms = now_ms
        self.last_ms = now_ms
        self.total = 0.0


class SampledRate:
    """What was recorded of late, per second."""

    __slots__ = ("_count", "_window_ms", "_windows")

    def __init__(self, count: int = 11, window_ms: float = 1000.0) -> None:
        self._count = count
        self._window_ms = window_ms
        # One more than counts: the oldest may have begun before the time that is looked at, and end in it.
        self._windows: deque[_Window] = deque(maxlen=count + 1)

    def record(self, value: float, now_ms: float) -> None:
        """Add ``value``; a negative one takes back what was recorded before."""
        windows = self._windows
        if not windows or now_ms - windows[-1].begun_ms >= self._window_ms:
            windows.append(_Window(now_ms))
        window = windows[-1]
        window.total += value
        window.last_ms = now_ms

    def measure(self, now_ms: float) -> float:
        """The rate per second."""
        span_ms = self.span_ms(now_ms)
        return sum(window.total for window in self._windows) * 1000.0 / span_ms

    def span_ms(self, now_ms: float) -> float:
        """The time over which the rate is taken."""
        windows = self._windows
        expired_ms = now_ms - self._count * self._window_ms
        while windows and windows[0].last_ms <= expired_ms:
            windows.popleft()
        elapsed_ms = now_ms - windows[0].begun_ms if windows else 0.0
        missing = self._count - 1 - int(elapsed_ms / self._window_ms)
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return max(elapsed_ms, 1.0)


def throttle_time_ms(rate: float, limit: float, span_ms: float) -> int:
    """How long to pause until a rate over ``span_ms`` is down to ``limit``, if nothing more is recorded."""
    if rate <= limit:
        return 0
    if limit <= 0:
        return MAX_PAUSE_MS
    return int(min((rate - limit) / limit * span_ms + 0.5, MAX_PAUSE_MS))


MAX_PAUSE_MS = 2**31 - 1
"""The longest pause that an answer can ask for."""
