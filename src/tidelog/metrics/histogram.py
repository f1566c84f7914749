"""Reading what ``request_times`` has counted, and histograms of what happens seldom.

``Recent`` gives quantiles of the last minutes, as Kafka's histograms do: it keeps what was counted up to then
and looks at what has come since.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.metrics.request_times import (
    BUCKETS,
    COUNT_AT,
    MAX_AT,
    ROW,
    SUM_AT,
    bounds_of,
    bucket_of,
)

QUANTILES = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
# The ends of buckets of ``request_times`` that are shown, in microseconds.
_SHOWN_US = tuple(1 << power for power in range(7, 27))


class Histogram:
    """The same buckets for something that is counted here and there."""

    __slots__ = ("row",)

    def __init__(self) -> None:
        self.row = [0] * ROW

    def add(self, value: float) -> None:
        """Count one value, a whole number of whatever unit."""
        whole = max(int(value), 0)
        row = self.row
        row[bucket_of(whole)] += 1
        row[MAX_AT] = max(row[MAX_AT], whole)
        row[SUM_AT] += whole
        row[COUNT_AT] += 1

    @property
    def count(self) -> int:
        """How many values were counted."""
        return self.row[COUNT_AT]


def quantiles(row: Sequence[int], *, count: int | None = None) -> list[tuple[str, float]]:
    """Kafka's quantiles of a row, by their labels.

    ``count`` is how many values there were in all, where zeros were not counted.
    """
    counted = sum(row[:BUCKETS])
    in_all = counted if count is None else max(count, counted)
    zeros = in_all - counted
    found: list[tuple[str, float]] = []
    bucket, below = -1, zeros
    for label, share in QUANTILES:
        wanted = share * in_all
        if not in_all or wanted <= zeros:
            found.append((label, 0.0))
            continue
        while below < wanted and bucket < BUCKETS - 1:
            bucket += 1
            below += row[bucket]
        first, end = bounds_of(bucket)
        found.append((label, (first + end - 1) / 2))
    return found


def cumulative_us(row: Sequence[int]) -> list[tuple[str, int]]:
    """The buckets of times, each with all before it, by their ends in seconds."""
    shown: list[tuple[str, int]] = []
    below = at = 0
    for bound in _SHOWN_US:
        last = bucket_of(bound)
        while at < last:
            below += row[at]
            at += 1
        shown.append((repr(bound / 1_000_000), below))
    shown.append(("+Inf", row[COUNT_AT]))
    return shown


class Recent:
    """What has come to rows since two turns ago, or since the first look."""

    def __init__(self) -> None:
        self._before: dict[object, list[int]] = {}
        self._next: dict[object, list[int]] = {}

    def of(self, key: object, row: Sequence[int]) -> list[int]:
        """What ``row``, known by ``key``, has got lately."""
        before = self._before.get(key)
        return list(row) if before is None else [new - old for new, old in zip(row, before, strict=True)]

    def turn(self, rows: dict[object, Sequence[int]]) -> None:
        """Some minutes are over: from now on count from the last time on that this was called."""
        self._before = self._next
        self._next = {key: list(row) for key, row in rows.items()}
