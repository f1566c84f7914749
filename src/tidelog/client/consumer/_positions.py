"""Finds the positions that partitions lack: committed offsets, resets by time, checks against the leader's
log.

``update`` starts what is needed and never waits: each broker is asked in a task of its own, so that one
that is down holds up nobody else's partitions. A partition that could not be settled is tried again after
the retry back-off. What the application must know (nothing committed and no policy, records lost, no right
to read) is kept for ``take_error``.

Called by ``AsyncConsumer`` in every poll while some partition has no valid position; ``on_news`` wakes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.leaders import by_topic
from tidelog.client._network.ongoing_errors import OngoingErrors
from tidelog.client._network.retry import Deadline
from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.errors import NoLeaderError, error_from, is_retriable
from tidelog.client.subscription._partition_state import FetchPosition, FetchState
from tidelog.client.subscription._reset_strategy import LATEST, ResetStrategy
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.clock import Clock, SystemClock
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
CommittedOffsets = Callable[
    [Collection[TopicPartition], Deadline],
    Coroutine[Any, Any, Mapping[TopicPartition, OffsetAndMetadata | None]],
]

_CONSUMER = -1


class Positions:
    """Brings assigned partitions to a valid position."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        config: FetchConfig,
        committed: CommittedOffsets | None,
        on_news: Callable[[], None],
        ongoing_errors: OngoingErrors,
        clock: Clock | None = None,
    ) -> None:
        self._ongoing_errors = ongoing_errors
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._committed = committed
        self._on_news = on_news
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._asking: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors: deque[Exception] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def take_error(self) -> Exception | None:
        """What the application must be told, once."""
        return self._errors.popleft() if self._errors else None

    def update(self) -> None:
        """Start looking for every position that is missing or doubtful."""
        initializing = [each for each in self._subscription.initializing() if each not in self._asking]
        if initializing and self._committed is None:
            self._subscription.reset_initializing(initializing)
        elif initializing:
            self._start(initializing, self._use_committed(initializing))
        now = self._loop.time() * 1000
        resets = self._subscription.needing_reset(now)
        for node, group in self._by_leader(resets).items():
            self._start(group, self._reset(node, group))
        doubtful = self._subscription.needing_validation(now)
        for node, positions in self._by_leader(doubtful).items():
            self._start(positions, self._validate(node, positions))
        self._wake_at_retry(now)

    async def close(self) -> None:
        """End what is under way."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _by_leader(self, partitions: Mapping[TopicPartition, T]) -> dict[int, dict[TopicPartition, T]]:
        metadata = self._cluster.metadata
        groups: dict[int, dict[TopicPartition, T]] = {}
        for partition, value in partitions.items():
            if partition in self._asking:
                continue
            known = metadata.partition(partition)
            if known is None or known.leader is None or known.leader not in metadata.nodes:
                self._cluster.request_update()
                self._note_no_leader(partition)
            else:
                groups.setdefault(known.leader, {})[partition] = value
        return groups

    def _note_no_leader(self, partition: TopicPartition) -> None:
        """Note why there is no broker to ask, where that is about the partition.

        Without metadata of its topic nothing is known of it: that is an ongoing error of its own.
        """
        topic = self._cluster.metadata.topics.get(partition.topic)
        if topic is None or topic.error:
            return
        try:
            self._cluster.leader_of(partition)
        except (KafkaError, NoLeaderError) as error:
            self._ongoing_errors.note(f"finding the position of {partition}", error)

    def _start(self, partitions: Iterable[TopicPartition], work: Coroutine[Any, Any, None]) -> None:
        asked = set(partitions)
        self._asking |= asked

        async def run() -> None:
            try:
                await work
            except Exception as error:
                logger.debug("looking for positions failed: %s", error)
                for partition in asked:
                    self._ongoing_errors.note(f"finding the position of {partition}", error)
                self._failed(asked)
                if not is_retriable(error):
                    self._errors.append(error)
            finally:
                self._asking -= asked
                self._on_news()

        task = self._loop.create_task(run(), name="find positions")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _failed(self, partitions: Iterable[TopicPartition]) -> None:
        self._cluster.request_update()
        now = self._loop.time() * 1000
        for partition in partitions:
            if (state := self._subscription.find(partition)) is not None:
                state.failed(now, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)

    def _wake_at_retry(self, now: float) -> None:
        waiting = [
            state.retry_at
            for _, state in self._subscription.states()
            if state.fetch_state is not FetchState.FETCHING and state.retry_at > now
        ]
        if waiting:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(min(waiting) / 1000, self._on_news)

    # Committed offsets

    async def _use_committed(self, partitions: Collection[TopicPartition]) -> None:
        assert self._committed is not None
        deadline = Deadline(self._config.request_timeout_ms)
        committed = await self._committed(partitions, deadline)
        missing = []
        for partition in partitions:
            state = self._subscription.find(partition)
            if state is None or state.fetch_state is not FetchState.INITIALIZING:
                continue
            found = committed.get(partition)
            if found is None:
                missing.append(partition)
            else:
                self._subscription.seek(partition, FetchPosition(found.offset, found.leader_epoch))
        self._subscription.reset_initializing(missing)

    # Resets

    async def _reset(self, node: int, strategies: Mapping[TopicPartition, ResetStrategy]) -> None:
        now_ms = self._clock.time_ms()
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=self._config.isolation_level,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=number,
                            current_leader_epoch=self._leader_epoch(TopicPartition(topic, number)),
                            timestamp=strategy.timestamp(now_ms),
                        )
                        for number, strategy in numbers.items()
                    ],
                )
                for topic, numbers in by_topic(strategies).items()
            ],
            timeout_ms=self._config.request_timeout_ms,
        )
        deadline = Deadline(self._config.request_timeout_ms)
        response = await self._cluster.ask_node(node, request, ListOffsetsResponse, deadline)
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                if partition in strategies and self._answered(partition, answer.error_code):
                    self._place(partition, strategies[partition], answer.offset)

    def _place(self, partition: TopicPartition, strategy: ResetStrategy, offset: int) -> None:
        state = self._subscription.find(partition)
        if state is None or state.fetch_state is not FetchState.AWAIT_RESET:
            return
        if (state.reset_strategy or self._subscription.default_reset) != strategy:
            return  # the application asked for another place meanwhile
        if offset == NO_OFFSET:
            # No record is that young: go on with those to come. Java's consumer asks until there is one.
            self._subscription.request_reset(partition, LATEST)
            return
        logger.info("%s starts at offset %s (%s)", partition, offset, strategy)
        self._subscription.seek(partition, FetchPosition(offset))

    # Validation

    async def _validate(self, node: int, positions: Mapping[TopicPartition, FetchPosition]) -> None:
        request = OffsetForLeaderEpochRequest(
            replica_id=_CONSUMER,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=number,
                            current_leader_epoch=position.leader.epoch,
                            leader_epoch=position.offset_epoch,
                        )
                        for number, position in numbers.items()
                    ],
                )
                for topic, numbers in by_topic(positions).items()
            ],
        )
        deadline = Deadline(self._config.request_timeout_ms)
        try:
            response = await self._cluster.ask_node(node, request, OffsetForLeaderEpochResponse, deadline)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            self._trust(positions)
            return
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.topic, answer.partition)
                state = self._subscription.find(partition)
                if state is None or state.fetch_state is not FetchState.AWAIT_VALIDATION:
                    continue
                if state.position != positions.get(partition):
                    continue  # moved since; another check is under way or will be
                if self._answered(partition, answer.error_code):
                    lost = self._subscription.diverged(partition, answer.leader_epoch, answer.end_offset)
                    if lost is not None:
                        self._failed([partition])
                        self._errors.append(lost)

    def _trust(self, partitions: Iterable[TopicPartition]) -> None:
        """The broker is too old to be asked."""
        for partition in partitions:
            if (state := self._subscription.find(partition)) is not None:
                state.validated()
        self._subscription.on_position_change()

    def _answered(self, partition: TopicPartition, code: int) -> bool:
        """Whether the broker has answered for a partition; if not, it is tried again or the error kept."""
        error = error_from(code, None, f"partition {partition}")
        if error is None:
            self._ongoing_errors.over(f"finding the position of {partition}")
            if (state := self._subscription.find(partition)) is not None:
                state.succeeded()
            return True
        self._ongoing_errors.note(f"finding the position of {partition}", error)
        self._failed([partition])
        if not is_retriable(error):
            self._errors.append(error)
        return False

    def _leader_epoch(self, partition: TopicPartition) -> int:
        known = self._cluster.metadata.partition(partition)
        return -1 if known is None else known.leader_epoch
