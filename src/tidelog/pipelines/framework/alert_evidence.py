"""What the two detecting pipelines share when they look at a window: its events counted once, times, ids.

Plain Python and Arrow without Spark. Called by the pipelines' ``scoring`` and ``detector`` in Spark's Python
workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_US_PER_S = 1_000_000


class Window(NamedTuple):
    """The time from ``start_us`` (included) to ``end_us`` (not included), in microseconds since 1970."""

    start_us: int
    end_us: int


class SlidingWindows(NamedTuple):
    """Windows of one length, that begin ``slide_us`` after one another, as Spark's windows do."""

    length_us: int
    slide_us: int

    def of(self, time_us: int) -> Iterator[Window]:
        """The windows that a moment lies in, the last one first."""
        start_us = time_us - time_us % self.slide_us
        while start_us + self.length_us > time_us:
            yield Window(start_us, start_us + self.length_us)
            start_us -= self.slide_us

    def over_us(self, times_us: pa.Array) -> pa.Array:
        """When the last window of each moment is over; moments are after 1970."""
        starts_us = pc.multiply(pc.divide(times_us, self.slide_us), self.slide_us)
        return pc.add(starts_us, self.length_us)


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


def window_alerts(
    delivered: Sequence[DeliveredT],
    fresh: Iterable[Window],
    least: int,
    score: Callable[[Window, Sequence[DeliveredT]], msgspec.Struct | None],
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the alerts on one subject, for windows that have got new events.

    ``score`` is asked about windows with ``least`` deliveries or more; an alert's first field is its id.
    """
    for window in fresh:
        within = [event for event in delivered if window.start_us <= event.time_us < window.end_us]
        alert = score(window, within) if len(within) >= least else None
        if alert is not None:
            yield str(msgspec.structs.astuple(alert)[0]).encode(), msgspec.json.encode(alert)


def microseconds(duration: timedelta) -> int:
    """A duration in microseconds."""
    return duration // timedelta(microseconds=1)


def time_text(time_us: int) -> str:
    """A time as events have it: UTC, ISO 8601, milliseconds."""
    second, rest_us = divmod(time_us, _US_PER_S)
    return f"{_moment(second):%Y-%m-%dT%H:%M:%S}.{rest_us // 1000:03d}Z"


def alert_id(*names: str, window: Window | None = None) -> str:
    """The same for the same names and window, another one for others; 32 hexadecimal digits."""
    parts = names if window is None else (*names, _sql_time(window.start_us))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _sql_time(time_us: int) -> str:
    """A time as SQL writes it, without zeros at its end: ids of alerts are made of it."""
    second, rest_us = divmod(time_us, _US_PER_S)
    fraction = f".{rest_us:06d}".rstrip("0") if rest_us else ""
    return f"{_moment(second):%Y-%m-%d %H:%M:%S}{fraction}"


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
