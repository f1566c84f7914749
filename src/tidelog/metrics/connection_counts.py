"""What has become of the connections of one listener, since the broker started."""

from __future__ import annotations

_WINDOW_S = 30.0


class RecentLatency:
    """Average and maximum of the last 30 to 60 seconds: of the current window and the one before it."""

    __slots__ = ("_began_s", "_windows")

    def __init__(self) -> None:
        self._began_s = 0.0
        self._windows: tuple[tuple[int, float, float], tuple[int, float, float]] = (_EMPTY, _EMPTY)

    def add(self, latency_ms: float, now_s: float) -> None:
        """One more has taken so long."""
        self._turn(now_s)
        previous, (count, total_ms, max_ms) = self._windows
        self._windows = previous, (count + 1, total_ms + latency_ms, max(max_ms, latency_ms))

    def read(self, now_s: float) -> tuple[float, float]:
        """Average and maximum in milliseconds; 0 where there was none."""
        self._turn(now_s)
        first, second = self._windows
        count = first[0] + second[0]
        return (first[1] + second[1]) / count if count else 0.0, max(first[2], second[2])

    def _turn(self, now_s: float) -> None:
        passed_s = now_s - self._began_s
        if passed_s >= _WINDOW_S:
            self._windows = (self._windows[1] if passed_s < 2 * _WINDOW_S else _EMPTY), _EMPTY
            self._began_s = now_s


_EMPTY = (0, 0.0, 0.0)


class ConnectionCounts:
    """Plain numbers that the network counts up."""

    __slots__ = (
        "closed",
        "created",
        "expired",
        "failed",
        "failed_again",
        "past_received_bytes",
        "past_requests",
        "past_sent_bytes",
        "reauthentication",
        "succeeded",
        "succeeded_again",
    )

    def __init__(self) -> None:
        self.created = 0
        self.closed = 0
        self.succeeded = 0
        """Logins, or handshakes where nobody logs in."""
        self.failed = 0
        self.succeeded_again = 0
        """Logins of those who had logged in before on the same connection."""
        self.failed_again = 0
        self.expired = 0
        """Connections that were closed because their login had expired."""
        self.reauthentication = RecentLatency()
        """How long logins on connections that had logged in before took."""
        self.past_requests = 0
        """Requests of connections that are closed; those of open ones are counted there."""
        self.past_received_bytes = 0
        self.past_sent_bytes = 0
