"""What both memberships do about offsets: commits that the application asks for, automatic ones, and the last
ones before partitions are given up.

How one attempt is made, in whose name, and what a refusal means for the member is each membership's own
(``commit_once``). Owned by ``classic_membership`` and ``consumer_membership``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tidelog.client._network.retry import Deadline
from tidelog.client.group._auto_commit import AutoCommit
from tidelog.client.group._group_offsets import NOBODY, Commit, GroupOffsets, Offsets
from tidelog.client.group._handover import Handover
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.options import ClientConfig
    from tidelog.client.subscription._subscription_state import SubscriptionState
    from tidelog.client.subscription.offsets import OffsetAndMetadata


class MemberOffsets:
    """The commits of one member: ``auto`` makes those by the clock, ``handover`` those before a loss."""

    def __init__(
        self,
        offsets: GroupOffsets,
        subscription: SubscriptionState,
        config: ClientConfig,
        commit_once: Commit,
    ) -> None:
        self._offsets = offsets
        self._commit_once = commit_once
        self._on_commit: Callable[[Offsets], None] = lambda offsets: None
        self.auto = AutoCommit(config, subscription, commit_once, self._committed_alone)
        self.handover = Handover(subscription, self._commit_leaving, self._committed_alone)

    def subscribe(self, told: Callable[[Offsets], None]) -> None:
        """``told(offsets)`` is called after commits that nobody has asked for."""
        self._on_commit = told

    async def commit(self, offsets: Offsets, deadline: Deadline) -> None:
        """Commit, again after errors that pass; raises what the coordinator refused."""
        if offsets:
            await self._offsets.retry(lambda: self._commit_once(offsets, deadline), deadline)

    async def fetch(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets, None where there is none."""
        return await self._offsets.fetch(NOBODY, partitions, deadline)

    async def _commit_leaving(self, offsets: Offsets, deadline: Deadline) -> None:
        await self._offsets.retry(lambda: self._commit_once(offsets, deadline), deadline, is_leaving=True)

    def _committed_alone(self, offsets: Offsets) -> None:
        self._on_commit(offsets)
