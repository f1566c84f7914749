"""Rates of topics and groups between two snapshots. Pure.

A topic that was made anew between them, or a partition that was cut, counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.console.watching.snapshot import Snapshot
from tidelog.ids import TopicPartition


@dataclass(frozen=True)
class Rates:
    """Records and bytes a second, by topic; records that groups have committed a second."""

    records: Mapping[str, float] = field(default_factory=dict)
    size_bytes: Mapping[str, float] = field(default_factory=dict)
    committed: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By group and topic."""

    @property
    def total_records(self) -> float:
        return sum(self.records.values())

    @property
    def total_bytes(self) -> float:
        return sum(self.size_bytes.values())


def rates_between(before: Snapshot | None, now: Snapshot) -> Rates:
    """What happened from one snapshot to a later one; nothing where there is no earlier one."""
    if before is None:
        return Rates()
    seconds = max(now.at_s - before.at_s, 0.001)
    same = {
        name
        for name, topic in now.topics.items()
        if name in before.topics and before.topics[name].topic_id == topic.topic_id
    }
    committed: dict[tuple[str, str], float] = {}
    for group, offsets in now.committed.items():
        for topic, rate in _grown(before.committed.get(group, {}), offsets, same, seconds).items():
            committed[group, topic] = rate
    return Rates(
        _grown(before.ends, now.ends, same, seconds),
        _grown(before.sizes, now.sizes, same, seconds),
        committed,
    )


def _grown(
    before: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int], topics: set[str], seconds: float
) -> dict[str, float]:
    found: dict[str, float] = {}
    for partition, value in now.items():
        growth = value - before.get(partition, value)
        if growth > 0 and partition.topic in topics:
            found[partition.topic] = found.get(partition.topic, 0.0) + growth / seconds
    return found
