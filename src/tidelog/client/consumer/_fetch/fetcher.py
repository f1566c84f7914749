"""Fetches records ahead of the application: one request per broker in flight, answers into the fetch buffer.

A broker is asked for all of its partitions that may be fetched, from where the buffer ends on, as soon as
its last answer is in and none of these partitions has its buffer full; so the next records are on their way
while the application works on the last ones. A broker with a full partition is not asked at all: without
that partition the request would wait for records of the others (``fetch.max.wait.ms``) when the full one
needs more.

A partition that can be fetched while its broker already holds a long poll without it (a seek, a new
assignment) does not wait for that: it is asked for aside, on another connection and without a session.

Where a partition is fetched is said by its position's leader, or by the follower that the leader named
(KIP-392). ``fetch_answers`` takes answers apart, ``fetch_collector`` hands out what is buffered.

Everything runs on the loop of ``AsyncConsumer``, the only caller, but for ``collect_buffered``; ``on_news``
tells it that there is something to do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.connection import Body, Connection
from tidelog.client._network.node_connections import MAIN
from tidelog.client._network.ongoing_errors import OngoingErrors
from tidelog.client.consumer._fetch.fetch_answers import FetchAnswers
from tidelog.client.consumer._fetch.fetch_buffer import FetchBuffer
from tidelog.client.consumer._fetch.fetch_collector import FetchCollector
from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.consumer._fetch.fetch_request import LOWEST_VERSION, NAMES_UNTIL, encode_fetch_request
from tidelog.client.consumer._fetch.fetch_session import FetchSession, PartitionAsk, SessionRequest
from tidelog.client.consumer._metrics import FetchStats
from tidelog.client.errors import ClientError, is_retriable
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.subscription._partition_state import LeaderAndEpoch, PartitionState
from tidelog.client.subscription._subscription_state import SubscriptionState
from tidelog.errors import KafkaError, TidelogError, WireError
from tidelog.ids import ZERO_UUID, TopicPartition
from tidelog.records.column_codec import RecordColumns
from tidelog.records.record_codec import ConsumerRecord
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import decode_fetch_response
from tidelog.wire.messages.fetch import FetchRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FETCH = int(ApiKey.FETCH)
_HIGHEST_VERSION = FetchRequest.VERSIONS[1]
_VALIDATION_SINCE = 3
_CLOSE_WAIT_S = 0.05
_ASIDE = "fetch aside"


class _Sent(NamedTuple):
    """A request under way."""

    node: int
    channel: str
    session: FetchSession
    asked: dict[TopicPartition, PartitionAsk]
    version: int
    sent_at: float
    answer: asyncio.Future[Body]


class Fetcher:
    """Keeps the fetch buffer of one consumer filled."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        config: FetchConfig,
        on_news: Callable[[], None],
        ongoing_errors: OngoingErrors | None = None,
    ) -> None:
        self._ongoing_errors = ongoing_errors or OngoingErrors()
        self.buffer = FetchBuffer(config)
        self.stats = FetchStats()
        self.collector = FetchCollector(subscription, self.buffer, self.stats)
        self._answers = FetchAnswers(cluster, subscription, config, self.buffer, self.collector, self.stats)
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._on_news = on_news
        self._loop = asyncio.get_running_loop()
        # Held over every change of the buffer: ``Consumer`` takes records out of it in its own thread. It is
        # entered again where an answer's leader hint makes new metadata.
        self._lock = threading.RLock()
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[tuple[int, str], _Sent] = {}
        self._connecting: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._retry_timer: asyncio.TimerHandle | None = None
        self._look_scheduled = False
        self._closed = False
        self._unsubscribe = cluster.subscribe_updates(self._metadata_changed)

    def positions_changed(self) -> None:
        """Partitions came, went or were moved; all that do so in one turn of the loop go into one request."""
        if not self._look_scheduled and not self._closed:
            self._look_scheduled = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._look_scheduled = False
        self._metadata_changed(self._cluster.metadata)

    def collect(self, max_records: int) -> list[ConsumerRecord]:
        """Up to ``max_records`` buffered records, moving positions behind them; raises what must be told."""
        return self._collecting(lambda: self.collector.take(max_records))

    def collect_columns(self, *, with_headers: bool) -> list[tuple[TopicPartition, RecordColumns]]:
        """Everything that is buffered, column by column, an answer each; raises what must be told."""
        return self._collecting(lambda: self.collector.take_columns(with_headers=with_headers))

    def _collecting(self, take: Callable[[], list[T]]) -> list[T]:
        with self._lock:
            self.collector.raise_errors()
            try:
                return take()
            finally:
                if self._may_send():
                    self._send_fetches()

    def collect_buffered(self, max_records: int) -> list[ConsumerRecord]:
        """As :meth:`collect`, from another thread than the loop's and for good records only.

        Nothing is raised but what is wrong with the records themselves; errors that change the state of
        partitions wait for ``collect``.
        """
        return self._collecting_beside(lambda: self.collector.take(max_records, only_records=True))

    def collect_columns_buffered(self, *, with_headers: bool) -> list[tuple[TopicPartition, RecordColumns]]:
        """As :meth:`collect_columns`, from another thread than the loop's and for good records only."""
        return self._collecting_beside(
            lambda: self.collector.take_columns(with_headers=with_headers, only_records=True)
        )

    def _collecting_beside(self, take: Callable[[], list[T]]) -> list[T]:
        with self._lock:
            if self.collector.has_errors:
                return []
            found = take()
            may_send = self._may_send()
            if may_send:
                self.collector.has_room = False
        if may_send:
            self._loop.call_soon_threadsafe(self.send_fetches)
        return found

    def _may_send(self) -> bool:
        """Whether what was taken makes room for a request; an answer under way asks for the next itself."""
        if not self.collector.has_room:
            return False
        in_flight, sessions = self._in_flight, self._sessions
        if len(sessions) == 1 and self.buffer.holds_back():
            return False
        return any((node, MAIN) not in in_flight for node in sessions)

    def send_fetches(self) -> None:
        """Ask every broker that has partitions to fetch, is not asked already and has room for its answer."""
        with self._lock:
            self._send_fetches()

    def _send_fetches(self) -> None:
        self.collector.has_room = False
        if self._closed or self.buffer.is_full:
            return
        now = self._now()
        buffer, metadata = self.buffer, self._cluster.metadata
        wanted: dict[int, dict[TopicPartition, PartitionAsk]] = {}
        aside: dict[int, dict[TopicPartition, PartitionAsk]] = {}
        held_back: set[int] = set()
        retry_at = 0.0
        for partition, state in self._subscription.states():
            if not state.is_fetchable:
                continue
            if state.retry_at > now:
                retry_at = min(retry_at or state.retry_at, state.retry_at)
                continue
            node = self._node_for(partition, state, metadata, now)
            if node is None:
                continue
            if not buffer.room_for(partition, state):
                held_back.add(node)
                continue
            offset, _, leader = buffer.next_position(partition, state)
            topic = metadata.topics.get(partition.topic)
            topic_id = ZERO_UUID if topic is None else topic.topic_id
            ask = PartitionAsk(topic_id, offset, self._config.max_partition_bytes, leader.epoch)
            under_way = self._in_flight.get((node, MAIN))
            if under_way is None:
                wanted.setdefault(node, {})[partition] = ask
            elif under_way.asked.get(partition) != ask:
                aside.setdefault(node, {})[partition] = ask
        if retry_at:
            self._retry_at(retry_at)
        for node, asks in wanted.items():
            if node not in held_back:
                self._send(node, MAIN, asks)
        for node, asks in aside.items():
            if (node, _ASIDE) not in self._in_flight:
                self._send(node, _ASIDE, asks)

    async def close(self, timeout_s: float) -> None:
        """Stop fetching and tell brokers to forget their sessions, as far as there is time."""
        self._closed = True
        self._unsubscribe()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        for task in self._connecting.values():
            task.cancel()
        for sent in self._in_flight.values():
            sent.answer.cancel()
        self.buffer.clear()
        closing = [
            self._exchange(connection, request, _version(connection, request))
            for node, session in self._sessions.items()
            if (connection := self._cluster.ready_connection(node)) is not None
            and (request := session.build_close()) is not None
        ]
        if closing and timeout_s > 0:
            # A broker that holds a long poll answers this one after it; politeness is not worth that wait.
            await asyncio.wait(closing, timeout=min(timeout_s, _CLOSE_WAIT_S))
        for future in closing:
            if future.done() and not future.cancelled():
                future.exception()
            future.cancel()

    # Asking

    def _node_for(
        self, partition: TopicPartition, state: PartitionState, metadata: ClusterMetadata, now: float
    ) -> int | None:
        nodes = metadata.nodes
        replica = None if state.preferred_read_replica is None else state.replica_to_read(now)
        if replica is not None:
            known = metadata.partition(partition)
            if replica in nodes and known is not None and replica not in known.offline_replicas:
                return replica
            state.preferred_read_replica = None
            self._cluster.request_update()
        leader = state.require_position().leader.leader
        if leader is None or leader not in nodes:
            self._cluster.request_update()
            return None
        return leader

    def _send(self, node: int, channel: str, wanted: dict[TopicPartition, PartitionAsk]) -> None:
        connection = self._cluster.ready_connection(node, channel)
        if connection is None:
            self._connect(node, channel)
            return
        if channel == MAIN:
            session = self._sessions.setdefault(node, FetchSession())
            request = session.build(wanted)
        else:
            session = FetchSession()
            request = session.build_once(wanted)
        try:
            version = _version(connection, request)
            answer = self._exchange(connection, request, version)
        except TidelogError as error:
            self._failed(node, session, error)
            return
        self.stats.requests += 1
        sent = _Sent(node, channel, session, session.partitions, version, self._loop.time(), answer)
        self._in_flight[node, channel] = sent
        answer.add_done_callback(lambda _: self._done(sent))

    def _exchange(
        self, connection: Connection, request: SessionRequest, version: int
    ) -> asyncio.Future[Body]:
        body = encode_fetch_request(request, version, self._config)
        return connection.send(_FETCH, version, [body], self._config.request_timeout_ms / 1000)

    def _connect(self, node: int, channel: str) -> None:
        if (node, channel) in self._connecting:
            return

        async def connect() -> None:
            try:
                await self._cluster.connection_to(node, channel=channel)
            except (ClientError, KafkaError) as error:
                with self._lock:
                    self._failed(node, self._sessions.get(node), error)
                self._on_news()
            finally:
                del self._connecting[node, channel]
            self.send_fetches()

        name = f"connect to broker {node} to fetch"
        self._connecting[node, channel] = self._loop.create_task(connect(), name=name)

    # Answers

    def _done(self, sent: _Sent) -> None:
        with self._lock:
            self._in_flight.pop((sent.node, sent.channel), None)
            if sent.answer.cancelled() or sent.answer.exception() is None:
                if not self._closed and not sent.answer.cancelled():
                    self._answered(sent, sent.answer.result())
            elif not self._closed:
                self._failed(sent.node, sent.session, sent.answer.exception())
        self._on_news()

    def _answered(self, sent: _Sent, body: Body) -> None:
        try:
            result = decode_fetch_response(sent.version, memoryview(body))
        except WireError as error:
            self._failed(sent.node, sent.session, error)
            return
        self._ongoing_errors.over(f"fetching from broker {sent.node}")
        self.stats.responses += 1
        self.stats.latency_ms.record((self._loop.time() - sent.sent_at) * 1000)
        self.stats.throttle_ms.record(result.throttle_time_ms)
        self._cluster.throttle(sent.node, result.throttle_time_ms, sent.channel)
        if sent.session.accept(result.error_code, result.session_id):
            self.stats.answered_at = time.monotonic()
            self._answers.accept(sent.session, sent.asked, result)
        else:
            self._answers.refused(sent.node, sent.session, result.error_code)
        self._send_fetches()

    def _failed(self, node: int, session: FetchSession | None, error: BaseException | None) -> None:
        """No answer: the broker is gone, or this client and it do not understand one another."""
        self.stats.failed += 1
        logger.debug("fetching from broker %s failed: %s", node, error)
        self._ongoing_errors.note(f"fetching from broker {node}", error)
        if session is not None:
            session.failed()
            for partition in session.partitions:
                if (state := self._subscription.find(partition)) is not None:
                    state.preferred_read_replica = None
        self._cluster.request_update()
        if isinstance(error, Exception) and not is_retriable(error):
            self.collector.tell(error)
        if session is not None:
            self._answers.back_off(session.partitions)
        self._retry_at(self._now() + self._config.retry_backoff_ms)

    # Metadata and time

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        if self._closed:
            return
        with self._lock:
            self._learn_leaders(metadata)
            self.buffer.drop_stale()
            self._send_fetches()
        self._on_news()

    def _learn_leaders(self, metadata: ClusterMetadata) -> None:
        for partition, state in self._subscription.states():
            known = metadata.partition(partition)
            if known is not None and state.position is not None:
                leader = LeaderAndEpoch(known.leader, known.leader_epoch)
                if state.position.leader != leader:
                    can_validate = self._can_validate(known.leader)
                    if state.leader_seen(leader, can_validate=can_validate):
                        self._subscription.on_position_change()

    def _can_validate(self, leader: int | None) -> bool:
        """Whether the leader can be asked for the ends of its epochs; unknown counts as yes."""
        if leader is None or leader not in self._cluster.metadata.nodes:
            return True
        try:
            self._cluster.api_version(leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, _VALIDATION_SINCE, 4)
        except KafkaError:
            return False
        except ClientError:
            return True
        return True

    def _retry_at(self, moment: float) -> None:
        when = moment / 1000
        if self._retry_timer is not None:
            if self._retry_timer.when() <= when:
                return
            self._retry_timer.cancel()
        self._retry_timer = self._loop.call_at(when, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self.send_fetches()

    def _now(self) -> float:
        return self._loop.time() * 1000


def _version(connection: Connection, request: SessionRequest) -> int:
    highest = _HIGHEST_VERSION if request.has_topic_ids else NAMES_UNTIL
    return connection.require_version(_FETCH, LOWEST_VERSION, highest)
