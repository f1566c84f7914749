"""What a group membership calls when partitions come and go: the listener, where it must run."""

from __future__ import annotations

import time
from collections.abc import Collection

from tidelog.client.group._metrics import CallbackTimes
from tidelog.client.metrics import Stat
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.client.subscription.listener import Call, Runner, run_here
from tidelog.ids import TopicPartition


class RebalanceCallbacks:
    """The subscription's listener, called where it must run; without one nothing happens.

    An exception of the listener passes through to the membership, which finishes the rebalance and lets
    ``poll`` raise it, as Kafka does.
    """

    def __init__(self, subscription: SubscriptionState, run: Runner = run_here) -> None:
        self._subscription = subscription
        self._run = run
        self.times = CallbackTimes()

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is not None:
            await self._timed(self.times.assigned, lambda: listener.on_partitions_assigned(partitions))

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is not None:
            await self._timed(self.times.revoked, lambda: listener.on_partitions_revoked(partitions))

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is not None:
            await self._timed(self.times.lost, lambda: listener.on_partitions_lost(partitions))

    async def _timed(self, stat: Stat, call: Call) -> None:
        began = time.monotonic()
        try:
            await self._run(call)
        finally:
            stat.record((time.monotonic() - began) * 1000)
