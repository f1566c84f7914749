"""Offsets by group, topic and partition.

Invariant: no level is ever empty, so a group that is in a table has an offset there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from tidelog.coordinator.group.offsets.committed_offset import CommittedOffset

ByPartition = dict[int, CommittedOffset]
ByTopic = dict[str, ByPartition]
_FREED_AT_ONCE = 1000
_NOTHING: Mapping[str, ByPartition] = {}


class OffsetTable:
    """The offsets of many groups."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[str, ByTopic] = {}

    def of_group(self, group_id: str) -> Mapping[str, ByPartition]:
        """A group's offsets by topic and partition; empty if it has none."""
        return self.groups.get(group_id, _NOTHING)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """One offset, or None."""
        by_partition = self.of_group(group_id).get(topic)
        return None if by_partition is None else by_partition.get(partition)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Keep an offset, in the place of an earlier one."""
        topics = self.groups.get(group_id)
        if topics is None:
            topics = self.groups[group_id] = {}
        by_partition = topics.get(topic)
        if by_partition is None:
            # Thousands of groups read the same topics: one copy of a name serves all of them.
            by_partition = topics[sys.intern(topic)] = {}
        by_partition[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget an offset, if it is there."""
        topics = self.groups.get(group_id)
        by_partition = topics.get(topic) if topics is not None else None
        if topics is None or by_partition is None:
            return
        by_partition.pop(partition, None)
        if not by_partition:
            del topics[topic]
            if not topics:
                del self.groups[group_id]

    def let_go(self) -> Iterator[None]:
        """Forget everything, in steps: millions of offsets take long to be freed."""
        while self.groups:
            topics = self.groups.popitem()[1]
            while topics:
                by_partition = topics.popitem()[1]
                while len(by_partition) > _FREED_AT_ONCE:
                    for _ in range(_FREED_AT_ONCE):
                        by_partition.popitem()
                    yield
                yield

    def __iter__(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Everything: group, topic, partition, offset."""
        for group_id, topics in self.groups.items():
            for topic, by_partition in topics.items():
                for partition, committed in by_partition.items():
                    yield group_id, topic, partition, committed
