"""Leadership goes back to preferred replicas from time to time (``auto.leader.rebalance.enable``).

Every ``leader.imbalance.check.interval.seconds`` the controller looks at how many of the partitions that each
broker should lead somebody else does. Of a broker that has lost more of them in a hundred than
``leader.imbalance.per.broker.percentage``, those whose preferred replica is in sync get it back.

Owned by ``term``; :meth:`Balance.run` is one of its events.
"""

from __future__ import annotations

import asyncio

from tidelog.controller.cluster.context import ControllerContext
from tidelog.controller.cluster.elections import elect_preferred
from tidelog.controller.cluster.events import EventQueue
from tidelog.controller.cluster.state_changes import Election, StateChanges
from tidelog.controller.cluster.states import PartitionPhase
from tidelog.ids import TopicPartition

_FIRST_S = 5.0


class Balance:
    """The repeated look of one term of office."""

    def __init__(
        self,
        context: ControllerContext,
        changes: StateChanges,
        events: EventQueue,
        *,
        interval_s: float,
        imbalance_percentage: int,
    ) -> None:
        self._context = context
        self._changes = changes
        self._events = events
        self._interval_s = interval_s
        self._imbalance_percentage = imbalance_percentage
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look for the first time soon: a controller often comes when a broker has gone."""
        self._schedule(_FIRST_S)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_s, self._events.post, "balance", self.run)

    async def run(self) -> None:
        """Give leadership back to preferred replicas, of brokers that have lost too much of it."""
        self._schedule(self._interval_s)
        for _, (strayed, preferred) in self._context.imbalance().items():
            if len(strayed) * 100 <= self._imbalance_percentage * preferred:
                continue
            ready = [each for each in strayed if self._can_return(each)]
            if ready:
                await self._changes.partitions_to(PartitionPhase.ONLINE, ready, Election.PREFERRED)

    def _can_return(self, partition: TopicPartition) -> bool:
        replicas = self._context.assignment(partition).replicas
        live = self._context.online_replicas(partition, replicas)
        return elect_preferred(replicas, self._context.leaderships[partition].state.isr, live) is not None
