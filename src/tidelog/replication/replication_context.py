"""What all partitions of a broker share: time, the lag that followers are allowed, who is alive, the way to
the controller.

A broker alone has no followers, so nothing of this is ever asked for there (``STANDALONE``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from tidelog.clock import Clock, SystemClock
from tidelog.ids import TopicPartition
from tidelog.replication.in_sync import IsrRequests, LedPartition

DEFAULT_MAX_LAG_MS = 30_000


class LogTruncation(Protocol):
    """Who cuts logs back, and keeps the cleaner from working on what is gone: ``LogDirs``."""

    def truncate_to(self, partition: TopicPartition, offset: int) -> None:
        """Drop everything from ``offset`` on."""

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
        """Drop everything, and go on at ``offset``."""


class ReplicationContext:
    """Handed to every partition; ``max_lag_ms`` is ``replica.lag.time.max.ms``."""

    __slots__ = ("clock", "isr_requests", "live_brokers", "max_lag_ms", "truncation")

    def __init__(
        self,
        clock: Clock,
        isr_requests: IsrRequests,
        live_brokers: Callable[[], Collection[int]],
        max_lag_ms: float = DEFAULT_MAX_LAG_MS,
    ) -> None:
        self.clock = clock
        self.isr_requests = isr_requests
        self.live_brokers = live_brokers
        self.max_lag_ms = max_lag_ms
        self.truncation: LogTruncation | None = None
        """None where there is no cleaner; set once the log directories are there."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is there, as far as this one has been told."""
        return broker_id in self.live_brokers()


class NoController:
    """For a broker alone: nothing ever changes the in-sync replicas of its partitions."""

    def submit(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        raise AssertionError(f"{partition} has no followers, so its in-sync replicas cannot change")


STANDALONE = ReplicationContext(SystemClock(), NoController(), lambda: ())
