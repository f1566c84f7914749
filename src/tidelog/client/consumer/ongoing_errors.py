"""What keeps a consumer from reading, for as long as it does: so that nothing waits in silence.

Errors that pass by themselves are retried without a word. One that lasts for ten seconds is logged as a
warning, and again every minute; ``reason`` is what timeouts name as their cause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable

logger = logging.getLogger(__name__)

_PATIENCE_S = 10.0
_REPEAT_S = 60.0
# Longer than any request takes: who is not heard of for so long is not asked any more (its partitions moved).
_STALE_S = 90.0


class _Lasting:
    __slots__ = ("error", "noted_at", "since", "warned_at")

    def __init__(self, now: float) -> None:
        self.since = self.noted_at = now
        self.warned_at: float | None = None
        self.error = ""


class OngoingErrors:
    """The errors of one consumer that have not passed yet, by what they are about."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lasting: dict[Hashable, _Lasting] = {}

    def note(self, subject: Hashable, error: object) -> None:
        """``subject`` failed again."""
        now = self._clock()
        lasting = self._lasting.setdefault(subject, _Lasting(now))
        lasting.error = str(error)
        lasting.noted_at = now
        waited = now - lasting.since
        due = lasting.since + _PATIENCE_S if lasting.warned_at is None else lasting.warned_at + _REPEAT_S
        if now >= due:
            lasting.warned_at = now
            logger.warning("%s: no success for %.0f s, still trying: %s", subject, waited, error)

    def over(self, subject: Hashable) -> None:
        """``subject`` has worked."""
        if self._lasting:
            self._lasting.pop(subject, None)

    @property
    def longest(self) -> tuple[float, str] | None:
        """For how many seconds trouble has lasted, by its last sign, and what it is."""
        current = [each for each in self._lasting.values() if self._clock() - each.noted_at < _STALE_S]
        longest = max(current, key=lambda each: each.noted_at - each.since, default=None)
        return None if longest is None else (longest.noted_at - longest.since, longest.error)

    @property
    def reason(self) -> str | None:
        """The newest trouble in words, None if there is none."""
        newest = max(self._lasting.values(), key=lambda each: each.since, default=None)
        return None if newest is None else newest.error
