"""``AsyncConsumer``: reads records on an asyncio loop. ``Consumer`` is the same for programs without one.

The way of a poll: callbacks of commits → the group (join, rebalance, listeners) → positions (committed
offsets, resets, validation) → what is buffered; if that is nothing, wait for news until the deadline.
Fetching goes on between polls, up to the bounds of the fetch buffer. ``poll_port`` is the short way for
``Consumer``: it runs in the application's thread, takes what is buffered and leaves everything else to the
next poll on the loop.

The methods of ``Consumer`` are generated from those of ``AsyncConsumer``, but for the few that are written by
hand there: after a change here run ``make format``.

One task polls at a time. The other methods may be called from any task of the loop, also from a listener
that runs inside a poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, Self, TypeVar

from tidelog.client._foreign_methods import (
    ASYNC_CONSUMER,
    COMMIT_KEYWORDS,
    SUBSCRIBE_KEYWORDS,
    check_poll,
    foreign_methods,
    refuse_keywords,
)
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.from_options import network_settings
from tidelog.client._network.ongoing_errors import PATIENCE_S
from tidelog.client._network.retry import Deadline, check_loop, check_seconds, running_loop
from tidelog.client._offsets import list_offsets
from tidelog.client._telemetry.observers import Observers
from tidelog.client._type_variables import K_co, V_co
from tidelog.client.consumer._commits import CommitCallback, Commits, OffsetsToCommit
from tidelog.client.consumer._delivered_records import DeliveredRecords
from tidelog.client.consumer._fetch.fetch_config import fetch_config
from tidelog.client.consumer._fetch.fetcher import Fetcher
from tidelog.client.consumer._metrics import ConsumerTimes, consumer_metrics
from tidelog.client.consumer._poll_port import PollPort
from tidelog.client.consumer._positions import Positions
from tidelog.client.consumer._quiet_time import QuietTime
from tidelog.client.consumer._wake_flag import WakeFlag
from tidelog.client.consumer.errors import ConsumerTimeoutError, WakeupError
from tidelog.client.consumer.health import ConsumerActivity, ConsumerHealth, consumer_health
from tidelog.client.consumer.interceptors import ConsumerInterceptors
from tidelog.client.errors import ClientClosedError, IllegalStateError, RequestTimeoutError
from tidelog.client.group._handover import failure_of
from tidelog.client.group._membership_choice import membership_for
from tidelog.client.group._rebalance_callbacks import RebalanceCallbacks
from tidelog.client.group.membership import ConsumerGroupMetadata
from tidelog.client.metadata import ClusterMetadata, PartitionMetadata, check_place, check_topic_name
from tidelog.client.metrics import Figures
from tidelog.client.options import CONSUMER, ClientConfig
from tidelog.client.resources import OffsetResult, OffsetSpec
from tidelog.client.subscription._partition_state import FetchPosition
from tidelog.client.subscription._reset_strategy import EARLIEST, LATEST, parse_reset_strategy
from tidelog.client.subscription._subscription_state import (
    SubscriptionPattern,
    SubscriptionState,
    SubscriptionType,
)
from tidelog.client.subscription.listener import RebalanceListener, Runner, check_listener, run_here
from tidelog.client.subscription.offsets import (
    OffsetAndMetadata,
    checked_partition,
    checked_partitions,
    checked_times,
)
from tidelog.ids import TopicPartition, Uuid
from tidelog.records.column_codec import RecordColumns
from tidelog.records.compiled import report_interpreted
from tidelog.records.record_codec import COMPILED, ConsumerRecord

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.client.consumer.option_types import ConsumerOptions

PartitionCollection = Collection[TopicPartition] | TopicPartition
_NO_OFFSET = -1
_POLL_ON_LOOP_S = 0.1

T = TypeVar("T")


class _Work(NamedTuple):
    """What a consumer works with from its start on."""

    loop: asyncio.AbstractEventLoop
    cluster: Cluster
    fetcher: Fetcher
    positions: Positions
    commits: Commits


class AsyncConsumer(Generic[K_co, V_co]):
    """Reads records on an asyncio loop; topics are given to ``subscribe`` or ``assign``.

    Type checkers infer ``K`` and ``V``, the types of keys and values, from the deserializers; without one
    they are bytes. One task polls at a time; other tasks of the loop may call the other methods. Times are in
    seconds.

    Args:
        options: Options by Kafka's names, or by those of the keyword arguments; keywords win.
        keywords: Options with underscores: ``ConsumerOptions`` has all of them.

    Raises:
        ConfigError: An option is unknown or has a value that it cannot have.

    Example:
        async with AsyncConsumer(bootstrap_servers="127.0.0.1:9092", group_id="kitchen") as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                print(record.value)
    """

    if not TYPE_CHECKING:
        __getattr__ = foreign_methods(ASYNC_CONSUMER)

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        /,
        *topics: Never,
        **keywords: Unpack[ConsumerOptions[K_co, V_co]],
    ) -> None:
        self.config = ClientConfig.parse(CONSUMER, options, *topics, **keywords)
        report_interpreted(COMPILED)
        self._fetch_config = fetch_config(self.config)
        self._subscription = SubscriptionState(parse_reset_strategy(self.config.str("auto.offset.reset")))
        self._has_group = self.config.optional_str("group.id") is not None
        choice = membership_for(self.config)
        self._membership = choice.before_start
        self._start_membership = choice.start
        self._interceptors = ConsumerInterceptors(self.config.list("interceptor.classes"))
        self._observers = Observers(
            self.config,
            (
                *self._interceptors.chain,
                self._fetch_config.key_deserializer,
                self._fetch_config.value_deserializer,
            ),
            self._member_id,
        )
        self._run_callback: Runner = run_here
        self._delivered = DeliveredRecords()
        self._wake_flag = WakeFlag()
        self._started_work: _Work | None = None
        self._closed = False
        self._leaving = False
        self._polling = False
        self._wakeup = False
        self._all_settled = False
        self._polled_at = 0.0
        self._process: int | None = None
        self._times = ConsumerTimes()

    @property
    def _work(self) -> _Work:
        if self._started_work is None:
            raise IllegalStateError("the consumer has not started: call start() first")
        return self._started_work

    @property
    def _has_started(self) -> bool:
        return self._started_work is not None

    @property
    def cluster(self) -> Cluster:
        """The connections to the cluster, once started."""
        return self._work.cluster

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to talk to the cluster; ``poll`` and ``async with`` do it by themselves.

        Raises:
            ClientClosedError: The consumer is closed.

        Example:
            await consumer.start()
        """
        if self._closed:
            raise ClientClosedError("the consumer is closed")
        if self._has_started:
            return
        loop = running_loop("an AsyncConsumer")
        cluster = Cluster(self.config.list("bootstrap.servers"), network_settings(self.config))
        subscription, wake = self._subscription, self._wake_flag.tell
        cluster.updates.on_refused = wake
        fetcher = Fetcher(cluster, subscription, self._fetch_config, wake, cluster.ongoing_errors)
        consumer_metrics(
            cluster.metrics,
            fetcher.stats,
            self._times,
            subscription,
            read_committed=self._fetch_config.read_committed,
            buffered_bytes=lambda: fetcher.buffer.size_bytes,
        )
        self._membership = self._start_membership(
            cluster, subscription, RebalanceCallbacks(subscription, self._call_back)
        )
        committed = self._membership.fetch_committed if self._has_group else None
        self._started_work = _Work(
            loop,
            cluster,
            fetcher,
            Positions(cluster, subscription, self._fetch_config, committed, wake, cluster.ongoing_errors),
            Commits(self._membership, subscription, self._interceptors, self._call_back, wake),
        )
        self._membership.subscribe_wakeups(wake)
        self._membership.subscribe_commits(self._interceptors.on_commit)
        subscription.on_position_change = self._positions_changed
        cluster.subscribe_updates(self._metadata_changed)
        self._observers.start(cluster)
        fetcher.stats.on_change = self._observers.figures_changed
        self._process = os.getpid()
        await cluster.start()
        self._subscription_changed()

    async def close(self, timeout: float = 30.0) -> None:
        """Commit if that is automatic, leave the group and close all connections.

        Args:
            timeout: Seconds to wait for the commit and for the group.

        Raises:
            CommitFailedError: The group has gone on without this consumer.
            KafkaError: The last commit was refused.

        Example:
            await consumer.close(timeout=10)
        """
        check_seconds("close", timeout)
        if self._closed:
            return
        self._closed = True
        self._settle()
        if not self._has_started:
            return
        deadline = Deadline(timeout * 1000)
        self._wake_flag.tell()
        try:
            failure = await failure_of(self._work.commits.flush(deadline))
            if self._subscription.is_auto_assigned:
                self._leaving = True
                await self._membership.leave(deadline)
            else:
                await self._work.commits.close(deadline, self.config.bool("enable.auto.commit"))
            if failure is not None:
                raise failure
        finally:
            self._leaving = False
            await self._membership.close()
            await self._work.positions.close()
            await self._work.fetcher.close(deadline.remaining)
            await self._observers.close(deadline.remaining)
            await self._work.cluster.close()
            self._interceptors.close()

    # Subscribing

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
        **foreign: Never,
    ) -> None:
        """Read topics as a member of the group ``group.id``.

        Replaces the previous subscription.

        Args:
            topics: The name of a topic, or several names.
            pattern: A regular expression instead of names: all topics whose whole name matches, also later
                ones. A ``SubscriptionPattern`` is matched by the broker.
            listener: Notified, inside ``poll``, of partitions that are assigned and revoked.
            foreign: None: arguments of other libraries are refused with the one to use.

        Raises:
            IllegalStateError: There is no ``group.id``, or both or neither of ``topics`` and ``pattern`` are
                given.
            KafkaError: A name is not a valid topic name.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.subscribe(["orders", "payments"])
        """
        refuse_keywords("subscribe", foreign, SUBSCRIBE_KEYWORDS)
        self._require_open()
        if (topics is None) == (pattern is None):
            raise IllegalStateError("subscribe takes either topics or a pattern")
        check_listener(listener)
        if not self._has_group:
            raise IllegalStateError(
                "subscribing needs a group: set group.id, or read partitions without one by "
                "assign([TopicPartition(topic, 0), …]), of which partitions_for(topic) returns the numbers"
            )
        if isinstance(pattern, SubscriptionPattern):
            self._subscription.subscribe_broker_pattern(pattern, listener)
        elif pattern is not None:
            self._subscription.subscribe_pattern(_compiled(pattern), listener)
        else:
            one = isinstance(topics, str) or not isinstance(topics, Iterable)
            names: list[Any] = [topics] if one else list(topics or ())
            for name in names:
                check_topic_name(name, "; to subscribe by a regular expression, pass pattern=…")
            self._subscription.subscribe(names, listener)
        self._subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]] | TopicPartition) -> None:
        """Read exactly these partitions, without a group.

        Partitions that were assigned before keep their positions.

        Args:
            partitions: ``TopicPartition``s or pairs of topic and number.

        Raises:
            IllegalStateError: A partition is not named by its topic and number, or topics are subscribed to.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.assign([TopicPartition("orders", 0)])
        """
        self._require_open()
        self._subscription.assign(checked_partitions(partitions))
        self._delivered.drop(lambda partition: not self._subscription.is_assigned(partition))
        self._subscription_changed()

    async def unsubscribe(self) -> None:
        """Stop reading, and leave the group.

        Raises:
            RequestTimeoutError: The group does not answer within ``default.api.timeout.ms``.
            ClientClosedError: The consumer is closed.

        Example:
            await consumer.unsubscribe()
        """
        self._require_open()
        self._put_back()
        if self._has_started and self._subscription.is_auto_assigned:
            await self._membership.leave(self._deadline(None))
        self._subscription.unsubscribe()
        self._subscription_changed()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to.

        Returns:
            The names; with a pattern, those that match now.

        Example:
            print(consumer.subscription())
        """
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now.

        Returns:
            The partitions; empty before the group has assigned any.

        Example:
            print(consumer.assignment())
        """
        return self._subscription.assignment

    # Reading

    async def poll(
        self, timeout: float = 1.0, max_records: int | None = None, **foreign: Never
    ) -> list[ConsumerRecord[K_co, V_co]]:
        """Return the next records.

        Args:
            timeout: Seconds to wait for the first record.
            max_records: The most records to return; None means ``max.poll.records``.
            foreign: None: arguments of other libraries are refused with the one to use.

        Returns:
            The records in the order of their partitions; empty after ``timeout`` seconds without any.

        Raises:
            WakeupError: ``wakeup`` was called.
            NoOffsetForPartitionError: Nothing is committed, and ``auto.offset.reset`` is ``none``.
            RecordDeserializationError: A deserializer refuses a key or a value.
            KafkaError: The broker refuses the consumer: it may not read, say.
            IllegalStateError: Nothing is subscribed to or assigned.
            ClientClosedError: The consumer is closed.

        Example:
            for record in await consumer.poll(timeout=5):
                print(record.offset, record.value)
        """
        check_poll(timeout, max_records, foreign)
        began = time.monotonic()
        try:
            return await self._poll_on_loop(timeout, max_records)
        finally:
            self._times.polled(began, time.monotonic())

    async def poll_arrow(self, timeout: float = 1.0, *, with_headers: bool = False) -> Any:
        """Return all records that are buffered as one ``pyarrow.Table``, without a Python object for each.

        The columns are those of ``tidelog.records.arrow.arrow_schema``. Keys and values are bytes:
        deserializers are not applied.

        Args:
            timeout: Seconds to wait for the first record; then the table may be empty.
            with_headers: Whether to add the column ``headers``.

        Returns:
            A ``pyarrow.Table``.

        Raises:
            ConfigError: pyarrow is not installed.
            WakeupError: ``wakeup`` was called.
            KafkaError: The broker refuses the consumer.
            ClientClosedError: The consumer is closed.

        Example:
            table = await consumer.poll_arrow(timeout=5)
            print(table.num_rows)
        """
        check_seconds("poll_arrow", timeout)
        began = time.monotonic()
        try:
            return await self._poll_arrow_on_loop(timeout, with_headers=with_headers)
        finally:
            self._times.polled(began, time.monotonic())

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K_co, V_co]]:
        return self.records(None)

    async def __anext__(self) -> ConsumerRecord[K_co, V_co]:
        while not self._closed:
            for record in self._begin_delivery(await self.poll(self._quiet_time(None).wait_s())):
                return record
        raise StopAsyncIteration

    async def records(self, timeout: float | None = None) -> AsyncIterator[ConsumerRecord[K_co, V_co]]:
        """Iterate over records one by one.

        The time begins with the first assignment of partitions. Offsets are committed as far as the loop has
        got.

        Args:
            timeout: Seconds without a record after which the iteration ends; None waits for records without a
                limit.

        Returns:
            An iterator; it ends when the consumer is closed.

        Raises:
            WakeupError: ``wakeup`` was called.
            KafkaError: As for ``poll``.

        Example:
            async for record in consumer.records(timeout=1):
                print(record.value)
        """
        quiet = self._quiet_time(timeout)
        while not self._closed:
            records = await self.poll(quiet.wait_s())
            if records:
                for record in self._begin_delivery(records):
                    yield record
                quiet.begin()
            elif quiet.is_over():
                return

    def wakeup(self) -> None:
        """Make the ``poll`` that waits, or else the next one, raise ``WakeupError``; from any thread.

        Example:
            consumer.wakeup()
        """
        self._wakeup = True
        if self._has_started and not self._closed:
            with contextlib.suppress(RuntimeError):  # another thread has closed it since
                self._work.loop.call_soon_threadsafe(self._wake_flag.tell)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue with ``offset`` in an assigned partition.

        Args:
            partition: An assigned partition.
            offset: The offset of the next record to read.

        Raises:
            IllegalStateError: The partition is not assigned, or the offset is negative.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.seek(TopicPartition("orders", 0), 0)
        """
        self._require_open()
        at = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if not isinstance(at.offset, int):
            raise IllegalStateError(f"an offset is a number from 0 on, not {at.offset!r} (of {partition})")
        if at.offset < 0:
            raise IllegalStateError(f"offset {at.offset} of {partition} is negative; see seek_to_beginning")
        partition = checked_partition(partition)
        self._subscription.seek(partition, FetchPosition(at.offset, at.leader_epoch))
        self._delivered.drop_partitions([partition])

    def seek_to_beginning(self, partitions: PartitionCollection = ()) -> None:
        """Continue with the first record of each partition.

        Args:
            partitions: Assigned partitions; none means all of them.

        Raises:
            IllegalStateError: A partition is not assigned.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.seek_to_beginning()
        """
        self._seek_to(partitions, earliest=True)

    def seek_to_end(self, partitions: PartitionCollection = ()) -> None:
        """Continue with the next record that is written to each partition.

        Args:
            partitions: Assigned partitions; none means all of them.

        Raises:
            IllegalStateError: A partition is not assigned.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.seek_to_end()
        """
        self._seek_to(partitions, earliest=False)

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record of an assigned partition, once it is known.

        Args:
            partition: An assigned partition.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            The offset.

        Raises:
            IllegalStateError: The partition is not assigned.
            ConsumerTimeoutError: The position is not known within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print(await consumer.position(TopicPartition("orders", 0)))
        """
        deadline = await self._begin("position", timeout)
        partition = checked_partition(partition)
        self._settle()
        while True:
            position = self._subscription.consumed_position(partition)
            if position is not None and self._subscription.state(partition).has_valid_position:
                return position.offset
            await self._wait_for_position(partition, deadline)

    async def committed(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed.

        Args:
            partitions: Partitions, which need not be assigned.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            Each partition with its offset, or None where nothing is committed.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            place = TopicPartition("orders", 0)
            print((await consumer.committed([place]))[place])
        """
        deadline = await self._begin("committed", timeout)
        began = time.monotonic()
        try:
            return await self._membership.fetch_committed(checked_partitions(partitions), deadline)
        finally:
            self._times.committed_s += time.monotonic() - began

    def pause(self, partitions: PartitionCollection) -> None:
        """Return no records of these partitions until ``resume``; they stay assigned.

        Args:
            partitions: Assigned partitions.

        Raises:
            IllegalStateError: A partition is not assigned.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.pause(consumer.assignment())
        """
        self._require_open()
        named = checked_partitions(partitions)
        self._put_back(named)
        self._subscription.pause(named)

    def resume(self, partitions: PartitionCollection) -> None:
        """Return records of these partitions again.

        Args:
            partitions: Assigned partitions.

        Raises:
            IllegalStateError: A partition is not assigned.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.resume(consumer.paused())
        """
        self._require_open()
        self._subscription.resume(checked_partitions(partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that ``pause`` has stopped.

        Returns:
            The partitions.

        Example:
            print(consumer.paused())
        """
        return self._subscription.paused

    async def beginning_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition.

        Args:
            partitions: Partitions, which need not be assigned.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            Each partition with its first offset.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print(await consumer.beginning_offsets([TopicPartition("orders", 0)]))
        """
        wanted = dict.fromkeys(checked_partitions(partitions), OffsetSpec.EARLIEST)
        found = await self._offsets("beginning_offsets", wanted, timeout)
        return {partition: each.offset for partition, each in found.items()}

    async def end_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition that this consumer may read.

        With ``isolation.level=read_committed`` it is that of the first open transaction.

        Args:
            partitions: Partitions, which need not be assigned.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            Each partition with its end.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print(await consumer.end_offsets([TopicPartition("orders", 0)]))
        """
        wanted = dict.fromkeys(checked_partitions(partitions), OffsetSpec.LATEST)
        found = await self._offsets("end_offsets", wanted, timeout)
        return {partition: each.offset for partition, each in found.items()}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetResult | None]:
        """Return the first record of each partition at or after a time.

        Args:
            times: Times in milliseconds since 1970, by partition.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            Each partition with the offset and timestamp of the record; None where there is no such record.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            place = TopicPartition("orders", 0)
            print((await consumer.offsets_for_times({place: 0}))[place])
        """
        found = await self._offsets("offsets_for_times", checked_times(times), timeout)
        return {partition: each if each.offset != _NO_OFFSET else None for partition, each in found.items()}

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionMetadata]:
        """Return the partitions of a topic and the brokers that serve them.

        Args:
            topic: The name of the topic.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            The partitions in order.

        Raises:
            KafkaError: The topic does not exist, and ``allow.auto.create.topics`` does not create it.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            for partition in await consumer.partitions_for("orders"):
                print(partition.partition, partition.leader)
        """
        deadline = await self._begin("partitions_for", timeout)
        check_place(topic)
        if self._work.cluster.settings.allow_auto_create_topics:
            known = await self._work.cluster.topic(topic, allow_auto_create=True, deadline=deadline)
        else:
            known = await self._work.cluster.existing_topic(topic, deadline=deadline)
        return list(known.partitions.values())

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionMetadata]]:
        """Return all topics that this consumer may see.

        Args:
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            The partitions of each topic, by its name.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print(sorted(await consumer.list_topics()))
        """
        deadline = await self._begin("list_topics", timeout)
        found = await self._work.cluster.refresh(None, deadline=deadline)
        return {
            name: list(topic.partitions.values()) for name, topic in found.topics.items() if not topic.error
        }

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the end, as of the last fetch; asks no broker.

        Args:
            partition: An assigned partition.

        Returns:
            The number of offsets; None before the first fetch.

        Raises:
            IllegalStateError: The partition is not assigned.

        Example:
            print(consumer.current_lag(TopicPartition("orders", 0)))
        """
        self._settle()
        return self._subscription.lag(checked_partition(partition), self._fetch_config.isolation_level)

    # Committing

    async def commit(
        self, offsets: OffsetsToCommit | None = None, timeout: float | None = None, **foreign: Never
    ) -> None:
        """Commit offsets and wait for the answer.

        Args:
            offsets: The offset of the next record to read, by partition; None means those after all records
                returned so far.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.
            foreign: None: arguments of other libraries are refused with the one to use.

        Raises:
            CommitFailedError: The group has gone on without this consumer, which is no longer a member.
            KafkaError: The coordinator refuses: with ``REBALANCE_IN_PROGRESS``, poll and commit again.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            await consumer.commit({TopicPartition("orders", 0): 1})
        """
        refuse_keywords("commit", foreign, COMMIT_KEYWORDS)
        deadline = await self._begin("commit", timeout)
        self._settle()
        await self._work.commits.run_callbacks()
        began = time.monotonic()
        try:
            await self._work.commits.commit(offsets, deadline)
        finally:
            self._times.commit_sync_s += time.monotonic() - began

    def commit_nowait(
        self,
        offsets: OffsetsToCommit | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit offsets in the background.

        Args:
            offsets: As for ``commit``.
            callback: Called with the offsets and the error, or None, inside a later ``poll``, ``commit`` or
                ``close``. Without one, errors are logged.

        Raises:
            IllegalStateError: Nothing was read yet.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.commit_nowait()
        """
        self._require_open()
        if not self._has_started:
            raise IllegalStateError("nothing was read yet: poll before committing")
        self._settle()
        self._work.commits.commit_nowait(offsets, callback, self._deadline(None))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of this consumer in its group, for ``send_offsets_to_transaction``.

        Returns:
            The group's id, generation, member id and instance id.

        Raises:
            KafkaError: The consumer has no ``group.id``.

        Example:
            print(consumer.group_metadata().group_id)
        """
        return self._membership.group_metadata()

    def ongoing_error(self) -> tuple[float, str] | None:
        """Return the error that keeps this consumer from reading.

        Errors that may pass are retried without a limit: this shows them to a program that does not wait.

        Returns:
            Seconds since it began, and the error's text; None if there is none.

        Example:
            if (problem := consumer.ongoing_error()) is not None:
                print(problem)
        """
        return self._work.cluster.ongoing_errors.longest if self._has_started else None

    def health(self, patience: float = PATIENCE_S) -> ConsumerHealth:
        """Return whether this consumer works, for a readiness probe: at once, from memory, from any thread.

        Args:
            patience: Seconds that an error which keeps it from reading may last before it counts.

        Returns:
            Its state, with ``ok`` and, where that is False, the ``reason``.

        Example:
            health = consumer.health()
            if not health.ok:
                print(health.reason)
        """
        check_seconds("health", patience, "patience")
        has_begun = self._process is not None  # the last thing of a start, which may go on in another thread
        unusable = "the consumer is closed" if self._closed else None
        if has_begun and self._process != os.getpid():
            unusable = "the consumer belongs to the parent of this process: make one here"
        polled_at = max(self._times.last_poll_s, self._polled_at)
        return consumer_health(
            self._subscription,
            self._membership.status(),
            ConsumerActivity(
                unusable,
                has_metadata=has_begun and self._work.cluster.updates.version > 0,
                is_polling=self._polling,
                polled_at=polled_at or None,
                fetched_at=self._work.fetcher.stats.answered_at if has_begun else None,
                max_poll_interval_s=self.config.int("max.poll.interval.ms") / 1000,
                isolation=self._fetch_config.isolation_level,
                held_back=self._delivered.positions(),
                error=self._work.cluster.ongoing_errors.current if has_begun else None,
            ),
            patience,
        )

    def metrics(self) -> Figures:
        """Return the metrics of this consumer, its partitions and its brokers.

        Returns:
            Values by Kafka's names; times are in milliseconds.

        Example:
            print(consumer.metrics().get("records-lag-max"))
        """
        return self._work.cluster.metrics.snapshot() if self._has_started else Figures()

    async def client_instance_id(self, timeout: float = 30.0) -> Uuid:
        """Return the id by which brokers know this client in its telemetry (KIP-714).

        Args:
            timeout: Seconds to wait for the id.

        Returns:
            The id, 16 bytes.

        Raises:
            RequestTimeoutError: No broker has given one within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print((await consumer.client_instance_id()).hex())
        """
        await self._begin("client_instance_id", timeout)
        return await self._observers.client_instance_id(timeout)

    def _member_id(self) -> str:
        return self._membership.group_metadata().member_id if self._has_group else ""

    async def _offsets(
        self, call: str, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetResult]:
        deadline = await self._begin(call, timeout)
        isolation = self._fetch_config.isolation_level
        found = await list_offsets(self._work.cluster, wanted, isolation_level=isolation, deadline=deadline)
        for result in found.values():
            result.raise_for_error()
        return found

    def _seek_to(self, partitions: PartitionCollection, *, earliest: bool) -> None:
        self._require_open()
        wanted = checked_partitions(partitions) or list(self._subscription.assignment)
        for partition in wanted:
            self._subscription.request_reset(partition, EARLIEST if earliest else LATEST)
        self._delivered.drop_partitions(wanted)

    def _quiet_time(self, timeout: float | None) -> QuietTime:
        return QuietTime(
            timeout,
            assigned_at=lambda: self._subscription.assigned_at,
            reason=lambda: trouble[1] if (trouble := self.ongoing_error()) else None,
            blocked_limit_s=self.config.int("default.api.timeout.ms") / 1000,
            rebalance_limit_s=self.config.int("max.poll.interval.ms") / 1000,
        )

    # The way of a poll

    async def _poll_on_loop(
        self, timeout: float, max_records: int | None
    ) -> list[ConsumerRecord[K_co, V_co]]:
        rest = self._take_rest()
        return rest or await self._poll_records(timeout, max_records)

    async def _poll_arrow_on_loop(self, timeout: float, *, with_headers: bool) -> Any:
        from tidelog.records.arrow import load_pyarrow, to_table

        load_pyarrow()
        self._put_back()
        found = await self._poll(
            timeout, lambda: self._work.fetcher.collect_columns(with_headers=with_headers)
        )
        return to_table(found, with_headers=with_headers)

    async def _poll_records(
        self, timeout: float, max_records: int | None
    ) -> list[ConsumerRecord[K_co, V_co]]:
        limit = max_records or self._fetch_config.max_poll_records
        records = await self._poll(timeout, lambda: self._work.fetcher.collect(limit))
        return self._interceptors.on_consume(records) if records and self._interceptors else records

    async def _poll(self, timeout: float, collect: Callable[[], list[T]]) -> list[T]:
        """What ``collect`` finds, once it finds something, or after ``timeout`` seconds."""
        if not self._has_started or self._closed:
            await self.start()
        check_loop(self._work.loop, "an AsyncConsumer")
        if self._polling:
            raise IllegalStateError("another task polls this consumer already: one consumer, one poller")
        if self._subscription.type is SubscriptionType.NONE:
            raise IllegalStateError(
                "the consumer reads nothing: subscribe to topics or assign partitions first"
            )
        self._polling = True
        try:
            deadline = Deadline(timeout * 1000)
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
            not self._has_started
            or self._closed
            or self._polling
            or self._wakeup
            or not self._all_settled
            or self._membership.needs_poll
            or self._work.commits.has_callbacks
        ):
            return 0.0
        return self._polled_at + _POLL_ON_LOOP_S - time.monotonic()

    def _poll_buffered(self, max_records: int | None) -> list[ConsumerRecord[K_co, V_co]]:
        """For ``Consumer``, in its caller's thread: what an iteration has left behind, else what is buffered.

        Of that nothing where something else is to be done first.
        """
        if rest := self._take_rest():
            return rest
        if self._needs_loop_in() <= 0:
            return []
        limit = max_records or self._fetch_config.max_poll_records
        records = self._work.fetcher.collect_buffered(limit)
        return self._interceptors.on_consume(records) if records and self._interceptors else records

    def _poll_columns_buffered(self, *, with_headers: bool) -> list[tuple[TopicPartition, RecordColumns]]:
        """All that is buffered, column by column; nothing also where an iteration has left some behind."""
        if self._needs_loop_in() <= 0 or len(self._delivered):
            return []
        self._subscription.held_back = {}
        return self._work.fetcher.collect_columns_buffered(with_headers=with_headers)

    async def _prepare(self, deadline: Deadline) -> None:
        """What has to be done before records can be handed out: callbacks, the group, positions."""
        if self._wakeup:
            self._wakeup = False
            raise WakeupError("poll was woken up")
        if (refusal := self._work.cluster.updates.take_refusal()) is not None:
            raise refusal
        if self._work.commits.has_callbacks:
            await self._work.commits.run_callbacks()
        subscription = self._subscription
        if subscription.is_auto_assigned and (
            subscription.pattern is None or await self._has_metadata(deadline)
        ):
            await self._membership.ensure_active(deadline)
        self._membership.poll(self._work.loop.time() * 1000)
        self._polled_at = time.monotonic()
        if not self._all_settled:
            self._update_positions()

    def _update_positions(self) -> None:
        self._work.positions.update()
        error = self._work.positions.take_error()
        if error is not None:
            raise error
        self._all_settled = self._subscription.has_all_positions

    async def _has_metadata(self, deadline: Deadline) -> bool:
        """Whether the names of all topics are known: a pattern needs them before the group can be joined.

        Waits for them until time is up, or something else ends the wait of a poll.
        """
        if self._work.cluster.updates.version:
            return True
        asking = self._work.loop.create_task(self._work.cluster.wait_for_update(0, deadline, "all topics"))
        asking.add_done_callback(lambda _: self._wake_flag.tell())
        try:
            await self._wake_flag.wait(deadline.remaining)
            if asking.done():
                asking.result()
        except RequestTimeoutError:
            return False
        finally:
            asking.cancel()
        return bool(self._work.cluster.updates.version)

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
        error = self._work.cluster.updates.last_error or self._work.cluster.ongoing_errors.reason
        return "no broker has answered for it" if error is None else str(error)

    def _positions_changed(self) -> None:
        self._all_settled = False
        self._observers.figures_changed()
        self._work.fetcher.positions_changed()
        self._wake_flag.tell()

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        self._all_settled = False
        if self._subscription.pattern is not None:
            hidden = self.config.bool("exclude.internal.topics")
            names = [name for name, topic in metadata.topics.items() if not (hidden and topic.is_internal)]
            self._subscription.match_topics(names)

    def _subscription_changed(self) -> None:
        if not self._has_started:
            return
        self._all_settled = False
        self._work.cluster.updates.use_all_topics(self._subscription.type is SubscriptionType.PATTERN)
        self._work.cluster.updates.retain_topics(self._subscription.metadata_topics)
        if self._subscription.pattern is not None and self._work.cluster.updates.version:
            self._metadata_changed(self._work.cluster.metadata)
        self._positions_changed()

    async def _call_back(self, call: Callable[[], object]) -> None:
        await self._run_callback(call)

    # What iteration has not handed out yet

    def _begin_delivery(
        self, records: list[ConsumerRecord[K_co, V_co]]
    ) -> Iterable[ConsumerRecord[K_co, V_co]]:
        before = self._work.fetcher.collector.collected
        self._subscription.held_back = dict(before)
        return self._delivered.start(records, before)

    def _settle(self) -> None:
        """Iteration may have got further since: make the positions say how far."""
        if self._subscription.held_back:
            self._subscription.held_back = self._delivered.positions()

    def _take_rest(self) -> list[ConsumerRecord[K_co, V_co]]:
        """What an iteration has left behind; also ends it."""
        self._subscription.held_back = {}
        return self._delivered.take_rest() if len(self._delivered) else []

    def _put_back(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Records that iteration has not handed out yet will be fetched again."""
        self._settle()
        for partition, position in self._delivered.positions().items():
            if partitions is None or partition in partitions:
                self._subscription.seek(partition, position)
                self._delivered.drop_partitions([partition])

    async def _begin(self, call: str, timeout: float | None) -> Deadline:
        if timeout is not None:
            check_seconds(call, timeout)
        self._require_open()
        if not self._has_started:
            await self.start()
        check_loop(self._work.loop, "an AsyncConsumer")
        return self._deadline(timeout)

    def _deadline(self, timeout: float | None) -> Deadline:
        api_timeout_ms = self.config.int("default.api.timeout.ms")
        return Deadline(api_timeout_ms if timeout is None else timeout * 1000)

    def _require_open(self) -> None:
        if self._closed and not self._leaving:  # listeners that run while the group is left may still commit
            raise ClientClosedError("the consumer is closed")


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise IllegalStateError(f"pattern={pattern!r} is not a valid regular expression: {error}") from error


def open_poll_port(consumer: AsyncConsumer[K_co, V_co], *, run_callback: Runner) -> PollPort:
    """The short way of ``Consumer`` past the loop; callbacks are run by ``run_callback`` from now on."""
    consumer._run_callback = run_callback
    return PollPort(
        is_closed=lambda: consumer._closed,
        needs_loop_in=consumer._needs_loop_in,
        take_buffered=consumer._poll_buffered,
        take_columns=consumer._poll_columns_buffered,
        begin_delivery=consumer._begin_delivery,
        wake_flag=consumer._wake_flag,
        times=consumer._times,
        poll=consumer._poll_on_loop,
        poll_arrow=consumer._poll_arrow_on_loop,
        quiet_time=consumer._quiet_time,
    )
