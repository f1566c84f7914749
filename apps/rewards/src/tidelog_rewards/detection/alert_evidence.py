"""What the two detecting pipelines share when they look at events: each counted once, times, ids.

Plain Python without Spark. Called by the pipelines' ``scoring`` and ``detector`` in Spark's Python workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

_US_PER_S = 1_000_000
_US_PER_MINUTE = 60 * _US_PER_S
_REGULAR_LEAST_S = 2
_NAME_CHARS = 200
_HASH_CHARS = 16


class Window(NamedTuple):
    """The time from ``start_us`` (included) to ``end_us`` (not included), in microseconds since 1970."""

    start_us: int
    end_us: int

    def with_context(self, memory_us: int) -> Window:
        """The time whose events decide what is told of the incidents that have evidence of this one.

        An incident keeps the points of a month before its last one, and each of them is judged by the month
        before it: two memories in all. Behind the end is what an incident may have got since.
        """
        return Window(self.start_us - 2 * memory_us, self.end_us + memory_us)


class Delivered(Protocol):
    """An event as it was delivered: sorts by its time, its id, and where its record is."""

    @property
    def time_us(self) -> int:
        """When it happened."""

    @property
    def event_id(self) -> str:
        """The same for all deliveries of one event."""

    def __lt__(self, other: Any, /) -> bool: ...


DeliveredT = TypeVar("DeliveredT", bound=Delivered)


def distinct_events(delivered: Iterable[DeliveredT]) -> list[DeliveredT]:
    """In the order of time, each event once.

    Deliveries of one event have the same time and id, so they are neighbours after sorting, the first
    delivery first.
    """
    distinct: list[DeliveredT] = []
    before = None
    for event in sorted(delivered):
        if event.event_id != before:
            distinct.append(event)
        before = event.event_id
    return distinct


def time_text(time_us: int) -> str:
    """A time as events have it: UTC, ISO 8601, milliseconds."""
    minute, rest_us = divmod(time_us, _US_PER_MINUTE)
    second, rest_us = divmod(rest_us, _US_PER_S)
    return f"{_minute_text(minute)}:{second:02d}.{rest_us // 1000:03d}Z"


def cut_short(text: str, most: int = _NAME_CHARS) -> str:
    """A text as alerts show it; of a longer one the beginning and a hash, by which it differs from others.

    The fields of events may be so long that an alert of some of them would be more than a broker takes.
    """
    if len(text) <= most:
        return text
    return f"{text[:most]}…{hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARS]}"


def alert_id(*names: str) -> str:
    """The same for the same names, another one for others; 32 hexadecimal digits."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:32]


def regular_pause_s(times_us: Sequence[int]) -> float | None:
    """How far moments are apart that follow each other like a clock's ticks; None where they do not.

    Their pauses have a standard deviation below 15 % of their mean, compared in whole numbers.
    """
    pauses_us = [after - before for before, after in pairwise(times_us)]
    many, total_us = len(pauses_us), times_us[-1] - times_us[0]
    if total_us < _REGULAR_LEAST_S * _US_PER_S * many:
        return None
    # many² times the variance; 9/400 is the square of 15 %.
    spread = many * sum(pause_us * pause_us for pause_us in pauses_us) - total_us * total_us
    return total_us / (many * _US_PER_S) if 400 * spread < 9 * total_us * total_us else None


@lru_cache(maxsize=4096)
def _minute_text(minute: int) -> str:
    return f"{datetime.fromtimestamp(60 * minute, UTC):%Y-%m-%dT%H:%M}"
