"""Commits what was consumed by itself: ``enable.auto.commit``, every ``auto.commit.interval.ms``.

``due`` is asked in every poll. One attempt at a time: one that fails and may succeed later is made again
soon, with the positions of then. Memberships commit before they give partitions up, by ``finish`` and a
commit of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidelog.client._network.retry import Deadline
from tidelog.client.group._group_offsets import Commit, Offsets, may_pass
from tidelog.client.options import ClientConfig
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.errors import TidelogError

logger = logging.getLogger(__name__)


class AutoCommit:
    """The automatic commits of one consumer; does nothing where they are off."""

    def __init__(
        self,
        config: ClientConfig,
        subscription: SubscriptionState,
        commit: Commit,
        on_commit: Callable[[Offsets], None],
    ) -> None:
        """``commit`` makes one attempt; ``on_commit`` is told of those that succeed."""
        self.enabled = config.bool("enable.auto.commit")
        self._interval_ms = config.int("auto.commit.interval.ms")
        self._retry_ms = config.int("retry.backoff.ms")
        self._timeout_ms = config.int("default.api.timeout.ms")
        self._subscription = subscription
        self._commit = commit
        self._on_commit = on_commit
        self._due_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def reset(self, now: float) -> None:
        """A new assignment: the next commit is a whole interval away."""
        self._due_at = now + self._interval_ms

    def poll(self, now: float) -> None:
        """Start a commit if one is due; ``now`` is monotonic, in ms."""
        if not self.enabled:
            return
        if self._due_at is None:
            self.reset(now)
        elif now >= self._due_at and self._task is None:
            self._due_at = now + self._interval_ms
            consumed = self._subscription.all_consumed()
            if consumed:
                loop = asyncio.get_running_loop()
                self._task = loop.create_task(self._run(consumed), name="automatic commit")

    async def finish(self, deadline: Deadline) -> None:
        """Wait for the commit that is under way."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=deadline.remaining)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, consumed: Offsets) -> None:
        try:
            await self._commit(consumed, Deadline(self._timeout_ms))
            self._on_commit(consumed)
        except TidelogError as error:
            if may_pass(error):
                logger.debug("automatic commit failed and will be tried again: %s", error)
                self._due_at = asyncio.get_running_loop().time() * 1000 + self._retry_ms
            else:
                logger.warning("automatic commit failed: %s", error)
        finally:
            self._task = None
