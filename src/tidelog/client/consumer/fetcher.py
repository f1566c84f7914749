"""Fetches records ahead of the application: one request per broker in flight, answers into the fetch buffer.

A broker is asked for all of its partitions that may be fetched, from where the buffer ends on, as soon as
its last answer is in and none of these partitions has its buffer full; so the next records are on their way
while the application works on the last ones. A broker with a full partition is not asked at all: without
that partition the request would wait for records of the others (``fetch.max.wait.ms``) when the full one
needs more.

Where a partition is fetched is said by its position's leader, or by the follower that the leader named
(KIP-392). Answers about partitions that have moved make their position wait for newer metadata; positions
outside of the log go to ``auto.offset.reset``; what the application must know is raised by ``collect`` when
its turn comes.

Everything runs on the loop of ``AsyncConsumer``, the only caller, but for ``collect_buffered``; ``on_news``
tells it that there is something to do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from tidelog.client.cluster import Cluster
from tidelog.client.connection import Body
from tidelog.client.consumer.completed_fetch import CompletedFetch
from tidelog.client.consumer.errors import OffsetOutOfRangeError
from tidelog.client.consumer.fetch_buffer import FetchBuffer
from tidelog.client.consumer.fetch_config import FetchConfig
from tidelog.client.consumer.fetch_request import LOWEST_VERSION, NAMES_UNTIL, encode_fetch_request
from tidelog.client.consumer.fetch_session import FetchSession, PartitionAsk, SessionRequest
from tidelog.client.consumer.partition_state import FetchPosition, LeaderAndEpoch, PartitionState
from tidelog.client.consumer.reset_strategy import NONE
from tidelog.client.consumer.subscription_state import SubscriptionState
from tidelog.client.errors import AuthenticationError, ClientError, error_code, is_retriable
from tidelog.client.metadata import ClusterMetadata, LeaderHint, Node
from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError, TidelogError, WireError
from tidelog.ids import ZERO_UUID, TopicPartition
from tidelog.records.record_codec import ConsumerRecord
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import FetchedPartition, FetchResult, decode_fetch_response
from tidelog.wire.messages.fetch import FetchRequest

_log = logging.getLogger(__name__)

_HIGHEST_VERSION = FetchRequest.VERSIONS[1]
_VALIDATION_SINCE = 3
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


class FetchStats:
    """What the fetcher has done, for metrics."""

    __slots__ = ("bytes_fetched", "failed", "latency_max", "latency_sum", "records", "requests", "responses")

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.failed = 0
        self.bytes_fetched = 0
        self.records = 0
        self.latency_sum = 0.0
        self.latency_max = 0.0


class Fetcher:
    """Keeps the fetch buffer of one consumer filled."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        config: FetchConfig,
        on_news: Callable[[], None],
    ) -> None:
        self.buffer = FetchBuffer(config)
        self.stats = FetchStats()
        self.collected: dict[TopicPartition, FetchPosition] = {}
        """Where the partitions of the last ``collect`` stood before it."""
        self._cluster = cluster
        self._subscription = subscription
        self._config = config
        self._on_news = on_news
        self._loop = asyncio.get_running_loop()
        # Held over every change of the buffer: ``Consumer`` takes records out of it in its own thread. It is
        # entered again where an answer's leader hint makes new metadata.
        self._lock = threading.RLock()
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[int, asyncio.Future[Body]] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._errors: deque[Exception] = deque()
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
        with self._lock:
            if self._errors:
                raise self._errors.popleft()
            records, has_room = self._collect(max_records)
            if has_room:
                self._send_fetches()
        return records

    def collect_buffered(self, max_records: int) -> list[ConsumerRecord]:
        """As :meth:`collect`, from another thread than the loop's and for good records only.

        Nothing is raised but what is wrong with the records themselves; errors that change the state of
        partitions wait for ``collect``.
        """
        with self._lock:
            if self._errors:
                return []
            records, has_room = self._collect(max_records, only_records=True)
        if has_room:
            self._loop.call_soon_threadsafe(self.send_fetches)
        return records

    def _collect(self, max_records: int, only_records: bool = False) -> tuple[list[ConsumerRecord], bool]:
        """The records, and whether something was used up, so that there is room for more."""
        records: list[ConsumerRecord] = []
        has_room = False
        collected = self.collected = {}
        while len(records) < max_records:
            fetch = self.buffer.next_fetch()
            if fetch is None or (only_records and fetch.error is not None):
                break
            if fetch.partition not in collected:
                collected[fetch.partition] = fetch.state.require_position()
            try:
                taken = self._take(fetch, max_records - len(records))
            except TidelogError:
                if records:
                    break  # what is good goes out first; the next call meets the error again
                raise
            if records:
                records += taken
            else:
                records = taken
            if fetch.is_drained:
                self.buffer.remove(fetch)
                has_room = True
        self.stats.records += len(records)
        return records, has_room

    def next_fetch(self) -> CompletedFetch | None:
        """For readers of whole batches: the answer whose turn it is; raises what must be told."""
        with self._lock:
            if self._errors:
                raise self._errors.popleft()
            while (fetch := self.buffer.next_fetch()) is not None and fetch.error is not None:
                self._raise_or_reset(fetch)
            return fetch

    def finish(self, fetch: CompletedFetch, records: int) -> None:
        """Records of ``fetch`` were handed out: move the position behind them, make room if it is used up."""
        fetch.state.advance(fetch.next_offset, fetch.last_epoch)
        self.stats.records += records
        if fetch.is_drained:
            self.buffer.remove(fetch)
            self.send_fetches()

    def send_fetches(self) -> None:
        """Ask every broker that has partitions to fetch, is not asked already and has room for its answer."""
        with self._lock:
            self._send_fetches()

    def _send_fetches(self) -> None:
        if self._closed or self.buffer.is_full:
            return
        now = self._now()
        wanted: dict[int, dict[TopicPartition, PartitionAsk]] = {}
        held_back: set[int] = set()
        retry_at = 0.0
        for partition, state in self._subscription.states():
            if not state.is_fetchable:
                continue
            if state.retry_at > now:
                retry_at = min(retry_at or state.retry_at, state.retry_at)
                continue
            node = self._node_for(partition, state, now)
            if node is None or node in self._in_flight:
                continue
            if not self.buffer.room_for(partition, state):
                held_back.add(node)
                continue
            wanted.setdefault(node, {})[partition] = self._ask(partition, state)
        if retry_at:
            self._retry_at(retry_at)
        for node, asks in wanted.items():
            if node not in held_back:
                self._send(node, asks)

    async def close(self, timeout_s: float) -> None:
        """Stop fetching and tell brokers to forget their sessions, as far as there is time."""
        self._closed = True
        self._unsubscribe()
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        for task in self._connecting.values():
            task.cancel()
        for future in self._in_flight.values():
            future.cancel()
        self.buffer.clear()
        closing = [
            self._exchange(node, request)
            for node, session in self._sessions.items()
            if self._cluster.ready(node) and (request := session.build_close()) is not None
        ]
        if closing and timeout_s > 0:
            await asyncio.wait(closing, timeout=min(timeout_s, 1.0))
        for future in closing:
            if future.done() and not future.cancelled():
                future.exception()
            future.cancel()

    # Asking

    def _ask(self, partition: TopicPartition, state: PartitionState) -> PartitionAsk:
        position = self.buffer.next_position(partition, state)
        topic = self._cluster.metadata.topics.get(partition.topic)
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        return PartitionAsk(
            topic_id, position.offset, self._config.max_partition_bytes, position.leader.epoch
        )

    def _node_for(self, partition: TopicPartition, state: PartitionState, now: float) -> int | None:
        nodes = self._cluster.metadata.nodes
        replica = state.replica_to_read(now)
        if replica is not None:
            known = self._cluster.metadata.partition(partition)
            if replica in nodes and known is not None and replica not in known.offline_replicas:
                return replica
            state.preferred_read_replica = None
            self._cluster.request_update()
        leader = state.require_position().leader.leader
        if leader is None or leader not in nodes:
            self._cluster.request_update()
            return None
        return leader

    def _send(self, node: int, wanted: dict[TopicPartition, PartitionAsk]) -> None:
        if not self._cluster.ready(node):
            self._connect(node)
            return
        session = self._sessions.setdefault(node, FetchSession())
        try:
            request = session.build(wanted)
            version = self._version(node, request)
            answer = self._exchange(node, request, version)
        except TidelogError as error:
            self._failed(node, session, error)
            return
        self.stats.requests += 1
        self._in_flight[node] = answer
        asked = session.partitions
        sent_at = self._loop.time()
        answer.add_done_callback(lambda answer: self._done(node, session, asked, version, sent_at, answer))

    def _version(self, node: int, request: SessionRequest) -> int:
        highest = _HIGHEST_VERSION if request.has_topic_ids else NAMES_UNTIL
        return self._cluster.api_version(node, ApiKey.FETCH, LOWEST_VERSION, highest)

    def _exchange(
        self, node: int, request: SessionRequest, version: int | None = None
    ) -> asyncio.Future[Body]:
        version = self._version(node, request) if version is None else version
        body = encode_fetch_request(request, version, self._config)
        timeout_ms = self._config.request_timeout_ms
        return self._cluster.send(node, ApiKey.FETCH, version, [body], timeout_ms=timeout_ms)

    def _connect(self, node: int) -> None:
        if node in self._connecting:
            return

        async def connect() -> None:
            try:
                await self._cluster.connection_to(node)
            except (ClientError, KafkaError) as error:
                with self._lock:
                    self._failed(node, self._sessions.get(node), error)
                self._on_news()
            finally:
                del self._connecting[node]
            self.send_fetches()

        self._connecting[node] = self._loop.create_task(connect(), name=f"connect to broker {node} to fetch")

    # Answers

    def _done(
        self,
        node: int,
        session: FetchSession,
        asked: dict[TopicPartition, PartitionAsk],
        version: int,
        sent_at: float,
        answer: asyncio.Future[Body],
    ) -> None:
        with self._lock:
            self._answered(node, session, asked, version, sent_at, answer)
        self._on_news()

    def _answered(
        self,
        node: int,
        session: FetchSession,
        asked: dict[TopicPartition, PartitionAsk],
        version: int,
        sent_at: float,
        answer: asyncio.Future[Body],
    ) -> None:
        self._in_flight.pop(node, None)
        if self._closed or answer.cancelled():
            if not answer.cancelled():
                answer.exception()
            return
        try:
            body = answer.result()
            result = decode_fetch_response(version, memoryview(body))
        except TidelogError as error:
            self._failed(node, session, error)
            return
        latency = self._loop.time() - sent_at
        stats = self.stats
        stats.responses += 1
        stats.bytes_fetched += len(body)
        stats.latency_sum += latency
        stats.latency_max = max(stats.latency_max, latency)
        self._cluster.throttle(node, result.throttle_time_ms)
        if session.accept(result.error_code, result.session_id):
            self._accept(session, asked, result)
        else:
            self._refused(node, result.error_code)
        self._send_fetches()

    def _accept(
        self, session: FetchSession, asked: dict[TopicPartition, PartitionAsk], result: FetchResult
    ) -> None:
        hints: dict[TopicPartition, LeaderHint] = {}
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
                self._accept_partition(partition, ask, fetched)
                if fetched.error_code and fetched.current_leader is not None:
                    hints[partition] = LeaderHint(*fetched.current_leader)
        if hints:
            nodes = [Node(*endpoint) for endpoint in result.node_endpoints]
            if self._cluster.note_leaders(hints, nodes):
                for partition in hints:
                    self._retry_now(partition)

    def _accept_partition(
        self, partition: TopicPartition, ask: PartitionAsk, fetched: FetchedPartition
    ) -> None:
        state = self._subscription.find(partition)
        if state is None or not state.has_valid_position:
            return
        position = self.buffer.next_position(partition, state)
        if position.offset != ask.fetch_offset or position.leader.epoch != ask.leader_epoch:
            return  # the application has moved on since: a seek, or another leader
        if fetched.error_code:
            self._partition_failed(partition, state, ask, error_code(fetched.error_code))
            return
        state.succeeded()
        if fetched.high_watermark >= 0:
            state.high_watermark = fetched.high_watermark
        if fetched.last_stable_offset >= 0:
            state.last_stable_offset = fetched.last_stable_offset
        if fetched.log_start_offset >= 0:
            state.log_start_offset = fetched.log_start_offset
        if fetched.preferred_read_replica >= 0:
            until = self._now() + self._config.metadata_max_age_ms
            state.prefer_replica(fetched.preferred_read_replica, until)
        if fetched.diverging_epoch is not None:
            epoch, end_offset = fetched.diverging_epoch
            self._tell(self._subscription.diverged(partition, epoch, end_offset))
            return
        records = fetched.records
        if records:
            assert isinstance(records, memoryview | bytes)
            self._keep(partition, state, ask, records, fetched, position.offset_epoch)

    def _keep(
        self,
        partition: TopicPartition,
        state: PartitionState,
        ask: PartitionAsk,
        records: memoryview | bytes,
        fetched: FetchedPartition,
        offset_epoch: int,
    ) -> None:
        aborted = fetched.aborted_transactions
        try:
            fetch = CompletedFetch(
                partition, state, ask.fetch_offset, self._config, records, aborted, None, offset_epoch
            )
        except (CorruptRecordError, ClientError) as error:
            fetch = CompletedFetch(partition, state, ask.fetch_offset, self._config, error=error)
        self.buffer.add(fetch)

    def _partition_failed(
        self, partition: TopicPartition, state: PartitionState, ask: PartitionAsk, code: ErrorCode
    ) -> None:
        now = self._now()
        follower, state.preferred_read_replica = state.preferred_read_replica, None
        if code in _STALE_METADATA:
            self._cluster.request_update()
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE and follower is not None:
            return  # the follower may lag behind: the leader decides
        elif code not in _TRY_AGAIN:
            error = KafkaError(code, _problem(partition, ask.fetch_offset, code))
            self.buffer.add(CompletedFetch(partition, state, ask.fetch_offset, self._config, error=error))
            return
        level = logging.WARNING if code is ErrorCode.UNKNOWN_SERVER_ERROR else logging.DEBUG
        _log.log(level, "fetching %s from offset %s: %s", partition, ask.fetch_offset, code.name)
        state.failed(now, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)

    def _refused(self, node: int, code: int) -> None:
        """The whole request was refused; the next one is a full one."""
        _log.debug("broker %s refused a fetch session request: %s", node, error_code(code).name)
        error = KafkaError(error_code(code), f"broker {node} refuses to answer fetches")
        if not error.code.retriable and error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            self._tell(error)
        if error.code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
            if error.code in _STALE_METADATA or error.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
                self._cluster.request_update()
            self._back_off(self._sessions[node].partitions)

    def _failed(self, node: int, session: FetchSession | None, error: Exception) -> None:
        """No answer: the broker is gone, or this client and it do not understand one another."""
        self.stats.failed += 1
        _log.debug("fetching from broker %s failed: %s", node, error)
        if session is not None:
            session.failed()
            for partition in session.partitions:
                if (state := self._subscription.find(partition)) is not None:
                    state.preferred_read_replica = None
        self._cluster.request_update()
        if not is_retriable(error) or isinstance(error, AuthenticationError | WireError):
            self._tell(error)
        if session is not None:
            self._back_off(session.partitions)
        self._retry_at(self._now() + self._config.retry_backoff_ms)

    # Errors and time

    def _take(self, fetch: CompletedFetch, max_records: int) -> list[ConsumerRecord]:
        if fetch.error is not None:
            self._raise_or_reset(fetch)
            return []
        records = fetch.take(max_records)
        fetch.state.advance(fetch.next_offset, fetch.last_epoch)
        return records

    def _raise_or_reset(self, fetch: CompletedFetch) -> None:
        """An answer without records has its turn: apply auto.offset.reset, or tell the application."""
        self.buffer.remove(fetch)
        error = fetch.error
        assert error is not None
        if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._subscription.default_reset is NONE:
                self._send_fetches()
                raise OffsetOutOfRangeError({fetch.partition: fetch.fetch_offset})
            _log.info("%s has no offset %s any more: resetting", fetch.partition, fetch.fetch_offset)
            self._subscription.request_reset(fetch.partition)
            return
        self._send_fetches()  # to see whether it still holds by the next poll
        raise error

    def _tell(self, error: Exception | None) -> None:
        if error is not None and not any(str(error) == str(known) for known in self._errors):
            self._errors.append(error)

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
                    state.leader_seen(leader, can_validate=self._can_validate(known.leader))

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

    def _back_off(self, partitions: Iterable[TopicPartition]) -> None:
        now = self._now()
        for partition in partitions:
            if (state := self._subscription.find(partition)) is not None:
                state.failed(now, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)

    def _retry_now(self, partition: TopicPartition) -> None:
        if (state := self._subscription.find(partition)) is not None:
            state.retry_at = 0.0

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


def _problem(partition: TopicPartition, offset: int, code: ErrorCode) -> str:
    match code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"this client may not read topic {partition.topic!r}"
        case ErrorCode.CORRUPT_MESSAGE:
            return f"the broker finds the batch at offset {offset} of {partition} corrupt"
    return f"partition {partition} cannot be read at offset {offset}: {code.name}"
