"""The inside of ``AsyncConsumer``: its parts, the way of a poll, and what iteration has not handed out yet.

The way of a poll: callbacks of commits → the group (join, rebalance, listeners) → positions (committed
offsets, resets, validation) → what is buffered; if that is nothing, wait for news until the deadline.
Fetching goes on between polls, up to the bounds of the fetch buffer.

``_poll_buffered`` is the short way for ``Consumer``: it runs in the application's thread, takes what is
buffered and leaves everything else to the next poll on the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Never, TypeVar

from tidelog.client.cluster import Cluster
from tidelog.client.consumer.commits import Commits
from tidelog.client.consumer.delivered_records import DeliveredRecords
from tidelog.client.consumer.errors import ConsumerTimeoutError, IllegalStateError, WakeupError
from tidelog.client.consumer.fetch_config import fetch_config
from tidelog.client.consumer.fetcher import Fetcher
from tidelog.client.consumer.interceptors import ConsumerInterceptors
from tidelog.client.consumer.listener import RebalanceCallbacks, Runner, run_here
from tidelog.client.consumer.metrics import consumer_metrics
from tidelog.client.consumer.ongoing_errors import OngoingErrors
from tidelog.client.consumer.positions import Positions
from tidelog.client.consumer.reset_strategy import parse_reset_strategy
from tidelog.client.consumer.subscription_state import SubscriptionState, SubscriptionType
from tidelog.client.consumer.wake_flag import WakeFlag
from tidelog.client.errors import ClientClosedError
from tidelog.client.group.membership import GroupMembership, NoGroup, membership_for
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.options import CONSUMER, ClientConfig
from tidelog.client.options.network import network_settings
from tidelog.client.retry import Deadline
from tidelog.ids import TopicPartition
from tidelog.records.column_codec import RecordColumns
from tidelog.records.record_codec import ConsumerRecord

PartitionCollection = Collection[TopicPartition]
_POLL_ON_LOOP_S = 0.1
_FOR_EVER_MS = 1000.0 * 3600 * 24 * 365

T = TypeVar("T")


class Polling:
    """A consumer without its public methods."""

    def __init__(
        self, options: Mapping[str, object] | None = None, /, *topics: Never, **keywords: object
    ) -> None:
        self.config = ClientConfig.parse(CONSUMER, options, *topics, **keywords)
        self._fetch_config = fetch_config(self.config)
        self._subscription = SubscriptionState(parse_reset_strategy(self.config.str("auto.offset.reset")))
        self._membership: GroupMembership = membership_for(self.config)
        self._interceptors = ConsumerInterceptors(self.config.list("interceptor.classes"))
        self._run_callback: Runner = run_here
        self._delivered = DeliveredRecords()
        self._started = False
        self._closed = False
        self._leaving = False
        self._polling = False
        self._wakeup = False
        self._all_settled = False
        self._polled_at = 0.0

    @property
    def cluster(self) -> Cluster:
        """The network side, once started."""
        return self._cluster

    async def start(self) -> None:
        """Begin to talk to the cluster; ``poll`` and ``async with`` do it by themselves."""
        if self._closed:
            raise ClientClosedError("the consumer is closed")
        if self._started:
            return
        self._started = True
        self._loop = asyncio.get_running_loop()
        self._wake_flag = WakeFlag(self._loop)
        self._cluster = Cluster(self.config.list("bootstrap.servers"), network_settings(self.config))
        subscription, wake = self._subscription, self._wake_flag.tell
        self._ongoing_errors = OngoingErrors()
        self._fetcher = Fetcher(self._cluster, subscription, self._fetch_config, wake, self._ongoing_errors)
        isolation = self._fetch_config.isolation_level
        consumer_metrics(self._cluster.metrics, self._fetcher, subscription, isolation)
        has_group = not isinstance(self._membership, NoGroup)
        committed = self._membership.fetch_committed if has_group else None
        self._positions = Positions(
            self._cluster, subscription, self._fetch_config, committed, wake, self._ongoing_errors
        )
        self._commits = Commits(self._membership, subscription, self._interceptors, self._call_back, wake)
        self._membership.start(
            subscription, self._cluster, self.config, RebalanceCallbacks(subscription, self._call_back)
        )
        self._membership.subscribe_wakeups(wake)
        self._membership.subscribe_commits(self._interceptors.on_commit)
        subscription.on_position_change = self._positions_changed
        self._cluster.subscribe_updates(self._metadata_changed)
        await self._cluster.start()
        self._subscription_changed()

    async def close(self, timeout: float = 30.0) -> None:
        """Commit if that is automatic, leave the group, close all connections; within ``timeout`` seconds."""
        if self._closed:
            return
        self._closed = True
        self._settle()
        if not self._started:
            return
        deadline = Deadline(timeout * 1000)
        self._wake_flag.tell()
        try:
            await self._commits.flush(deadline)
            if self._subscription.is_auto_assigned:
                self._leaving = True
                await self._membership.leave(deadline)
            else:
                await self._commits.close(deadline, self.config.bool("enable.auto.commit"))
        finally:
            self._leaving = False
            await self._membership.close()
            await self._positions.close()
            await self._fetcher.close(deadline.remaining)
            await self._cluster.close()
            self._interceptors.close()

    async def _poll_records(self, timeout: float | None, max_records: int | None) -> list[ConsumerRecord]:
        limit = max_records or self._fetch_config.max_poll_records
        records = await self._poll(timeout, lambda: self._fetcher.collect(limit))
        return self._interceptors.on_consume(records) if records and self._interceptors else records

    async def _poll(self, timeout: float | None, collect: Callable[[], list[T]]) -> list[T]:
        """What ``collect`` finds, once it finds something; None waits for as long as that takes."""
        if not self._started or self._closed:
            await self.start()
        if self._polling:
            raise IllegalStateError("another task polls this consumer already: one consumer, one poller")
        if self._subscription.type is SubscriptionType.NONE:
            raise IllegalStateError(
                "the consumer reads nothing: subscribe to topics or assign partitions first"
            )
        self._polling = True
        try:
            deadline = Deadline(_FOR_EVER_MS if timeout is None else timeout * 1000)
            while True:
                self._wake_flag.clear()
                await self._prepare(deadline)
                found = collect()
                if found or deadline.expired or self._closed:
                    return found
                await self._wake_flag.wait(deadline.remaining)
        finally:
            self._polling = False

    def _needs_loop_in(self) -> float:
        """For ``Consumer``, in the application's thread: how long nothing but taking records is to be done.

        A poll on the loop comes first, and again every tenth of a second: the group has its share in it.
        """
        if (
            not self._started
            or self._closed
            or self._polling
            or self._wakeup
            or not self._all_settled
            or self._membership.needs_poll
            or self._commits.has_callbacks
        ):
            return 0.0
        return self._polled_at + _POLL_ON_LOOP_S - time.monotonic()

    def _poll_buffered(self, max_records: int | None) -> list[ConsumerRecord]:
        """For ``Consumer``, in the application's thread: what is buffered, if nothing else is to be done."""
        if self._needs_loop_in() <= 0:
            return []
        limit = max_records or self._fetch_config.max_poll_records
        records = self._fetcher.collect_buffered(limit)
        return self._interceptors.on_consume(records) if records and self._interceptors else records

    def _poll_columns_buffered(self, *, with_headers: bool) -> list[tuple[TopicPartition, RecordColumns]]:
        """As :meth:`_poll_buffered`, all that is buffered, column by column."""
        if self._needs_loop_in() <= 0 or len(self._delivered):
            return []
        self._subscription.held_back = {}
        return self._fetcher.collect_columns_buffered(with_headers=with_headers)

    async def _prepare(self, deadline: Deadline) -> None:
        """What has to be done before records can be handed out: callbacks, the group, positions."""
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("poll was woken up")
        if self._commits.has_callbacks:
            await self._commits.run_callbacks()
        subscription = self._subscription
        if subscription.is_auto_assigned:
            if subscription.pattern is not None and not self._cluster.updates.version:
                await self._first_metadata(deadline)
            await self._membership.ensure_active(deadline)
        self._membership.poll(self._loop.time() * 1000)
        self._polled_at = time.monotonic()
        if not self._all_settled:
            self._update_positions()

    def _update_positions(self) -> None:
        self._positions.update()
        error = self._positions.take_error()
        if error is not None:
            raise error
        self._all_settled = self._subscription.has_all_positions

    async def _first_metadata(self, deadline: Deadline) -> None:
        """A pattern needs the names of all topics before the group can be joined."""
        if not deadline.expired:
            await self._cluster.wait_for_update(0, deadline, "all topics")

    async def _wait_for_position(self, partition: TopicPartition, deadline: Deadline) -> None:
        self._wake_flag.clear()
        self._update_positions()
        state = self._subscription.state(partition)
        if state.has_valid_position:
            return
        if deadline.expired:
            raise ConsumerTimeoutError(
                f"the position of {partition} was not found within {deadline.timeout_ms / 1000:g} s: "
                f"it is {state.fetch_state.value}; {self._reason()}"
            )
        await self._wake_flag.wait(deadline.remaining)

    def _reason(self) -> str:
        error = self._cluster.updates.last_error or self._ongoing_errors.reason
        return "no broker has answered for it" if error is None else str(error)

    def _positions_changed(self) -> None:
        self._all_settled = False
        self._fetcher.positions_changed()
        self._wake_flag.tell()

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        self._all_settled = False
        if self._subscription.pattern is not None:
            hidden = self.config.bool("exclude.internal.topics")
            names = [name for name, topic in metadata.topics.items() if not (hidden and topic.is_internal)]
            self._subscription.match_topics(names)

    def _subscription_changed(self) -> None:
        if not self._started:
            return
        self._all_settled = False
        self._cluster.updates.use_all_topics(self._subscription.type is SubscriptionType.PATTERN)
        self._cluster.updates.retain_topics(self._subscription.metadata_topics)
        if self._subscription.pattern is not None and self._cluster.updates.version:
            self._metadata_changed(self._cluster.metadata)
        self._positions_changed()

    async def _call_back(self, call: Callable[[], object]) -> None:
        await self._run_callback(call)

    # Iteration

    def _begin_delivery(self, records: list[ConsumerRecord]) -> Iterable[ConsumerRecord]:
        before = self._fetcher.collector.collected
        self._subscription.held_back = dict(before)
        return self._delivered.start(records, before)

    def _settle(self) -> None:
        """Iteration may have got further since: make the positions say how far."""
        if self._subscription.held_back:
            self._subscription.held_back = self._delivered.positions()

    def _take_rest(self) -> list[ConsumerRecord]:
        """What an iteration has left behind; also ends it."""
        self._subscription.held_back = {}
        return self._delivered.take_rest() if len(self._delivered) else []

    def _put_back(self, partitions: PartitionCollection | None = None) -> None:
        """Records that iteration has not handed out yet will be fetched again."""
        self._settle()
        for partition, position in self._delivered.positions().items():
            if partitions is None or partition in partitions:
                self._subscription.seek(partition, position)
                self._delivered.drop_partitions([partition])

    async def _begin(self, timeout: float | None) -> Deadline:
        self._require_open()
        if not self._started:
            await self.start()
        return self._deadline(timeout)

    def _deadline(self, timeout: float | None) -> Deadline:
        api_timeout_ms = self.config.int("default.api.timeout.ms")
        return Deadline(api_timeout_ms if timeout is None else timeout * 1000)

    def _require_open(self) -> None:
        if self._closed and not self._leaving:  # listeners that run while the group is left may still commit
            raise ClientClosedError("the consumer is closed")
