"""Giving partitions up in good order: commit what was consumed, tell the listener, let them go.

Used by both memberships; all calls happen inside ``ensure_active`` and ``leave``, where listeners may run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection

from tidelog.client._network.retry import Deadline
from tidelog.client.group._group_offsets import Commit, Offsets
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition

logger = logging.getLogger(__name__)

PartitionCollection = Collection[TopicPartition]
Tell = Callable[[PartitionCollection], Awaitable[None]]


class Handover:
    """How one consumer parts with partitions."""

    def __init__(
        self, subscription: SubscriptionState, commit: Commit, on_commit: Callable[[Offsets], None]
    ) -> None:
        """``on_commit`` is told of commits that succeed."""
        self._subscription = subscription
        self._commit = commit
        self._on_commit = on_commit

    def consumed(self, partitions: PartitionCollection) -> Offsets:
        """What may be committed of these partitions."""
        consumed = self._subscription.all_consumed()
        return {partition: at for partition, at in consumed.items() if partition in partitions}

    async def commit_or_warn(self, offsets: Offsets, deadline: Deadline) -> None:
        """Commit; a failure means that records will be read again, and is only logged."""
        if not offsets:
            return
        try:
            await self._commit(offsets, deadline)
            self._on_commit(offsets)
        except TidelogError as error:
            logger.warning("committing before partitions are given up failed: %s", error)

    async def give_up(self, partitions: PartitionCollection, tell: Tell) -> None:
        """Tell the listener, then let the partitions go, whatever the listener does."""
        try:
            await tell(sorted(partitions))
        finally:
            kept = self._subscription.assignment.difference(partitions)
            self._subscription.assign_from_group(sorted(kept))


async def failure_of(tell: Awaitable[None]) -> Exception | None:
    """What an application's callback has raised; the rebalance, or the close, raises it at its end."""
    try:
        await tell
    except Exception as error:
        return error
    return None
