"""A member's figures, by the names that Kafka gives them; shown among those of the client's cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tidelog.client.metrics import Counter, Latency, Metrics

T = TypeVar("T")

_NEVER = -1.0


class GroupMetrics:
    """Counts and times what a membership does; durations are in ms."""

    def __init__(self, metrics: Metrics) -> None:
        self._now = asyncio.get_running_loop().time
        self.heartbeats = metrics.counter("heartbeat")
        self.heartbeat_ms = metrics.latency("heartbeat-response-time")
        self.joins = metrics.counter("join")
        self.join_ms = metrics.latency("join-time")
        self.syncs = metrics.counter("sync")
        self.sync_ms = metrics.latency("sync-time")
        self.commits = metrics.counter("commit")
        self.commit_ms = metrics.latency("commit-latency")
        self.failed_rebalances = metrics.counter("failed-rebalance", rate=False)
        self._rebalances = metrics.counter("rebalance", rate=False)
        self._rebalance_ms = metrics.latency("rebalance-latency")
        self._rebalancing_since: float | None = None
        self._settled_at: float | None = None
        self._heartbeat_at: float | None = None
        metrics.gauge("last-heartbeat-seconds-ago", lambda: self._ago(self._heartbeat_at))
        metrics.gauge("last-rebalance-seconds-ago", lambda: self._ago(self._settled_at))

    async def timed(self, counter: Counter, latency: Latency, asking: Awaitable[T]) -> T:
        """The answer to a request, which is counted when it has come."""
        started = self._now()
        answer = await asking
        counter.add()
        latency.record((self._now() - started) * 1000)
        return answer

    async def heartbeat(self, asking: Awaitable[T]) -> T:
        """The answer to a heartbeat."""
        self._heartbeat_at = self._now()
        return await self.timed(self.heartbeats, self.heartbeat_ms, asking)

    def rebalance_began(self) -> None:
        """A rebalance begins, if none is under way; it may take several attempts."""
        if self._rebalancing_since is None:
            self._rebalancing_since = self._now()

    def rebalance_ended(self) -> None:
        """The group has settled for this member."""
        self._settled_at = self._now()
        self._rebalances.add()
        if self._rebalancing_since is not None:
            self._rebalance_ms.record((self._settled_at - self._rebalancing_since) * 1000)
            self._rebalancing_since = None

    def _ago(self, moment: float | None) -> float:
        return _NEVER if moment is None else self._now() - moment
