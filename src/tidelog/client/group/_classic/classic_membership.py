"""Membership in a classic group: the ConsumerCoordinator of Kafka's Java client, with tasks for waiting.

``ensure_active`` never waits for the network: what takes time (finding the coordinator, committing before
partitions are given up, JoinGroup and SyncGroup) runs in tasks that wake the poll when they end, so records
of partitions that a cooperative member keeps flow on during a rebalance. It does wait for listeners, and
for the commit of partitions that a cooperative rebalance takes away; Java commits those before it rejoins
only, and reads again what was consumed since.

A rebalance: commit (``enable.auto.commit``) → ``on_partitions_revoked`` (eager: all partitions;
cooperative: those no longer subscribed to; thrown out: ``on_partitions_lost``) → JoinGroup → the leader
assigns → SyncGroup → cooperative: revoke what was taken away, and rejoin → ``on_partitions_assigned``.

A member is thrown out by UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION, and throws itself out after
``max.poll.interval.ms`` without a poll; the next poll joins again. FENCED_INSTANCE_ID does not pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.client._network.retry import Deadline
from tidelog.client.errors import IllegalStateError
from tidelog.client.group._classic.classic_member import THROWN_OUT, ClassicMember
from tidelog.client.group._classic.consumer_protocol import decode_assignment, encode_subscription
from tidelog.client.group._classic.generation import Generation, MemberState
from tidelog.client.group._classic.leader import Leader
from tidelog.client.group._coordinator_link import CoordinatorLink
from tidelog.client.group._group_offsets import NOBODY, Committer, GroupOffsets, Offsets
from tidelog.client.group._handover import failure_of
from tidelog.client.group._member_offsets import MemberOffsets
from tidelog.client.group._metrics import GroupMetrics
from tidelog.client.group.assignor import Assignor, RebalanceProtocol, Subscription
from tidelog.client.group.assignors import common_protocol
from tidelog.client.group.errors import commit_during_rebalance, fenced, kicked_out, not_a_member
from tidelog.client.group.membership import ConsumerGroupMetadata, MembershipState, MembershipStatus
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.join_group import JoinGroupResponse

if TYPE_CHECKING:
    from tidelog.client._network.cluster import Cluster
    from tidelog.client.group._rebalance_callbacks import RebalanceCallbacks
    from tidelog.client.metadata import ClusterMetadata
    from tidelog.client.options import ClientConfig
    from tidelog.client.subscription._subscription_state import SubscriptionState
    from tidelog.client.subscription.offsets import OffsetAndMetadata

logger = logging.getLogger(__name__)


class ClassicMembership:
    """A consumer's place in a classic group."""

    def __init__(
        self,
        config: ClientConfig,
        assignors: Sequence[Assignor],
        cluster: Cluster,
        subscription: SubscriptionState,
        callbacks: RebalanceCallbacks,
    ) -> None:
        self._group_id = config.str("group.id")
        self._instance_id = config.optional_str("group.instance.id")
        self._assignors = assignors
        self._is_cooperative = common_protocol(assignors) is RebalanceProtocol.COOPERATIVE
        self._identity = ConsumerGroupMetadata(self._group_id, group_instance_id=self._instance_id)
        self._joined_topics: frozenset[str] | None = None
        self._needs_prepare = True
        self._joining: asyncio.Task[bytes] | None = None
        self._last_commit: asyncio.Task[None] | None = None
        self._wake: Callable[[], None] = lambda: None
        self._config = config
        self._subscription = subscription
        self._callbacks = callbacks
        self._link = CoordinatorLink(cluster, self._group_id)
        self._link.on_found = self._tell
        self._metrics = metrics = GroupMetrics(
            cluster.metrics, callbacks.times, lambda: len(subscription.assignment)
        )
        self._member = ClassicMember(config, self._link, self, metrics, self._tell)
        self._group_offsets = GroupOffsets(self._link, config, metrics)
        self._offsets = MemberOffsets(self._group_offsets, subscription, config, self._commit_once)
        self._auto_commit = self._offsets.auto
        self._handover = self._offsets.handover
        self._leader = Leader(
            cluster,
            subscription,
            by_racks=bool(config.str("client.rack")),
            auto_create=config.bool("allow.auto.create.topics"),
        )
        self._forget_updates = cluster.subscribe_updates(self._metadata_changed)

    def subscribe_wakeups(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def subscribe_commits(self, told: Callable[[Offsets], None]) -> None:
        self._offsets.subscribe(told)

    def poll(self, now: float) -> None:
        self._member.heartbeats.polled()
        self._auto_commit.poll(now)

    @property
    def needs_poll(self) -> bool:
        if not self._subscription.is_auto_assigned:
            return False
        return self._member.rejoin_needed or self._joining is not None or self._member.has_failed

    def group_metadata(self) -> ConsumerGroupMetadata:
        # After being thrown out this still names the old generation: so a transaction's offsets are refused.
        return self._identity

    def status(self) -> MembershipStatus:
        member = self._member
        generation, state = member.generation, member.state
        if member.is_fenced:
            shown = MembershipState.FENCED
        elif state is MemberState.UNJOINED:
            shown = MembershipState.UNJOINED
        elif state is MemberState.STABLE and self._joining is None:
            shown = MembershipState.STABLE
        else:
            shown = MembershipState.REBALANCING
        return MembershipStatus(
            shown,
            self._group_id,
            generation.member_id or None,
            None if generation.is_lost else generation.generation_id,
            self._metrics.committed_at,
        )

    # Rebalances

    async def ensure_active(self, deadline: Deadline) -> bool:
        if self._subscription.broker_pattern is not None:
            raise IllegalStateError(
                "only group.protocol=consumer has the broker match patterns: set it, or give a Python pattern"
            )
        if self._member.is_fenced and (owned := self._subscription.assignment):
            await self._handover.give_up(owned, self._callbacks.lost)
        self._member.raise_failure()
        self._member.heartbeats.polled()
        self._look_for_changes()
        while self._member.rejoin_needed or self._joining is not None:
            if not await self._advance():
                await asyncio.sleep(0)  # a poll that does not wait must not starve the tasks behind this
                return False
            self._look_for_changes()
        return True

    async def _advance(self) -> bool:
        """Go one step on towards an assignment; whether there is a next one now."""
        if self._joining is None:
            if not self._link.is_ready():
                return False
            if self._needs_prepare and not await self._prepare_join():
                return False
            loop = asyncio.get_running_loop()
            self._joining = loop.create_task(self._member.join(), name=f"join {self._group_id}")
            self._joining.add_done_callback(lambda _: self._tell())
        if not self._joining.done():
            return False
        joining, self._joining = self._joining, None
        try:
            data = joining.result()
        except KafkaError as error:
            self._member.request_rejoin(f"rebalance failed due to {error.code.name}")
            if error.code not in THROWN_OUT:
                raise
            self._needs_prepare = True
        else:
            self._needs_prepare = True
            if self._member.state is MemberState.STABLE:  # else it was thrown out since
                try:
                    await self._complete_join(data)
                except asyncio.CancelledError:
                    # The poll was given up, not the rebalance: the next poll does the rest, as in Java.
                    self._joining = joining
                    raise
        return True

    async def _prepare_join(self) -> bool:
        """Give up what must be given up before joining; False while a commit is under way."""
        if not self._committed_before_join():
            return False
        self._needs_prepare = False
        self._leader.pause()
        owned = self._subscription.assignment
        if self._member.generation.is_lost:
            if owned:
                await self._handover.give_up(owned, self._callbacks.lost)
        elif not self._is_cooperative:
            await self._handover.give_up(owned, self._callbacks.revoked)
        else:
            gone = {partition for partition in owned if partition.topic not in self._subscription.topics}
            if gone:
                await self._handover.give_up(gone, self._callbacks.revoked)
        return True

    def _committed_before_join(self) -> bool:
        """Whether there is nothing (more) to commit; starts the commit that is needed."""
        if self._last_commit is None:
            if not self._auto_commit.enabled or self._member.generation.is_lost:
                return True
            if not self._is_cooperative:
                # What is consumed after the commit would be consumed again by the next owner.
                self._subscription.mark_pending_revocation(self._subscription.assignment)
            consumed = self._subscription.all_consumed()
            if not consumed:
                return True
            deadline = Deadline(self._config.int("max.poll.interval.ms"))
            self._last_commit = asyncio.get_running_loop().create_task(
                self._handover.commit_or_warn(consumed, deadline), name="commit before rejoining"
            )
            self._last_commit.add_done_callback(lambda _: self._tell())
        if not self._last_commit.done():
            return False
        self._last_commit = None
        return True

    async def _complete_join(self, data: bytes) -> None:
        """SyncGroup has brought an assignment: take it, and tell the listener."""
        generation = self._member.generation
        self._identity = ConsumerGroupMetadata(
            self._group_id, generation.generation_id, generation.member_id, self._instance_id
        )
        if not self._member.is_leader:
            self._leader.resign()
        assignor = self._assignor(generation.protocol)
        assignment = decode_assignment(data)
        owned, assigned = self._subscription.assignment, frozenset(assignment.partitions)
        if not self._subscription.accepts(assigned):
            self._member.request_rejoin("received assignment does not match the current subscription")
            return
        failure: Exception | None = None
        if self._is_cooperative and (taken := owned - assigned):
            failure = await self._revoke(taken)
            self._member.request_rejoin("need to revoke partitions and re-join")
        self._adopt_matching_topics(assigned)
        try:
            assignor.on_assignment(assignment, self._identity)
        except Exception as error:
            failure = failure or error
        self._auto_commit.reset(asyncio.get_running_loop().time() * 1000)
        self._subscription.assign_from_group(sorted(assigned))
        self._subscription.note_assigned()
        later = await failure_of(self._callbacks.assigned(sorted(assigned - owned)))
        failure = failure or later
        if failure is not None:
            raise failure

    async def _revoke(self, taken: Collection[TopicPartition]) -> Exception | None:
        """Commit and revoke what a cooperative rebalance has taken away; the listener's error, if any."""
        self._subscription.mark_pending_revocation(taken)
        if self._auto_commit.enabled:
            deadline = Deadline(self._config.int("request.timeout.ms"))
            await self._auto_commit.finish(deadline)
            await self._handover.commit_or_warn(self._handover.consumed(taken), deadline)
        return await failure_of(self._callbacks.revoked(sorted(taken)))

    def _look_for_changes(self) -> None:
        """Rejoin where the subscription, or a topic behind the leader's assignment, is not what it was."""
        if self._member.rejoin_needed or self._joining is not None:
            return
        if self._leader.has_changed():
            self._member.request_rejoin("cached metadata has changed")
        elif self._joined_topics is not None and self._joined_topics != self._subscription.topics:
            self._member.request_rejoin("subscription has changed")

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        # The subscription's pattern is matched by another listener of the same update.
        asyncio.get_running_loop().call_soon(self._look_for_changes)

    def _adopt_matching_topics(self, assigned: Collection[TopicPartition]) -> None:
        """The leader may know topics that match this member's pattern and that this one has not seen yet."""
        new = {partition.topic for partition in assigned} - (self._joined_topics or frozenset())
        if self._subscription.pattern is not None and new:
            self._subscription.match_topics(self._subscription.topics | new)
            self._joined_topics = (self._joined_topics or frozenset()) | new

    def _assignor(self, name: str | None) -> Assignor:
        for assignor in self._assignors:
            if assignor.name == name:
                return assignor
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the coordinator has chosen assignor {name}, which this consumer did not offer",
        )

    # What the member brings to a rebalance

    def subscriptions(self) -> Mapping[str, bytes]:
        topics = self._joined_topics = self._subscription.topics
        generation = self._member.generation.generation_id
        return {
            assignor.name: encode_subscription(
                Subscription(
                    tuple(topics),
                    assignor.subscription_user_data(topics),
                    tuple(sorted(self._subscription.assignment)),
                    generation,
                    self._config.str("client.rack") or None,
                )
            )
            for assignor in self._assignors
        }

    async def lead(self, response: JoinGroupResponse) -> Mapping[str, bytes]:
        protocol = RebalanceProtocol.COOPERATIVE if self._is_cooperative else RebalanceProtocol.EAGER
        return await self._leader.assign(
            self._assignor(response.protocol_name),
            protocol,
            response.members,
            Deadline(self._config.int("default.api.timeout.ms")),
            skip=response.skip_assignment,
        )

    # Offsets

    async def commit(self, offsets: Offsets, deadline: Deadline) -> None:
        await self._offsets.commit(offsets, deadline)

    async def fetch_committed(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._offsets.fetch(partitions, deadline)

    async def _commit_once(self, offsets: Offsets, deadline: Deadline) -> None:
        sent = self._member.generation
        committer = self._committer(sent)
        try:
            await self._group_offsets.commit(committer, offsets, deadline)
        except KafkaError as error:
            raise self._refused(error, sent) from error

    def _committer(self, generation: Generation) -> Committer:
        if not self._subscription.is_auto_assigned:
            return NOBODY
        state = self._member.state
        if state is MemberState.STABLE:
            return Committer(generation.generation_id, generation.member_id, self._instance_id)
        raise commit_during_rebalance(self._group_id) if state.is_rebalancing else kicked_out(self._group_id)

    def _refused(self, error: KafkaError, sent: Generation) -> TidelogError:
        """What the refusal of a commit means for the membership, and for the application."""
        code, member = error.code, self._member
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            member.request_rejoin("offset commit failed since group is already rebalancing")
            return commit_during_rebalance(self._group_id)
        is_fenced = code is ErrorCode.FENCED_INSTANCE_ID
        if code not in THROWN_OUT and not is_fenced:
            return error
        if not self._subscription.is_auto_assigned:
            return not_a_member(self._group_id)
        if member.generation != sent and member.state is MemberState.PREPARING_REBALANCE:
            return commit_during_rebalance(self._group_id)
        if is_fenced and member.generation == sent:
            return fenced(self._group_id, self._instance_id)
        if not is_fenced:
            member.reset(
                f"{code.name} from OffsetCommit", keep_member_id=code is ErrorCode.ILLEGAL_GENERATION
            )
            self._needs_prepare = True
        return kicked_out(self._group_id)

    # Ending

    async def leave(self, deadline: Deadline) -> None:
        await self._auto_commit.finish(deadline)
        if self._auto_commit.enabled:
            await self._handover.commit_or_warn(self._subscription.all_consumed(), deadline)
        await self._stop_joining()
        owned = self._subscription.assignment
        member = self._member
        try:
            if owned:
                lost = member.generation.is_lost or member.state.is_rebalancing
                await self._handover.give_up(owned, self._callbacks.lost if lost else self._callbacks.revoked)
        finally:
            self._needs_prepare = True
            self._joined_topics = None
            self._leader.resign()
            await member.leave("the consumer unsubscribed or is being closed", deadline)

    async def close(self) -> None:
        self._forget_updates()
        self._member.heartbeats.stop()
        await self._stop_joining()
        await self._auto_commit.close()
        await self._link.close()

    async def _stop_joining(self) -> None:
        tasks = [task for task in (self._joining, self._last_commit) if task is not None]
        self._joining = self._last_commit = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tell(self) -> None:
        self._wake()
