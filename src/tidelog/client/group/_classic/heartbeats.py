"""Heartbeats of a classic member: a task that runs beside the application, however long that takes to poll.

While the member has joined, a heartbeat goes out every ``heartbeat.interval.ms``; one that fails is
repeated after the retry back-off. No answer for ``session.timeout.ms`` makes the coordinator unknown, so
that another is looked for. No poll for ``max.poll.interval.ms`` ends the membership: a member that does not
process would keep its partitions from others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from tidelog.client._network.retry import Deadline
from tidelog.client.group._classic.generation import Generation
from tidelog.client.group._coordinator_link import CoordinatorLink
from tidelog.client.group._metrics import GroupMetrics
from tidelog.client.options import ClientConfig
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

logger = logging.getLogger(__name__)

_GRACE_S = 0.05


class HeartbeatListener(Protocol):
    """What a membership does about heartbeats."""

    @property
    def generation(self) -> Generation: ...

    def heartbeat_answered(self, code: ErrorCode, sent: Generation) -> bool:
        """The coordinator has answered; whether that counts as a sign of life."""

    def heartbeat_failed(self, error: TidelogError) -> None:
        """The coordinator could not be asked, and no waiting will mend that."""

    async def poll_overdue(self) -> None:
        """The application has not polled for ``max.poll.interval.ms``."""


class Heartbeats:
    """The heartbeats of one member."""

    def __init__(
        self,
        config: ClientConfig,
        link: CoordinatorLink,
        listener: HeartbeatListener,
        metrics: GroupMetrics,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` lets a poll that waits for records come round, and so be counted."""
        self._interval = config.int("heartbeat.interval.ms") / 1000
        self._session_timeout = config.int("session.timeout.ms") / 1000
        self._poll_interval = config.int("max.poll.interval.ms") / 1000
        self._retry = config.int("retry.backoff.ms") / 1000
        self._instance_id = config.optional_str("group.instance.id")
        self._link = link
        self._listener = listener
        self._metrics = metrics
        self._wake = wake
        self._task: asyncio.Task[None] | None = None
        self._polled_at = 0.0

    def polled(self) -> None:
        """The application polls."""
        self._polled_at = asyncio.get_running_loop().time()

    def start(self) -> None:
        """The member has joined."""
        self.stop()
        loop = asyncio.get_running_loop()
        self._polled_at = loop.time()
        self._task = loop.create_task(self._run(loop), name=f"heartbeats of {self._link.group_id}")

    def stop(self) -> None:
        """The member has left, or is about to join again."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        answered_at = loop.time()
        next_at = answered_at + self._interval
        while self._task is asyncio.current_task():
            now = loop.time()
            overdue_at = self._polled_at + self._poll_interval
            if now >= overdue_at:
                if await self._really_overdue(loop):
                    await self._listener.poll_overdue()
                    return
            elif now < next_at:
                await asyncio.sleep(min(next_at, overdue_at) - now)
            else:
                if now >= answered_at + self._session_timeout:
                    self._link.lost("it has not answered heartbeats for session.timeout.ms")
                next_at = now + self._interval
                if await self._beat():
                    answered_at = loop.time()
                else:
                    next_at = min(next_at, loop.time() + self._retry)
                self._wake()

    async def _really_overdue(self, loop: asyncio.AbstractEventLoop) -> bool:
        """A poll that has waited for records all the time is no sign of being stuck."""
        self._wake()
        await asyncio.sleep(_GRACE_S)
        return loop.time() >= self._polled_at + self._poll_interval

    async def _beat(self) -> bool:
        """Send one; whether the coordinator still counts on this member."""
        sent = self._listener.generation
        request = HeartbeatRequest(
            group_id=self._link.group_id,
            generation_id=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=self._instance_id,
        )
        try:
            deadline = Deadline(self._session_timeout * 1000)
            response = await self._metrics.heartbeat(self._link.ask(request, HeartbeatResponse, deadline))
        except TidelogError as error:
            logger.debug("heartbeat of group %s failed: %s", self._link.group_id, error)
            self._listener.heartbeat_failed(error)
            return False
        self._link.note(response.error_code)
        return self._listener.heartbeat_answered(ErrorCode(response.error_code), sent)
