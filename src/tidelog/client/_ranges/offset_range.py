"""``OffsetRange``: some offsets of one partition of the log."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.ids import TopicPartition, Uuid


class OffsetRange(NamedTuple):
    """Offsets of one partition of the log, from ``start`` up to and without ``end``."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: Uuid | None = None
    """Of the topic that these are offsets of, where its brokers have ids."""

    @property
    def size(self) -> int:
        """How many offsets; there may be fewer records (compaction, transaction markers)."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def count_offsets(count: int) -> str:
    """How many, for a sentence."""
    return "1 offset" if count == 1 else f"{count} offsets"
