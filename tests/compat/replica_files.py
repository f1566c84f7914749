"""Two replicas' files, compared: what must be the same in all of them, whoever wrote them.

Record batches are copied from leader to follower as they are, so the logs are the same bytes; where a log
is cut into segments is each broker's own business, as it depends on how much it fetched at once. A replica
may begin later than another (it was made after the beginning had been trimmed). The history of leader epochs
and the topic's id must be the same, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

_OFFSET_AND_SIZE = struct.Struct(">qi")

Place = tuple[str, int]


def differences(one: Path, other: Path, places: Iterable[Place]) -> list[str]:
    """What differs between the replicas of partitions in two log directories; nothing, if all is well."""
    found: list[str] = []
    for topic, index in places:
        name = f"{topic}-{index}"
        found += [f"{name}: {each}" for each in _partition_differences(one / name, other / name)]
    return found


def _partition_differences(one: Path, other: Path) -> Iterable[str]:
    if (one / "partition.metadata").read_bytes() != (other / "partition.metadata").read_bytes():
        yield "partition.metadata"
    first, second = batches(one), batches(other)
    begin = max(min(first, default=0), min(second, default=0))
    for offset in sorted(first.keys() | second.keys()):
        if offset >= begin and first.get(offset) != second.get(offset):
            sizes = [len(some.get(offset, b"")) for some in (first, second)]
            yield f"the batch at {offset}, of {sizes[0]} and {sizes[1]} bytes"
            return
    histories = [epochs(each, max(first, default=-1)) for each in (one, other)]
    begin = max([begin, *(offset for history in histories for _, offset in history[:1])])
    seen = [_from(begin, history) for history in histories]
    if seen[0] != seen[1]:
        yield f"leader epochs {seen[0]} and {seen[1]}"


def batches(directory: Path) -> dict[int, bytes]:
    """The record batches of a partition, by base offset."""
    found: dict[int, bytes] = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position + _OFFSET_AND_SIZE.size <= len(data):
            offset, size = _OFFSET_AND_SIZE.unpack_from(data, position)
            end = position + _OFFSET_AND_SIZE.size + size
            if size <= 0 or end > len(data):
                break  # a batch that is being written
            found[offset] = data[position:end]
            position = end
    return found


def epochs(directory: Path, last: int) -> list[tuple[int, int]]:
    """The leader epochs of a partition with their first offsets, of those with records: up to ``last``."""
    lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    entries = [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines)]
    return [(epoch, offset) for epoch, offset in entries if offset <= last]


def _from(begin: int, history: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A history as one that begins at ``begin`` would be told."""
    holding = [epoch for epoch, offset in history if offset <= begin]
    later = [(epoch, offset) for epoch, offset in history if offset > begin]
    return [*((epoch, begin) for epoch in holding[-1:]), *later]
