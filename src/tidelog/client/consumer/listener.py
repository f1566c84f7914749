"""What an application is told of when its partitions change, and where that runs.

A listener's methods may be plain or ``async``. They are called inside ``poll`` (and ``close``), in the
application's own thread for ``Consumer``: a listener may commit, seek, pause and ask for positions.
``rebalance_callbacks`` calls them for a group membership.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection

from tidelog.ids import TopicPartition

Call = Callable[[], object]
Runner = Callable[[Call], Awaitable[None]]


class RebalanceListener:
    """Notified, inside ``poll``, of partitions that are assigned and revoked; override the methods that you
    need.

    Example:
        class Shown(RebalanceListener):
            def on_partitions_assigned(self, partitions):
                print("reading", partitions)

        consumer.subscribe(["orders"], listener=Shown())
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
