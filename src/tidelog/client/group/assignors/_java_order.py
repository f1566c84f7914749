"""The order in which Java's ``HashMap`` and ``HashSet`` go through what they hold.

Kafka's sticky assignors visit members (and, to undo a move, partitions) in this order, and it decides who
keeps a partition more when not all can. To assign as a Java leader would, so do ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tidelog.ids import TopicPartition

T = TypeVar("T")

_INT = 0xFFFFFFFF
_SMALLEST_TABLE = 16


def member_order(member_ids: Iterable[str]) -> list[str]:
    """Member ids, inserted in this order, as a Java map goes through them."""
    return _table_order(list(member_ids), _text_hash)


def first_partition(partitions: Iterable[TopicPartition]) -> TopicPartition:
    """The partition that a Java set of these would give first."""
    return _table_order(list(partitions), _partition_hash)[0]


def _table_order(items: list[T], hash_of: Callable[[T], int]) -> list[T]:
    size = _SMALLEST_TABLE
    while len(items) > size * 3 // 4:
        size *= 2

    def bucket(item: T) -> int:
        value = hash_of(item)
        return (value ^ (value >> 16)) & (size - 1)

    return sorted(items, key=bucket)


def _text_hash(text: str) -> int:
    value = 0
    raw = text.encode("utf-16-be")
    for index in range(0, len(raw), 2):
        value = (31 * value + (raw[index] << 8 | raw[index + 1])) & _INT
    return value


def _partition_hash(partition: TopicPartition) -> int:
    return (31 * (31 + partition.partition) + _text_hash(partition.topic)) & _INT
