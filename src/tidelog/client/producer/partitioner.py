"""Which partition a record goes to where the program names none.

Records with a key go by its hash (``client.partitioner``), the same in all clients. Records without one stay
with a partition for about a batch and then move on (KIP-794, :class:`BuiltInPartitioner`): to a random one,
partitions with short queues more often than those whose broker is slow. A program may bring its own
:class:`Partitioner`, which then decides about every record that names no partition.

The built-in partitioner counts whole batches, not records: it is asked when a batch begins, under the
accumulator's lock, so that a record costs it nothing.
"""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol, runtime_checkable

from tidelog.client.partitioner import partition_for_key


@runtime_checkable
class Partitioner(Protocol):
    """An application's own choice of partitions; called in the thread that sends."""

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """The partition, below ``partition_count``; ``available`` are those that have a leader now.

        ``key`` and ``value`` are those that the program has sent (or its interceptors have replaced),
        ``key_bytes`` and ``value_bytes`` their serialized forms.
        """


class RoundRobinPartitioner:
    """One partition after another, keys or not; partitions without a leader are passed over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """The next one in turn."""
        with self._lock:
            turn = self._next.get(topic, 0)
            self._next[topic] = turn + 1
        return available[turn % len(available)] if available else turn % partition_count


class KeyPartitioner:
    """Keys by hash as the built-in way does it, records without a key at random: no sticking."""

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """By the key's hash, or any."""
        if key_bytes is not None:
            return partition_for_key(key_bytes, partition_count)
        return random.choice(available) if available else random.randrange(partition_count)


class BuiltInPartitioner:
    """The sticky, adaptive choice for the keyless records of one topic.

    ``produced`` is told of every batch that was filled; once ``sticky_bytes`` have gone to a partition it is
    time for ``next_partition``.
    """

    def __init__(self, sticky_bytes: int, rng: random.Random | None = None) -> None:
        self.current: int | None = None
        self._sticky_bytes = max(sticky_bytes, 1)
        self._produced_bytes = 0
        self._random = rng or random.Random()

    def produced(self, size_bytes: int) -> None:
        """A batch of the current partition was closed with so many bytes in it."""
        self._produced_bytes += size_bytes

    @property
    def is_time_to_move(self) -> bool:
        """Whether the current partition has had its share."""
        return self.current is None or self._produced_bytes >= self._sticky_bytes

    def next_partition(self, partitions: Sequence[int], queue_sizes: Sequence[int] | None) -> int:
        """Move on to one of ``partitions``.

        ``queue_sizes``, where given, are the batches that wait in each of them: the longer a queue, the rarer
        the choice. Sizes 0, 3 and 1 give the weights 4, 1 and 3.
        """
        if queue_sizes is None or len(set(queue_sizes)) <= 1:
            chosen = partitions[self._random.randrange(len(partitions))]
        else:
            longest = max(queue_sizes) + 1
            steps = list(accumulate(longest - size for size in queue_sizes))
            chosen = partitions[bisect_right(steps, self._random.randrange(steps[-1]))]
        self.current = chosen
        self._produced_bytes = 0
        return chosen
