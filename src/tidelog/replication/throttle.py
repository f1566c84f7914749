"""Throttles of replication: how many bytes a second may be copied for the replicas that are throttled.

As in Kafka a broker has one for what it sends as leader and one for what it fetches as follower. The rate
(``leader.replication.throttled.rate``, ``follower.replication.throttled.rate``) is the broker's, the list of
replicas it holds for (``*.replication.throttled.replicas``) each topic's. Replicas that are in sync are
counted, but never held back: a throttle must not put them out of sync.

The rate is measured over ``replication.quota.window.num`` windows, each of
``replication.quota.window.size.seconds``; a transfer that has begun is not cut, so it may be exceeded for a
moment, and what is too much is made up for by waiting.

Pure, but for the clock. Set by ``broker/cluster/throttles``; asked by the fetch handler and ``fetch_loop``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.ids import TopicPartition

UNLIMITED = 2**63 - 1
ALL = "*"


class _Copied(NamedTuple):
    """What was copied in one window."""

    begun_ms: float
    size_bytes: int


class ReplicationThrottle:
    """The throttled partitions of one direction, and the bytes that were copied for them."""

    def __init__(self, clock: Clock, *, windows: int = 11, window_ms: float = 1000) -> None:
        self.bytes_per_second = UNLIMITED
        self._clock = clock
        self._windows = windows
        self._window_ms = window_ms
        self._partitions: dict[str, frozenset[int] | None] = {}
        self._copied: deque[_Copied] = deque()

    def set_replicas(self, topic: str, texts: Collection[str], broker_id: int) -> None:
        """Take over a topic's option: ``PARTITION:BROKER`` pairs, ``*`` for all of its replicas, or
        nothing."""
        if ALL in texts:
            self._partitions[topic] = None
            return
        pairs = [text.split(":") for text in texts]
        mine = frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
        if mine:
            self._partitions[topic] = mine
        else:
            self._partitions.pop(topic, None)

    @property
    def is_in_use(self) -> bool:
        """Whether any replica is throttled."""
        return bool(self._partitions)

    def applies_to(self, partition: TopicPartition) -> bool:
        """Whether a partition's replica on this broker is throttled."""
        if partition.topic not in self._partitions:
            return False
        throttled = self._partitions[partition.topic]
        return throttled is None or partition.partition in throttled

    def record(self, size: int) -> None:
        """So many bytes were copied for throttled replicas."""
        now_ms = self._clock.monotonic_ms()
        if self._copied and now_ms - self._copied[-1].begun_ms < self._window_ms:
            begun_ms, copied = self._copied.pop()
            self._copied.append(_Copied(begun_ms, copied + size))
        else:
            # Here as well as in ``rate``, which nobody asks for while all replicas are in sync.
            self._drop_old(now_ms)
            self._copied.append(_Copied(now_ms, size))

    @property
    def is_exceeded(self) -> bool:
        """Whether more was copied of late than may be."""
        if self.bytes_per_second >= UNLIMITED:
            return False
        return self.rate > self.bytes_per_second

    @property
    def rate(self) -> float:
        """The bytes a second, over the windows that count."""
        now_ms = self._clock.monotonic_ms()
        self._drop_old(now_ms)
        if not self._copied:
            return 0.0
        elapsed_ms = max(now_ms - self._copied[0].begun_ms, self._window_ms)
        return sum(window.size_bytes for window in self._copied) * 1000 / elapsed_ms

    def _drop_old(self, now_ms: float) -> None:
        """Let go of windows that do not count any more."""
        while self._copied and now_ms - self._copied[0].begun_ms >= self._windows * self._window_ms:
            self._copied.popleft()

    def holds_back(self, partition: TopicPartition, *, in_sync: bool) -> bool:
        """Whether nothing may be copied for a partition's replica now."""
        return not in_sync and self.applies_to(partition) and self.is_exceeded
