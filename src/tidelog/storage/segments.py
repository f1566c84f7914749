"""The segments of one log, in the order of their offsets.

Invariant: base offsets ascend and are unique; a loaded log has at least one segment, and the last is the
active one. Changes replace both lists at once, so a flush in a thread and whoever iterates see one state or
the next, never half of one. Owned by ``log``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from tidelog.storage.segment import Segment


class Segments:
    """Segments, to be found by offset."""

    __slots__ = ("_state",)

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._put({segment.base_offset: segment for segment in segments})

    def _put(self, by_base: dict[int, Segment]) -> None:
        bases = sorted(by_base)
        self._state = bases, [by_base[base] for base in bases]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._state[1])

    def __getitem__(self, slot: int) -> Segment:
        return self._state[1][slot]

    def __len__(self) -> int:
        return len(self._state[1])

    def __contains__(self, segment: object) -> bool:
        return isinstance(segment, Segment) and self.get(segment.base_offset) is segment

    def get(self, base_offset: int) -> Segment | None:
        """The segment that begins exactly there."""
        bases, segments = self._state
        slot = bisect_left(bases, base_offset)
        return segments[slot] if slot < len(bases) and bases[slot] == base_offset else None

    @property
    def first(self) -> Segment:
        return self._state[1][0]

    @property
    def active(self) -> Segment:
        """The one that takes appends."""
        return self._state[1][-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._state[0])

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._state[1])

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
        self._put({**self._by_base(), segment.base_offset: segment})

    def remove(self, base_offset: int) -> None:
        """Take a segment out; its files are the caller's business."""
        by_base = self._by_base()
        by_base.pop(base_offset, None)
        self._put(by_base)

    def _by_base(self) -> dict[int, Segment]:
        return dict(zip(*self._state, strict=True))
