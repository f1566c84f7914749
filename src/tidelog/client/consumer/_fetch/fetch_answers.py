"""What becomes of a fetch answer: records go into the buffer, errors to where they belong.

    moved, or about to exist        newer metadata and a back-off; none if a leader is named
    out of range                    from a follower: ask the leader; else auto.offset.reset or the application
    not allowed, corrupt, unknown   the application, when the turn of this partition comes
    diverging epoch                 back to where the logs agree (KIP-320)

Answers for positions that have been left since are dropped. Called by ``consumer._fetch.fetcher`` under its
lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from tidelog.client._network.cluster import Cluster
from tidelog.client.consumer._fetch.completed_fetch import CompletedFetch
from tidelog.client.consumer._fetch.fetch_buffer import FetchBuffer
from tidelog.client.consumer._fetch.fetch_collector import FetchCollector
from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.consumer._fetch.fetch_session import FetchSession, PartitionAsk
from tidelog.client.consumer._metrics import FetchStats, FetchTally
from tidelog.client.errors import ClientError
from tidelog.client.metadata import LeaderHint, Node
from tidelog.client.subscription._partition_state import PartitionState
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.fetch import FetchedPartition, FetchResult

logger = logging.getLogger(__name__)

# A partition that has moved or is about to exist: newer metadata will tell.
_STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_TRY_AGAIN = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})


class FetchAnswers:
    """Takes answers apart."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        config: FetchConfig,
        buffer: FetchBuffer,
        collector: FetchCollector,
        stats: FetchStats,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._buffer = buffer
        self._collector = collector
        self._stats = stats
        self._loop = asyncio.get_running_loop()

    def accept(
        self, session: FetchSession, asked: dict[TopicPartition, PartitionAsk], result: FetchResult
    ) -> None:
        """Keep what came, and take over leaders that errors name (KIP-951)."""
        hints: dict[TopicPartition, LeaderHint] = {}
        tally = FetchTally(self._stats)
        for name, topic_id, partitions in result.topics:
            topic = session.topic_names.get(topic_id) if topic_id is not None else name
            if topic is None:
                session.failed()
                continue
            for fetched in partitions:
                partition = TopicPartition(topic, fetched.partition)
                ask = asked.get(partition)
                if ask is None:
                    session.failed()
                    continue
                self._accept_partition(partition, ask, fetched, tally)
                if fetched.error_code and fetched.current_leader is not None:
                    hints[partition] = LeaderHint(*fetched.current_leader)
        if hints:
            nodes = [Node(*endpoint) for endpoint in result.node_endpoints]
            if self._cluster.note_leaders(hints, nodes):
                for partition in hints:
                    self._retry_now(partition)

    def _accept_partition(
        self, partition: TopicPartition, ask: PartitionAsk, fetched: FetchedPartition, tally: FetchTally
    ) -> None:
        state = self._subscription.find(partition)
        if state is None or not state.has_valid_position:
            return
        position = self._buffer.next_position(partition, state)
        if position.offset != ask.fetch_offset or position.leader.epoch != ask.leader_epoch:
            return  # the application has moved on since: a seek, or another leader
        if fetched.error_code:
            self._partition_failed(partition, state, ask, ErrorCode(fetched.error_code))
            return
        state.succeeded()
        if fetched.high_watermark >= 0:
            state.high_watermark = fetched.high_watermark
        if fetched.last_stable_offset >= 0:
            state.last_stable_offset = fetched.last_stable_offset
        if fetched.log_start_offset >= 0:
            state.log_start_offset = fetched.log_start_offset
        if fetched.preferred_read_replica >= 0:
            until = self._loop.time() * 1000 + self._config.metadata_max_age_ms
            state.prefer_replica(fetched.preferred_read_replica, until)
        if fetched.diverging_epoch is not None:
            epoch, end_offset = fetched.diverging_epoch
            self._collector.tell(self._subscription.diverged(partition, epoch, end_offset))
            return
        records = fetched.records
        if records:
            assert isinstance(records, memoryview | bytes)
            kept = self._keep(partition, state, ask, records, fetched, position.offset_epoch)
            if kept.error is None:
                tally.begin()
                kept.tally = tally

    def _keep(
        self,
        partition: TopicPartition,
        state: PartitionState,
        ask: PartitionAsk,
        records: memoryview | bytes,
        fetched: FetchedPartition,
        offset_epoch: int,
    ) -> CompletedFetch:
        aborted = fetched.aborted_transactions
        try:
            fetch = CompletedFetch(
                partition, state, ask.fetch_offset, self._config, records, aborted, None, offset_epoch
            )
        except (CorruptRecordError, ClientError) as error:
            fetch = CompletedFetch(partition, state, ask.fetch_offset, self._config, error=error)
        self._buffer.add(fetch)
        return fetch

    def _partition_failed(
        self, partition: TopicPartition, state: PartitionState, ask: PartitionAsk, code: ErrorCode
    ) -> None:
        follower, state.preferred_read_replica = state.preferred_read_replica, None
        if code in _STALE_METADATA:
            self._cluster.request_update()
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE and follower is not None:
            return  # the follower may lag behind: the leader decides
        elif code not in _TRY_AGAIN:
            error = KafkaError(code, _problem(partition, ask.fetch_offset, code))
            self._buffer.add(CompletedFetch(partition, state, ask.fetch_offset, self._config, error=error))
            return
        level = logging.WARNING if code is ErrorCode.UNKNOWN_SERVER_ERROR else logging.DEBUG
        logger.log(level, "fetching %s from offset %s: %s", partition, ask.fetch_offset, code.name)
        self._postpone(state)

    def refused(self, node: int, session: FetchSession, code: int) -> None:
        """The whole request was refused; the next one is a full one."""
        logger.debug("broker %s refused a fetch session request: %s", node, ErrorCode(code).name)
        error = KafkaError(ErrorCode(code), f"broker {node} refuses to answer fetches")
        if not error.code.retriable and error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            self._collector.tell(error)
        if error.code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
            if error.code in _STALE_METADATA or error.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                self._cluster.request_update()
            self.back_off(session.partitions)

    def back_off(self, partitions: Iterable[TopicPartition]) -> None:
        """Leave these alone for a while."""
        for partition in partitions:
            if (state := self._subscription.find(partition)) is not None:
                self._postpone(state)

    def _postpone(self, state: PartitionState) -> None:
        now = self._loop.time() * 1000
        state.failed(now, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)

    def _retry_now(self, partition: TopicPartition) -> None:
        if (state := self._subscription.find(partition)) is not None:
            state.retry_at = 0.0


def _problem(partition: TopicPartition, offset: int, code: ErrorCode) -> str:
    match code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"this client may not read topic {partition.topic!r}"
        case ErrorCode.CORRUPT_MESSAGE:
            return f"the broker finds the batch at offset {offset} of {partition} corrupt"
    return f"partition {partition} cannot be read at offset {offset}: {code.name}"
