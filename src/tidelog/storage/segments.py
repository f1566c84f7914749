"""The segments of one log, in the order of their offsets.

Invariant: base offsets ascend and are unique; a loaded log has at least one segment, and the last is the
active one. Owned by ``log``; whoever iterates gets a list of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from tidelog.storage.segment import Segment


class Segments:
    """Segments, to be found by offset."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]

    def __iter__(self) -> Iterator[Segment]:
        return iter(list(self._segments))

    def __getitem__(self, slot: int) -> Segment:
        return self._segments[slot]

    def __len__(self) -> int:
        return len(self._segments)

    def __bool__(self) -> bool:
        return bool(self._segments)

    def __contains__(self, segment: object) -> bool:
        return isinstance(segment, Segment) and self.get(segment.base_offset) is segment

    def get(self, base_offset: int) -> Segment | None:
        """The segment that begins exactly there."""
        slot = bisect_left(self._bases, base_offset)
        found = slot < len(self._bases) and self._bases[slot] == base_offset
        return self._segments[slot] if found else None

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def active(self) -> Segment:
        """The one that takes appends."""
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def floor(self, offset: int) -> Segment | None:
        """The last segment that begins at ``offset`` or before it."""
        slot = bisect_right(self._bases, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def higher(self, base_offset: int) -> Segment | None:
        """The first segment that begins behind ``base_offset``."""
        slot = bisect_right(self._bases, base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def from_floor(self, offset: int) -> list[Segment]:
        """The segment that ``offset`` falls into and all behind it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments that may hold offsets in ``[start, end)``."""
        return [segment for segment in self.from_floor(start) if segment.base_offset < end]

    def add(self, segment: Segment) -> None:
        """Put a segment in its place, over one with the same base offset."""
        slot = bisect_left(self._bases, segment.base_offset)
        if slot < len(self._bases) and self._bases[slot] == segment.base_offset:
            self._segments[slot] = segment
        else:
            self._bases.insert(slot, segment.base_offset)
            self._segments.insert(slot, segment)

    def remove(self, base_offset: int) -> None:
        """Take a segment out; its files are the caller's business."""
        slot = bisect_left(self._bases, base_offset)
        if slot < len(self._bases) and self._bases[slot] == base_offset:
            del self._bases[slot], self._segments[slot]
