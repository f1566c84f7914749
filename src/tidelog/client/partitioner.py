"""Which partition a record without a given one goes to, so that clients of all languages agree.

Keys are hashed with murmur2 exactly as the Java client does; records without a key stick to one partition
until about a batch has gone there (KIP-794), or go round robin. The producer calls ``Partitioner.partition``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of ``data`` as the Java client computes it, unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of ``key`` among ``partition_count``, the same one that Java's producer chooses."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Partitioner(Protocol):
    """Chooses partitions for the records of one topic."""

    def partition(
        self, key: bytes | None, size_bytes: int, partition_count: int, available: Sequence[int]
    ) -> int:
        """The partition for a record; ``available`` are those with a leader (at least one)."""


class StickyPartitioner:
    """Keyless records stay on one partition until ``batch_size`` bytes went there, then move at random."""

    def __init__(self, batch_size: int = 16_384, rng: random.Random | None = None) -> None:
        self._batch_size = batch_size
        self._random = rng or random.Random()
        self._current: int | None = None
        self._sent_bytes = 0

    def partition(
        self, key: bytes | None, size_bytes: int, partition_count: int, available: Sequence[int]
    ) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        if self._current is None or self._sent_bytes >= self._batch_size or self._current not in available:
            others = [index for index in available if index != self._current]
            self._current = self._random.choice(others or available)
            self._sent_bytes = 0
        self._sent_bytes += size_bytes
        return self._current


class RoundRobinPartitioner:
    """Keyless records go to one partition after the other."""

    def __init__(self) -> None:
        self._next = 0

    def partition(
        self, key: bytes | None, size_bytes: int, partition_count: int, available: Sequence[int]
    ) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        chosen = available[self._next % len(available)]
        self._next += 1
        return chosen
