"""Membership in a consumer group (``group.protocol=consumer``, KIP-848): the broker assigns.

Heartbeats (``consumer_member``) bring the assignment that the broker wants. ``ensure_active`` carries it
out: commit what is consumed of partitions that go (``enable.auto.commit``) → ``on_partitions_revoked`` →
``on_partitions_assigned`` → acknowledge. The broker gives a partition to its next owner only after the one
before has acknowledged its loss, so nobody stops for the others' sake. As in ``classic_membership`` nothing
here waits for the network but in tasks that wake the poll.

A member that the broker has forgotten or fenced, and one that has not polled for ``max.poll.interval.ms``,
has lost its partitions: ``on_partitions_lost``, then it joins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any

from tidelog.client._network.retry import Deadline
from tidelog.client.group._consumer.consumer_member import ConsumerMember, HeartbeatAssignment, MemberPhase
from tidelog.client.group._consumer.topic_names import TopicNames
from tidelog.client.group._coordinator_link import CoordinatorLink
from tidelog.client.group._group_offsets import NOBODY, Committer, GroupOffsets, Offsets
from tidelog.client.group._handover import failure_of
from tidelog.client.group._member_offsets import MemberOffsets
from tidelog.client.group._metrics import GroupMetrics
from tidelog.client.group.errors import kicked_out, not_a_member
from tidelog.client.group.membership import ConsumerGroupMetadata, MembershipState, MembershipStatus
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client._network.cluster import Cluster
    from tidelog.client.group._rebalance_callbacks import RebalanceCallbacks
    from tidelog.client.options import ClientConfig
    from tidelog.client.subscription._subscription_state import SubscriptionState
    from tidelog.client.subscription.offsets import OffsetAndMetadata

logger = logging.getLogger(__name__)

_GONE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class ConsumerMembership:
    """A consumer's place in a consumer group."""

    def __init__(
        self,
        config: ClientConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        callbacks: RebalanceCallbacks,
    ) -> None:
        self._group_id = config.str("group.id")
        self._instance_id = config.optional_str("group.instance.id")
        self._subscription_id = -1
        self._acknowledged: HeartbeatAssignment | None = None
        """The target that was acknowledged last."""
        self._carried_out: HeartbeatAssignment | None = None
        """That part of it whose topics had names; the rest follows when they have."""
        self._last_commit: asyncio.Task[None] | None = None
        self._wake: Callable[[], None] = lambda: None
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._callbacks = callbacks
        self._link = CoordinatorLink(cluster, self._group_id)
        self._link.on_found = self._tell
        self._metrics = GroupMetrics(cluster.metrics, callbacks.times, lambda: len(subscription.assignment))
        self._member = ConsumerMember(config, self._link, subscription, self._metrics, self._tell)
        self._names = TopicNames(cluster, config.int("retry.backoff.max.ms"), self._tell)
        self._group_offsets = GroupOffsets(self._link, config, self._metrics)
        self._offsets = MemberOffsets(self._group_offsets, subscription, config, self._commit_once)
        self._auto_commit = self._offsets.auto
        self._handover = self._offsets.handover

    def subscribe_wakeups(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def subscribe_commits(self, told: Callable[[Offsets], None]) -> None:
        self._offsets.subscribe(told)

    def poll(self, now: float) -> None:
        self._member.polled()
        self._auto_commit.poll(now)

    @property
    def needs_poll(self) -> bool:
        if not self._subscription.is_auto_assigned:
            return False
        member = self._member
        return member.has_failed or not member.is_member or not self._is_carried_out

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._member.identity

    def status(self) -> MembershipStatus:
        member = self._member
        is_member = member.is_member
        if member.phase in (MemberPhase.LEFT, MemberPhase.LOST):
            state = MembershipState.UNJOINED
        elif is_member and self._is_carried_out:
            state = MembershipState.STABLE
        else:
            state = MembershipState.REBALANCING
        return MembershipStatus(
            state,
            self._group_id,
            member.member_id,
            member.epoch if is_member else None,
            self._metrics.committed_at,
        )

    # Reconciliation

    async def ensure_active(self, deadline: Deadline) -> bool:
        member = self._member
        member.polled()
        if member.phase is MemberPhase.LOST:
            await self._lose_all()
        member.raise_failure()
        if member.phase in (MemberPhase.LEFT, MemberPhase.LOST):
            if not self._link.is_ready():
                return await self._not_yet()
            self._subscription_id = self._subscription.subscription_id
            member.join()
        elif self._subscription_id != self._subscription.subscription_id:
            self._subscription_id = self._subscription.subscription_id
            member.subscription_changed()
        if member.target is None or (not self._is_carried_out and not await self._reconcile()):
            return await self._not_yet()
        return True

    @property
    def _is_carried_out(self) -> bool:
        return self._member.target == self._acknowledged == self._carried_out

    @staticmethod
    async def _not_yet() -> bool:
        await asyncio.sleep(0)  # a poll that does not wait must not starve the tasks behind this
        return False

    async def _reconcile(self) -> bool:
        """Carry the broker's assignment out; False while something has to be waited for."""
        member = self._member
        target = member.target
        assert target is not None
        if not self._names.resolve(target):
            return False
        named = self._names.resolved(target)
        if (target, named) == (self._acknowledged, self._carried_out):
            return True
        wanted = self._names.partitions(target)
        owned = self._subscription.assignment
        taken = owned - wanted
        if taken and not self._committed(taken):
            return False
        failure: Exception | None = None
        if taken:
            failure = await failure_of(self._callbacks.revoked(sorted(taken)))
        self._subscription.assign_from_group(sorted(wanted))
        self._subscription.note_assigned()
        self._cluster.updates.retain_topics(self._subscription.metadata_topics)
        self._auto_commit.reset(asyncio.get_running_loop().time() * 1000)
        later = await failure_of(self._callbacks.assigned(sorted(wanted - owned)))
        failure = failure or later
        if member.is_member:
            self._acknowledged, self._carried_out = target, named
            self._metrics.rebalance_ended()
            member.acknowledge(named)
        if failure is not None:
            raise failure
        return member.is_member and member.target == target

    def _committed(self, taken: Collection[TopicPartition]) -> bool:
        """Whether what was consumed of ``taken`` is committed, or need not be; starts the commit."""
        self._subscription.mark_pending_revocation(taken)
        if self._last_commit is None:
            consumed = self._handover.consumed(taken)
            if not self._auto_commit.enabled or not consumed or not self._member.is_member:
                return True
            self._last_commit = self._spawn(self._commit_last(consumed), "commit before revocation")
        if not self._last_commit.done():
            return False
        self._last_commit = None
        return True

    async def _commit_last(self, offsets: Offsets) -> None:
        deadline = Deadline(self._config.int("max.poll.interval.ms"))
        await self._auto_commit.finish(deadline)
        await self._handover.commit_or_warn(offsets, deadline)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(lambda _: self._tell())
        return task

    async def _lose_all(self) -> None:
        self._carried_out = None
        await self._cancel_commit()
        owned = self._subscription.assignment
        if owned:
            await self._handover.give_up(owned, self._callbacks.lost)

    # Offsets

    async def commit(self, offsets: Offsets, deadline: Deadline) -> None:
        await self._offsets.commit(offsets, deadline)

    async def fetch_committed(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._offsets.fetch(partitions, deadline)

    async def _commit_once(self, offsets: Offsets, deadline: Deadline) -> None:
        try:
            await self._group_offsets.commit(self._committer(), offsets, deadline)
        except KafkaError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                self._member.subscription_changed()  # a heartbeat brings the new epoch
            raise self._refused(error) from error

    def _committer(self) -> Committer:
        if not self._subscription.is_auto_assigned:
            return NOBODY
        if not self._member.is_member:
            raise kicked_out(self._group_id)
        return Committer(self._member.epoch, self._member.member_id, self._instance_id)

    def _refused(self, error: KafkaError) -> TidelogError:
        if error.code not in _GONE and error.code is not ErrorCode.ILLEGAL_GENERATION:
            return error
        if not self._subscription.is_auto_assigned:
            return not_a_member(self._group_id)
        return kicked_out(self._group_id)

    # Ending

    async def leave(self, deadline: Deadline) -> None:
        await self._auto_commit.finish(deadline)
        await self._cancel_commit()
        member = self._member
        owned = self._subscription.assignment
        if self._auto_commit.enabled and member.is_member:
            await self._handover.commit_or_warn(self._subscription.all_consumed(), deadline)
        try:
            if owned:
                tell = self._callbacks.revoked if member.is_member else self._callbacks.lost
                await self._handover.give_up(owned, tell)
        finally:
            self._carried_out = None
            await member.leave(deadline)

    async def close(self) -> None:
        await self._member.close()
        await self._cancel_commit()
        await self._names.close()
        await self._auto_commit.close()
        await self._link.close()

    async def _cancel_commit(self) -> None:
        task, self._last_commit = self._last_commit, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _tell(self) -> None:
        self._wake()
