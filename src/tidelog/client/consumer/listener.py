"""Calls back the application when its partitions change.

A listener's methods may be plain or ``async``. They are called inside ``poll`` (and ``close``), in the
application's own thread for ``Consumer``: a listener may commit, seek, pause and ask for positions.
``RebalanceCallbacks`` is what a group membership calls; it knows where listeners have to run.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.subscription_state import SubscriptionState

Call = Callable[[], object]
Runner = Callable[[Call], Awaitable[None]]


class RebalanceListener:
    """Told of partitions that come and go; override what you need.

    ``on_partitions_revoked`` comes while the partitions are still this member's: commit there.
    ``on_partitions_lost`` comes when somebody else may own them already; by default it does what
    ``on_partitions_revoked`` does.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> object:
        """These are new; those assigned before and kept are not named again by cooperative assignors."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> object:
        """These are about to go."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> object:
        """These are gone: the member was thrown out of its group."""
        return self.on_partitions_revoked(partitions)


async def run_here(call: Call) -> None:
    """Run a callback on the loop, waiting for it where it is ``async``."""
    result = call()
    if inspect.isawaitable(result):
        await result


class RebalanceCallbacks:
    """The subscription's listener, called where it must run; without one nothing happens.

    An exception of the listener passes through to the membership, which finishes the rebalance and lets
    ``poll`` raise it, as Kafka does.
    """

    def __init__(self, subscription: SubscriptionState, run: Runner = run_here) -> None:
        self._subscription = subscription
        self._run = run

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is not None:
            await self._run(lambda: listener.on_partitions_assigned(partitions))

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is not None:
            await self._run(lambda: listener.on_partitions_revoked(partitions))

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is not None:
            await self._run(lambda: listener.on_partitions_lost(partitions))
