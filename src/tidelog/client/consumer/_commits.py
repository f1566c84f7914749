"""Commits that the application asks for, in the order in which it asks.

``commit`` waits; ``commit_nowait`` does not, and a later ``commit`` waits for it too, so that an older
offset never overwrites a newer one. Callbacks of ``commit_nowait`` run inside a later poll, commit or
close, as Java's do. Automatic commits are the membership's, except for partitions assigned by hand.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.client._network.retry import Deadline
from tidelog.client.consumer.interceptors import ConsumerInterceptors
from tidelog.client.errors import IllegalStateError
from tidelog.client.group._handover import failure_of
from tidelog.client.group.membership import GroupMembership
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.client.subscription.listener import Runner
from tidelog.client.subscription.offsets import OffsetAndMetadata, checked_offset, checked_partition
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition

logger = logging.getLogger(__name__)

OffsetsToCommit = Mapping[TopicPartition, int | OffsetAndMetadata]
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], Any]


class Commits:
    """The commits of one consumer."""

    def __init__(
        self,
        membership: GroupMembership,
        subscription: SubscriptionState,
        interceptors: ConsumerInterceptors,
        run: Runner,
        on_news: Callable[[], None],
    ) -> None:
        """``run`` calls a callback where it must run."""
        self._membership = membership
        self._subscription = subscription
        self._interceptors = interceptors
        self._run = run
        self._on_news = on_news
        self._order = asyncio.Lock()
        self._pending: set[asyncio.Task[None]] = set()
        self._finished: deque[
            tuple[CommitCallback, dict[TopicPartition, OffsetAndMetadata], Exception | None]
        ]
        self._finished = deque()

    async def commit(self, offsets: OffsetsToCommit | None, deadline: Deadline) -> None:
        """Commit after all that was asked for before."""
        await self._commit(self._read(offsets), deadline)

    def commit_nowait(
        self, offsets: OffsetsToCommit | None, callback: CommitCallback | None, deadline: Deadline
    ) -> None:
        """Commit in a task; errors go to ``callback``, or to the log where there is none."""
        wanted = self._read(offsets)

        async def run() -> None:
            error: Exception | None = None
            try:
                await self._commit(wanted, deadline)
            except TidelogError as refused:
                error = refused
            if callback is not None:
                self._finished.append((callback, wanted, error))
                self._on_news()
            elif error is not None:
                logger.warning("committing offsets in the background failed: %s", error)

        task = asyncio.get_running_loop().create_task(run(), name="commit offsets")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def run_callbacks(self) -> None:
        """Tell the application what became of commits that it did not wait for."""
        while self._finished:
            callback, offsets, error = self._finished.popleft()
            await self._run(functools.partial(callback, offsets, error))

    @property
    def has_callbacks(self) -> bool:
        return bool(self._finished)

    async def flush(self, deadline: Deadline) -> None:
        """Wait for what was committed without waiting, and run all callbacks; raises the first error."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=deadline.remaining)
        failure: Exception | None = None
        while self._finished:
            later = await failure_of(self.run_callbacks())
            failure = failure or later
        if failure is not None:
            raise failure

    async def close(self, deadline: Deadline, auto_commit: bool) -> None:
        """The last automatic commit of a consumer that has assigned its partitions by hand."""
        consumed = self._subscription.all_consumed()
        if auto_commit and consumed:
            try:
                await self._commit(consumed, deadline)
            except TidelogError as error:
                logger.warning("committing offsets while closing failed: %s", error)

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline) -> None:
        async with self._order:
            await self._membership.commit(offsets, deadline)
        self._interceptors.on_commit(offsets)

    def _read(self, offsets: OffsetsToCommit | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._subscription.all_consumed()
        if not isinstance(offsets, Mapping):
            raise IllegalStateError(
                "offsets to commit are given by partition, as {TopicPartition('orders', 0): 42}, "
                f"not as {offsets!r}"
            )
        wanted = {checked_partition(partition): at for partition, at in offsets.items()}
        return {partition: checked_offset(partition, at) for partition, at in wanted.items()}
