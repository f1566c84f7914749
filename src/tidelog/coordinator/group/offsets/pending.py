"""Offsets that are part of open transactions: committed, dropped or deleted before anybody may read them.

Kept twice: by producer, because a marker ends all that one producer has begun, and by partition, because
readers, expiry and deletion ask whether anybody has something open there. Invariant: both say the same.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.coordinator.group.offsets.committed_offset import CommittedOffset
from tidelog.coordinator.group.offsets.offset_table import OffsetTable


class PendingOffsets:
    """What open transactions are going to commit."""

    def __init__(self) -> None:
        self._by_producer: dict[int, OffsetTable] = {}
        self._producers: dict[str, dict[tuple[str, int], set[int]]] = {}
        """By group, topic and partition; no level is ever empty."""

    def __bool__(self) -> bool:
        return bool(self._producers)

    def add(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        """A producer commits an offset in its transaction, perhaps not for the first time."""
        self._by_producer.setdefault(producer_id, OffsetTable()).put(group_id, topic, partition, committed)
        self._producers.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)

    def end(self, producer_id: int) -> OffsetTable:
        """The producer's transaction is over: what it had open, and is not any more."""
        table = self._by_producer.pop(producer_id, None)
        if table is None:
            return OffsetTable()
        for group_id, topic, partition, _ in table:
            partitions = self._producers[group_id]
            producers = partitions[topic, partition]
            producers.discard(producer_id)
            if not producers:
                self._close(group_id, topic, partition)
        return table

    def forget(self, group_id: str, topic: str, partition: int) -> None:
        """The offset has been deleted: no transaction commits it any more."""
        if not self.is_open(group_id, topic, partition):
            return
        for producer_id in self._producers[group_id][topic, partition]:
            table = self._by_producer[producer_id]
            table.remove(group_id, topic, partition)
            if not table.groups:
                del self._by_producer[producer_id]
        self._close(group_id, topic, partition)

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction is going to commit this offset."""
        partitions = self._producers.get(group_id)
        return partitions is not None and (topic, partition) in partitions

    def has_group(self, group_id: str) -> bool:
        """Whether a transaction is going to commit an offset of the group."""
        return group_id in self._producers

    def partitions_of(self, group_id: str) -> list[tuple[str, int]]:
        """The topics and partitions of a group that have something open."""
        return list(self._producers.get(group_id, ()))

    @property
    def tables(self) -> Collection[OffsetTable]:
        """What is open, one table for each producer."""
        return self._by_producer.values()

    def _close(self, group_id: str, topic: str, partition: int) -> None:
        partitions = self._producers[group_id]
        del partitions[topic, partition]
        if not partitions:
            del self._producers[group_id]
