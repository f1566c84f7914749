"""The segments of one log, in the order of their offsets.

Invariant: base offsets ascend and are unique; a loaded log has at least one segment, and the last is the
active one. Changes replace both lists at once, so a flush in a thread and whoever iterates see one state or
the next, never half of one. Owned by ``log_files``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.storage.segment.segment import Segment


class _State(NamedTuple):
    """Both lists, which change together."""

    base_offsets: list[int]
    segments: list[Segment]


class Segments:
    """Segments, to be found by offset."""

    __slots__ = ("_state",)

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._state = _State([], [])
        self.replace(segments, ())

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._state.segments)

    def __getitem__(self, slot: int) -> Segment:
        return self._state.segments[slot]

    def __len__(self) -> int:
        return len(self._state.segments)

    def __contains__(self, segment: object) -> bool:
        return isinstance(segment, Segment) and self.get(segment.base_offset) is segment

    def get(self, base_offset: int) -> Segment | None:
        """The segment that begins exactly there."""
        bases, segments = self._state
        slot = bisect_left(bases, base_offset)
        return segments[slot] if slot < len(bases) and bases[slot] == base_offset else None

    @property
    def first(self) -> Segment:
        return self._state.segments[0]

    @property
    def active(self) -> Segment:
        """The one that takes appends."""
        return self._state.segments[-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._state.base_offsets)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._state.segments)

    def floor(self, offset: int) -> Segment | None:
        """The last segment that begins at ``offset`` or before it."""
        bases, segments = self._state
        slot = bisect_right(bases, offset) - 1
        return segments[slot] if slot >= 0 else None

    def higher(self, base_offset: int) -> Segment | None:
        """The first segment that begins behind ``base_offset``."""
        bases, segments = self._state
        slot = bisect_right(bases, base_offset)
        return segments[slot] if slot < len(segments) else None

    def from_floor(self, offset: int) -> list[Segment]:
        """The segment that ``offset`` falls into and all behind it."""
        bases, segments = self._state
        return segments[max(bisect_right(bases, offset) - 1, 0) :]

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments that may hold offsets in ``[start, end)``."""
        return [segment for segment in self.from_floor(start) if segment.base_offset < end]

    def add(self, segment: Segment) -> None:
        """Put a segment in its place, over one with the same base offset."""
        self.replace((segment,), ())

    def remove(self, base_offset: int) -> None:
        """Take a segment out; its files are the caller's business."""
        found = self.get(base_offset)
        if found is not None:
            self.replace((), (found,))

    def replace(self, new: Iterable[Segment], old: Iterable[Segment]) -> None:
        """Put ``new`` in the place of ``old``, at once, however many they are."""
        gone = {id(segment) for segment in old}
        added = {segment.base_offset: segment for segment in new}
        kept = [
            segment
            for segment in self._state.segments
            if id(segment) not in gone and segment.base_offset not in added
        ]
        segments = sorted([*kept, *added.values()], key=_base_offset_of)
        self._state = _State([segment.base_offset for segment in segments], segments)


def _base_offset_of(segment: Segment) -> int:
    return segment.base_offset
