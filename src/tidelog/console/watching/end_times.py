"""When logs had which end: turns a lag in records into one in seconds, without reading a record.

The record at a committed offset was written when the log's end passed that offset; between two looks the
time is interpolated, and where it was before the first look a record tells (``learn``). Of each partition
that a group reads some looks are kept, close together for the last minutes and further apart the older they
are, so that memory stays bounded.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.ids import TopicPartition

_POINTS = 120
_LEARNED = 100


class LagTime(NamedTuple):
    """How long ago the next record was written; ``at_least``: that was before anybody looked."""

    seconds: float
    at_least: bool = False


class EndTimes:
    """Ends of logs over time."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, tuple[array[float], array[int]]] = {}
        self._learned: dict[TopicPartition, dict[int, float]] = {}
        """When records before the first look were written, by their offsets."""

    def note(self, at_s: float, ends: Mapping[TopicPartition, int], wanted: Iterable[TopicPartition]) -> None:
        """Remember the ends of ``wanted`` at a moment; others are forgotten."""
        kept: dict[TopicPartition, tuple[array[float], array[int]]] = {}
        for partition in wanted:
            end = ends.get(partition)
            if end is None:
                continue
            times, offsets = self._points.get(partition) or (array("d"), array("q"))
            if offsets and end < offsets[-1]:
                times, offsets = array("d"), array("q")  # made anew, or cut
                self._learned.pop(partition, None)
            if len(offsets) >= 2 and offsets[-1] == offsets[-2] == end:
                times[-1] = at_s  # nothing new: only how long that has been so
            else:
                times.append(at_s)
                offsets.append(end)
            kept[partition] = _thinned(times, offsets)
        self._points = kept
        self._learned = {each: known for each, known in self._learned.items() if each in kept}

    def learn(self, partition: TopicPartition, offset: int, at_s: float) -> None:
        """Take in that the record at ``offset`` was written at ``at_s``, before the first look."""
        known = self._learned.setdefault(partition, {})
        known[offset] = at_s
        while len(known) > _LEARNED:
            del known[next(iter(known))]

    def lag(self, partition: TopicPartition, committed: int, now_s: float) -> LagTime | None:
        """How long a group is behind; None where the partition is not known."""
        found = self._points.get(partition)
        if found is None:
            return None
        times, offsets = found
        if committed >= offsets[-1]:
            return LagTime(0.0)
        after = bisect_right(offsets, committed)
        if after == 0:
            written = self._learned.get(partition, {}).get(committed)
            if written is not None:
                return LagTime(max(now_s - written, 0.0))
            return LagTime(max(now_s - times[0], 0.0), at_least=True)
        share = (committed - offsets[after - 1]) / (offsets[after] - offsets[after - 1])
        written_s = times[after - 1] + share * (times[after] - times[after - 1])
        return LagTime(max(now_s - written_s, 0.0))


def _thinned(times: array[float], offsets: array[int]) -> tuple[array[float], array[int]]:
    if len(times) <= _POINTS:
        return times, offsets
    half = _POINTS // 2
    return times[:half:2] + times[half:], offsets[:half:2] + offsets[half:]
