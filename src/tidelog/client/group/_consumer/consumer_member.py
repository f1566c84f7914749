"""One member of a consumer group (KIP-848) on the wire: ConsumerGroupHeartbeat does everything.

The broker assigns. A heartbeat joins (epoch 0), says what the member reads and owns, brings the assignment
it is to have, and leaves (epoch -1; -2 for a static member, which may come back). Fields that have not
changed since the last successful heartbeat are left out. ``consumer_membership`` carries assignments out and
acknowledges them; this module knows nothing of listeners and commits.

    LEFT ──► JOINING ──► MEMBER ──► LOST (fenced, or poll overdue) ──► JOINING
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.client._network.retry import Backoff, Deadline
from tidelog.client.errors import error_from, is_retriable
from tidelog.client.group._coordinator_link import CoordinatorLink
from tidelog.client.group._metrics import GroupMetrics
from tidelog.client.group.membership import ConsumerGroupMetadata
from tidelog.client.options import ClientConfig
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import Uuid, random_uuid, uuid_to_text
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

logger = logging.getLogger(__name__)

HeartbeatAssignment = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id."""

_JOINING = 0
_LEAVING = -1
_LEAVING_FOR_A_WHILE = -2
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_GRACE_S = 0.05


class MemberPhase(enum.Enum):
    """Where a member stands."""

    LEFT = "left"
    JOINING = "joining"
    MEMBER = "member"
    LOST = "lost"


class ConsumerMember:
    """A place in a consumer group."""

    def __init__(
        self,
        config: ClientConfig,
        link: CoordinatorLink,
        subscription: SubscriptionState,
        metrics: GroupMetrics,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` is called when the application must poll for the membership to go on."""
        self.member_id = uuid_to_text(random_uuid())
        self.epoch = _JOINING
        self.phase = MemberPhase.LEFT
        self.target: HeartbeatAssignment | None = None
        """What the broker wants this member to own; None until it has said so."""
        self.owned: HeartbeatAssignment = {}
        """What was acknowledged, or is with the next heartbeat."""
        self.identity = ConsumerGroupMetadata(
            link.group_id, group_instance_id=config.optional_str("group.instance.id")
        )
        """The last epoch as a member; kept when thrown out, so that a transaction's offsets are refused."""
        self._link = link
        self._subscription = subscription
        self._metrics = metrics
        self._wake = wake
        self._instance_id = config.optional_str("group.instance.id")
        self._rack = config.str("client.rack") or None
        self._assignor = config.optional_str("group.remote.assignor")
        self._poll_interval_ms = config.int("max.poll.interval.ms")
        self._request_timeout_ms = config.int("request.timeout.ms")
        self._backoff_ms = config.int("retry.backoff.ms"), config.int("retry.backoff.max.ms")
        self._interval = 0.0
        self._sent: dict[str, Any] = {}
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: TidelogError | None = None
        self._polled_at = 0.0

    @property
    def is_member(self) -> bool:
        return self.phase is MemberPhase.MEMBER

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raise what the background task cannot mend."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def polled(self) -> None:
        """The application polls."""
        self._polled_at = asyncio.get_running_loop().time()

    def join(self) -> None:
        """Become a member, or one again with nothing owned."""
        self._stop()
        self.epoch, self.phase = _JOINING, MemberPhase.JOINING
        self.target, self.owned = None, {}
        self._sent = {}
        loop = asyncio.get_running_loop()
        self._polled_at = loop.time()
        self._task = loop.create_task(self._run(loop), name=f"heartbeats of {self._link.group_id}")

    def subscription_changed(self) -> None:
        """Tell the broker soon."""
        self._urgent.set()

    def acknowledge(self, owned: HeartbeatAssignment) -> None:
        """An assignment was carried out: tell the broker what this member owns now."""
        self.owned = owned
        self._sent.pop("topic_partitions", None)
        self._urgent.set()

    async def leave(self, deadline: Deadline) -> None:
        """Say good-bye; a static member says that it may be back."""
        self._stop()
        was_member = self.phase in (MemberPhase.MEMBER, MemberPhase.JOINING) and self._link.node is not None
        self.phase = MemberPhase.LEFT
        self._link.joined()
        if was_member:
            await self._say_good_bye(deadline)

    async def close(self) -> None:
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    def _stop(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None

    async def _say_good_bye(self, deadline: Deadline) -> None:
        self.epoch = _LEAVING if self._instance_id is None else _LEAVING_FOR_A_WHILE
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._link.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance_id,
        )
        try:
            response = await self._link.ask(request, ConsumerGroupHeartbeatResponse, deadline)
        except TidelogError as error:
            logger.warning("group %s could not be left: %s", self._link.group_id, error)
            return
        if response.error_code:
            logger.info("leaving group %s: %s", self._link.group_id, ErrorCode(response.error_code).name)

    # Heartbeats

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        backoff = Backoff(*self._backoff_ms)
        next_at = loop.time()
        while self._task is asyncio.current_task():
            now = loop.time()
            overdue_at = self._polled_at + self._poll_interval_ms / 1000
            if now >= overdue_at:
                if await self._really_overdue(loop):
                    await self._leave_as_overdue()
                    return
            elif now < next_at and not self._urgent.is_set():
                await self._wait(min(next_at, overdue_at) - now)
            else:
                self._urgent.clear()
                if await self._beat():
                    backoff = Backoff(*self._backoff_ms)
                    next_at = now + self._interval
                else:
                    await asyncio.sleep(backoff.next_ms() / 1000)
                    next_at = loop.time()
                self._wake()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._urgent.wait()
        except TimeoutError:
            return

    async def _really_overdue(self, loop: asyncio.AbstractEventLoop) -> bool:
        """A poll that has waited for records all the time is no sign of being stuck."""
        self._wake()
        await asyncio.sleep(_GRACE_S)
        return loop.time() >= self._polled_at + self._poll_interval_ms / 1000

    async def _leave_as_overdue(self) -> None:
        logger.warning(
            "leaving group %s: poll was not called for max.poll.interval.ms=%d; process records faster, "
            "lower max.poll.records or raise max.poll.interval.ms",
            self._link.group_id,
            self._poll_interval_ms,
        )
        self.phase = MemberPhase.LOST
        await self._say_good_bye(Deadline(self._request_timeout_ms))
        self._wake()

    async def _beat(self) -> bool:
        """Send one heartbeat; whether the broker has taken it."""
        request = self._request()
        try:
            deadline = Deadline(self._request_timeout_ms)
            asking = self._link.ask(request, ConsumerGroupHeartbeatResponse, deadline)
            response = await self._metrics.heartbeat(asking)
        except TidelogError as error:
            self._sent = {}
            logger.debug("heartbeat of group %s failed: %s", self._link.group_id, error)
            self._link.join_failed(error)
            if not is_retriable(error):
                self._fail(_explained(error))
            return False
        if self._task is not asyncio.current_task():
            return True
        if response.error_code:
            self._sent = {}
            self._refused(response)
            return False
        self._accepted(response)
        return True

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat with what has changed since the last; all of it when joining."""
        joins = self.epoch == _JOINING
        if joins:
            self._sent = {}
        pattern = self._subscription.broker_pattern
        fields: dict[str, Any] = {
            "rebalance_timeout_ms": self._poll_interval_ms,
            "subscribed_topic_names": sorted(self._subscription.topics),
            "subscribed_topic_regex": None if pattern is None else pattern.pattern,
            "server_assignor": self._assignor,
            "rack_id": self._rack,
            "topic_partitions": [
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(self.owned.items())
            ],
        }
        changed = {
            name: value
            for name, value in fields.items()
            if name not in self._sent or self._sent[name] != value
        }
        if "subscribed_topic_regex" in changed and pattern is None and not joins:
            changed["subscribed_topic_regex"] = ""  # no longer by a pattern
        self._sent = fields
        return ConsumerGroupHeartbeatRequest(
            group_id=self._link.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance_id,
            **changed,
        )

    def _accepted(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self._interval = response.heartbeat_interval_ms / 1000
        self._link.joined()
        if response.member_id:
            self.member_id = response.member_id
        if self.phase is MemberPhase.JOINING:
            logger.info(
                "joined group %s as %s, epoch %d", self._link.group_id, self.member_id, response.member_epoch
            )
            self.phase = MemberPhase.MEMBER
        self.epoch = response.member_epoch
        self.identity = ConsumerGroupMetadata(
            self._link.group_id, self.epoch, self.member_id, self._instance_id
        )
        if response.assignment is not None:
            self._metrics.rebalance_began()
            self.target = {
                each.topic_id: frozenset(each.partitions) for each in response.assignment.topic_partitions
            }

    def _refused(self, response: ConsumerGroupHeartbeatResponse) -> None:
        code = ErrorCode(response.error_code)
        self._link.note(code)
        logger.debug("heartbeat of group %s: %s %s", self._link.group_id, code.name, response.error_message)
        if code in _FENCED:
            logger.info("thrown out of group %s: %s", self._link.group_id, code.name)
            self._lose()
            return
        error = error_from(code, response.error_message, f"group {self._link.group_id!r}")
        self._link.join_failed(error)
        if error is None or is_retriable(error):
            return
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._failure = error  # the rights may come; heartbeats go on
        else:
            self._fail(_explained(error))

    def _lose(self) -> None:
        """What this member owned may be others' by now; the next poll joins again."""
        self.phase = MemberPhase.LOST
        self.epoch = _JOINING
        self._stop()
        self._task = None
        self._wake()

    def _fail(self, error: TidelogError) -> None:
        self._failure = error
        self._lose()


def _explained(error: TidelogError) -> TidelogError:
    if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
        return KafkaError(
            error.code,
            f"the cluster cannot serve this member with group.protocol=consumer ({error}): "
            "it needs Kafka 4.0 or later with group.version=1; use group.protocol=classic",
        )
    return error
