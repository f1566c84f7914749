"""Which partitions, offsets and times a filter can match, so that nothing else is fetched.

pyarrow's expressions cannot be taken apart, but Arrow simplifies a filter under a guarantee, as it does for
the fragments of a dataset: under "offset < 100" the filter "offset >= 100" is false. So bounds are found by
bisection. Only rows that cannot match may be left out: a filter that Arrow cannot simplify prunes nothing,
and every filter is applied to the rows anyway. Used by ``scan_pass``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

_LAST_TIME_MS = 9_000_000_000_000_000
"""Later than any timestamp that has a meaning; in microseconds it still has 64 bits."""


def mentions(expression: Any, name: str) -> bool:
    """Whether an expression may use a column; a reference by position may be any."""
    text = str(expression)
    return name in text or "FieldPath" in text


class Pruner:
    """What one filter can match."""

    def __init__(self, condition: Any, schema: pa.Schema) -> None:
        self._condition = condition
        self._schema = schema
        self._format = ds.IpcFileFormat()
        self._files = pyarrow.fs.LocalFileSystem()
        self._by_partition = mentions(condition, "partition")
        self._by_offset = mentions(condition, "offset")
        self._by_time = mentions(condition, "timestamp")
        self._times: dict[int | None, int] = {}

    def partitions(self, numbers: Sequence[int]) -> list[int]:
        """Those of the partitions that may have a match."""
        if not self._by_partition:
            return list(numbers)
        kept = self._may_match([pc.field("partition") == number for number in numbers])
        return [number for number, may in zip(numbers, kept, strict=True) if may]

    def offsets(self, partition: int, start: int, end: int) -> tuple[int, int]:
        """The part of these offsets of a partition outside of which nothing matches."""
        if not self._by_offset or start >= end:
            return start, end
        offset = pc.field("offset")
        here = pc.field("partition") == partition

        def may(first: int, after: int) -> bool:
            return self._may_match([here & (offset >= first) & (offset < after)])[0]

        if not may(start, end):
            return start, start
        # The longest prefix without a match, then the longest suffix.
        first = _last_true(lambda at: not may(start, at), start, end)
        after = end - _last_true(lambda size: not may(end - size, end), 0, end - first)
        return first, after

    def earliest_ms(self, partition: int) -> int:
        """No record of a partition with an earlier timestamp matches; 0 where nothing is known."""
        if not self._by_time:
            return 0
        key = partition if self._by_partition else None
        if key not in self._times:
            time = pc.field("timestamp")
            here = pc.field("partition") == partition

            def nothing_before(at_ms: int) -> bool:
                return not self._may_match([here & (time < pa.scalar(at_ms, pa.timestamp("ms", "UTC")))])[0]

            self._times[key] = _last_true(nothing_before, 0, _LAST_TIME_MS)
        return self._times[key]

    def _may_match(self, guarantees: Sequence[Any]) -> list[bool]:
        fragments = [
            self._format.make_fragment(str(index), filesystem=self._files, partition_expression=guarantee)
            for index, guarantee in enumerate(guarantees)
        ]
        dataset = ds.FileSystemDataset(fragments, self._schema, self._format, self._files)
        kept = {fragment.path for fragment in dataset.get_fragments(self._condition)}
        return [str(index) in kept for index in range(len(guarantees))]


def _last_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number up to ``high`` for which ``holds`` is true; it is for ``low``, and changes once."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
