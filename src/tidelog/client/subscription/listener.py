"""What an application is told of when its partitions change, and where that runs.

A listener's methods may be plain or ``async``. They are called inside ``poll`` (and ``close``), in the
application's own thread for ``Consumer``: a listener may commit, seek, pause and ask for positions.
``rebalance_callbacks`` calls them for a group membership.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection

from tidelog.client.errors import IllegalStateError
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


def check_listener(listener: object) -> None:
    """Raise ``IllegalStateError`` unless this is None or has the methods of a ``RebalanceListener``."""
    names = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
    if listener is not None and not all(callable(getattr(listener, name, None)) for name in names):
        raise IllegalStateError(
            f"a listener is a RebalanceListener, got {listener!r}: pass an instance of a subclass"
        )


async def run_here(call: Call) -> None:
    """Run a callback on the loop, waiting for it where it is ``async``."""
    result = call()
    if inspect.isawaitable(result):
        await result
