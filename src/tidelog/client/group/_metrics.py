"""A member's figures, by the names that Kafka gives them (``consumer-coordinator-metrics``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import TypeVar

from tidelog.client.metrics import Family, Figure, Kind, Latency, Metrics, Stat, gauge, meter, spread, total

T = TypeVar("T")

_NEVER = -1.0


class CallbackTimes:
    """How long the listener's callbacks took, in ms."""

    __slots__ = ("assigned", "lost", "revoked")

    def __init__(self) -> None:
        self.assigned = Stat()
        self.revoked = Stat()
        self.lost = Stat()


class GroupMetrics:
    """Counts and times what a membership does; durations are in ms."""

    def __init__(
        self,
        metrics: Metrics,
        callbacks: CallbackTimes | None = None,
        assigned_partitions: Callable[[], int] = lambda: 0,
    ) -> None:
        self._now = asyncio.get_running_loop().time
        self.heartbeat_ms = Latency()
        self.join_ms = Latency()
        self.sync_ms = Latency()
        self.commit_ms = Latency()
        self.failed_rebalances = 0
        self.rebalance_ms = Latency()
        self.callbacks = callbacks or CallbackTimes()
        self.assigned_partitions = assigned_partitions
        self._rebalancing_since: float | None = None
        self._settled_at: float | None = None
        self._heartbeat_at: float | None = None
        self.rebalances = 0
        self.committed_at: float | None = None
        """When offsets were last committed, by the monotonic clock."""
        metrics.add_one(COORDINATOR, self)

    async def timed(
        self, latency: Stat, asking: Awaitable[T], counts: Callable[[T], bool] = lambda answer: True
    ) -> T:
        """The answer to a request, which is counted when it has come; only those that ``counts``."""
        started = self._now()
        answer = await asking
        if counts(answer):
            latency.record((self._now() - started) * 1000)
        return answer

    async def heartbeat(self, asking: Awaitable[T]) -> T:
        """The answer to a heartbeat."""
        self._heartbeat_at = self._now()
        return await self.timed(self.heartbeat_ms, asking)

    def rebalance_began(self) -> None:
        """A rebalance begins, if none is under way; it may take several attempts."""
        if self._rebalancing_since is None:
            self._rebalancing_since = self._now()

    def rebalance_ended(self) -> None:
        """The group has settled for this member."""
        self._settled_at = self._now()
        self.rebalances += 1
        if self._rebalancing_since is not None:
            self.rebalance_ms.record((self._settled_at - self._rebalancing_since) * 1000)
            self._rebalancing_since = None

    @property
    def heartbeat_ago_s(self) -> float:
        """Seconds since the last heartbeat; -1: none yet."""
        return self._ago(self._heartbeat_at)

    @property
    def rebalance_ago_s(self) -> float:
        """Seconds since the group settled; -1: not yet."""
        return self._ago(self._settled_at)

    def _ago(self, moment: float | None) -> float:
        return _NEVER if moment is None else self._now() - moment


_AND_P99 = (Kind.AVG, Kind.MAX, Kind.P99)


def _per_hour(name: str, attribute: str, what: str) -> tuple[Figure, Figure]:
    read = attrgetter(attribute)
    hourly = Figure(f"{name}-rate-per-hour", Kind.PER_HOUR, read, f"{what}, per hour, of one hour at least")
    return hourly, total(name, read, what)


COORDINATOR = Family(
    "consumer-coordinator-metrics",
    [
        gauge(
            "assigned-partitions", lambda group: group.assigned_partitions(), "Partitions that are assigned"
        ),
        *meter("commit", attrgetter("commit_ms.count"), "Commits answered"),
        *spread("commit-latency", attrgetter("commit_ms"), "From a commit to its answer, in ms", *_AND_P99),
        *meter("heartbeat", attrgetter("heartbeat_ms.count"), "Heartbeats answered"),
        *spread(
            "heartbeat-response-time", attrgetter("heartbeat_ms"), "From a heartbeat to its answer", *_AND_P99
        ),
        gauge(
            "last-heartbeat-seconds-ago",
            attrgetter("heartbeat_ago_s"),
            "Since the last heartbeat; -1: none yet",
        ),
        *meter("join", attrgetter("join_ms.count"), "JoinGroup requests answered"),
        *spread("join-time", attrgetter("join_ms"), "From JoinGroup to its answer, in ms", *_AND_P99),
        *meter("sync", attrgetter("sync_ms.count"), "SyncGroup requests answered"),
        *spread("sync-time", attrgetter("sync_ms"), "From SyncGroup to its answer, in ms", *_AND_P99),
        *_per_hour("rebalance", "rebalances", "Rebalances that were finished"),
        *spread(
            "rebalance-latency", attrgetter("rebalance_ms"), "How long a rebalance took, in ms", *_AND_P99
        ),
        total("rebalance-latency", attrgetter("rebalance_ms.total"), "Time in rebalances, in ms"),
        *_per_hour("failed-rebalance", "failed_rebalances", "Attempts to rebalance that failed"),
        gauge(
            "last-rebalance-seconds-ago",
            attrgetter("rebalance_ago_s"),
            "Since the last rebalance; -1: none yet",
        ),
        *spread(
            "partition-assigned-latency",
            attrgetter("callbacks.assigned"),
            "Time in on_partitions_assigned, in ms",
        ),
        *spread(
            "partition-revoked-latency",
            attrgetter("callbacks.revoked"),
            "Time in on_partitions_revoked, in ms",
        ),
        *spread("partition-lost-latency", attrgetter("callbacks.lost"), "Time in on_partitions_lost, in ms"),
    ],
)
"""Read from :class:`GroupMetrics`."""
