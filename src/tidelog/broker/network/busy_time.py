"""How long the listener that is kept apart was busy: while at least one of its requests was being handled.

Stands before the observer of that listener's requests, where there is one; other listeners pay nothing. Owned
by ``network``, read by the broker's metrics.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.network.answer_times import RequestObserver


class BusyTime:
    """Adds up the time of requests and passes their times on; requests that overlap count once."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self.observer: RequestObserver | None = None
        self._until_s = 0.0

    def answered(
        self,
        connection: Any,
        frames: list[memoryview],
        done: int,
        later: list[int] | None,
        arrived_s: float,
        began_s: float,
        handled_s: float,
    ) -> None:
        """The first ``done`` of ``frames`` were handled."""
        self._add(began_s, handled_s)
        if self.observer is not None:
            self.observer.answered(connection, frames, done, later, arrived_s, began_s, handled_s)

    def waited(
        self,
        connection: Any,
        key: int,
        arrived_s: float,
        began_s: float,
        taken_s: float,
        settled_s: float,
        ready_s: float,
    ) -> None:
        """A request is answered that was handled for longer than one turn."""
        self._add(began_s, settled_s)
        if self.observer is not None:
            self.observer.waited(connection, key, arrived_s, began_s, taken_s, settled_s, ready_s)

    def throttled(self, connection: Any, key: int, throttle_ms: float) -> None:
        """A quota has the sender of a request wait for so long."""
        if self.observer is not None:
            self.observer.throttled(connection, key, throttle_ms)

    def _add(self, began_s: float, ended_s: float) -> None:
        self.total_s += max(ended_s - max(began_s, self._until_s), 0.0)
        self._until_s = max(self._until_s, ended_s)
