"""Another broker as the leader of partitions that this one follows: fetches and offsets over the network.

Fetches go in a session (KIP-227): a request names the partitions in which this broker has got further, an
answer those with news. The session begins anew, with a request that names everything, after anything that
went wrong, and whenever a partition leaves, or is led in another epoch: that is rare, and so nothing of an
answer that was passed over is ever missed.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.cluster.peer_broker import PeerBroker
from tidelog.client._network.connection import Body
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.ids import TopicPartition, Uuid
from tidelog.replication.leader_endpoint import (
    Answers,
    FetchedPartition,
    FollowerPosition,
    OnAnswers,
    Positions,
)
from tidelog.wire import follower_fetch
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import encode
from tidelog.wire.fetch_response import decode_fetch_response
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_LOWEST, _HIGHEST = 12, 17
_EARLIEST = -2
_LATEST = -1
_NO_SESSION = -1
_BEGIN = 0
_LAST_EPOCH = 2**31 - 1
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_NO_RECORDS = memoryview(b"")


class _FetchAnswer:
    """Takes the answer to a fetch in the turn of the loop in which it comes; an ``AnswerTaker``."""

    __slots__ = ("_leader", "_on_answers", "_positions", "_version")

    def __init__(
        self, leader: RemoteLeader, version: int, positions: Positions, on_answers: OnAnswers
    ) -> None:
        self._leader = leader
        self._version = version
        self._positions = positions
        self._on_answers = on_answers

    def done(self) -> bool:
        return False

    def set_result(self, result: Body) -> None:
        try:
            answers = self._leader.read_answers(self._version, self._positions, result)
        except Exception as error:
            self._on_answers(error)
        else:
            self._on_answers(answers)

    def set_exception(self, exception: Exception) -> None:
        self._leader.end_session()
        self._on_answers(exception)


class RemoteLeader:
    """Satisfies ``LeaderEndpoint``."""

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], peer: PeerBroker, config: BrokerConfig
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._peer = peer
        self._config = config
        self._session_id = 0
        self._session_epoch = _BEGIN
        self._told: Positions = {}
        """What the leader's session knows."""
        self._names: dict[tuple[Uuid, int], TopicPartition] = {}
        """The partitions that were asked for by the ids of their topics, in this session."""
        # None of these changes while a broker runs.
        self._partition_max_bytes = config.int("replica.fetch.max.bytes")
        self._limits = (
            config.int("replica.fetch.wait.max.ms"),
            config.int("replica.fetch.min.bytes"),
            config.int("replica.fetch.response.max.bytes"),
        )

    async def fetch(self, positions: Positions) -> Answers:
        timeout_ms = self._config.int("replica.socket.timeout.ms")
        connection = self._peer.known_connection or await self._peer.connection(timeout_ms)
        version = connection.require_version(ApiKey.FETCH, _LOWEST, _HIGHEST)
        if version >= follower_fetch.LOWEST:
            body = self._quick_request(positions)
        else:
            body = encode(self._request(positions), version)
            self._names = {(position.topic_id, name.partition): name for name, position in positions.items()}
        try:
            answer = await connection.send(ApiKey.FETCH, version, [body], timeout_ms / 1000)
        except BaseException:
            self.end_session()
            raise
        return self.read_answers(version, positions, answer)

    def begin_fetch(self, positions: Positions, on_answers: OnAnswers) -> bool:
        connection = self._peer.known_connection
        if connection is None:
            return False
        version = connection.version_of(ApiKey.FETCH, _LOWEST, _HIGHEST)
        if version is None or version < follower_fetch.LOWEST:
            return False
        taker = _FetchAnswer(self, version, positions, on_answers)
        timeout_ms = self._config.int("replica.socket.timeout.ms")
        body = self._quick_request(positions)
        connection.send_for(taker, ApiKey.FETCH, version, [body], timeout_ms / 1000)
        return True

    def read_answers(self, version: int, positions: Positions, body: Body) -> Answers:
        """What is in the body of an answer; raises what is wrong with it."""
        try:
            result = decode_fetch_response(version, memoryview(body))
        except WireError:
            self.end_session()
            raise
        if result.error_code != ErrorCode.NONE:
            in_session = self._session_epoch != _BEGIN
            self.end_session()
            if in_session and result.error_code in _SESSION_ERRORS:
                # The leader has had to forget it: the next fetch begins another.
                return {}
            raise KafkaError(ErrorCode(result.error_code), "the fetch was refused")
        if result.session_id and version >= follower_fetch.LOWEST:
            self._session_id = result.session_id
            self._session_epoch = self._session_epoch + 1 if self._session_epoch < _LAST_EPOCH else 1
            self._told = positions
        else:
            self.end_session()
        names = self._names
        found: dict[TopicPartition, FetchedPartition] = {}
        for topic, topic_id, partitions in result.topics:
            for each in partitions:
                if topic_id is not None:
                    name = names.get((topic_id, each.partition))
                else:
                    name = TopicPartition(topic or "", each.partition)
                if name is not None:
                    found[name] = FetchedPartition(
                        each.error_code,
                        each.high_watermark,
                        each.log_start_offset,
                        each.diverging_epoch,
                        each.records if isinstance(each.records, memoryview) else _NO_RECORDS,
                    )
        return found

    def end_session(self) -> None:
        """Begin another with the next fetch."""
        self._session_epoch = _BEGIN

    def _news(self, positions: Positions) -> Positions:
        """Of the positions those that the leader's session does not know; all if it has to begin anew."""
        if self._session_epoch != _BEGIN:
            told = self._told
            news: dict[TopicPartition, FollowerPosition] = {}
            added = 0
            for name, position in positions.items():
                before = told.get(name)
                if before is None:
                    added += 1
                elif before is position or before == position:
                    continue
                elif before.topic_id != position.topic_id or before.leader_epoch != position.leader_epoch:
                    break
                news[name] = position
            else:
                if len(told) + added == len(positions):
                    return news
            self.end_session()
        return positions

    def _quick_request(self, positions: Positions) -> bytes:
        topics: dict[Uuid, list[follower_fetch.FollowedPartition]] = {}
        news = self._news(positions)
        if self._session_epoch == _BEGIN:
            self._names.clear()
        for name, (topic_id, offset, start, epoch, last_epoch) in news.items():
            index = name.partition
            self._names[topic_id, index] = name
            partition = index, epoch, offset, last_epoch, start
            if topic_id in topics:
                topics[topic_id].append(partition)
            else:
                topics[topic_id] = [partition]
        return follower_fetch.encode_follower_fetch(
            self._limits,
            (self._broker_id, self._broker_epoch()),
            topics.items(),
            self._partition_max_bytes,
            (self._session_id, self._session_epoch),
        )

    def _request(self, positions: Positions) -> FetchRequest:
        topics: dict[tuple[str, Uuid], FetchTopic] = {}
        for name, position in positions.items():
            topic = topics.setdefault(
                (name.topic, position.topic_id), FetchTopic(topic=name.topic, topic_id=position.topic_id)
            )
            topic.partitions.append(
                FetchPartition(
                    partition=name.partition,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self._partition_max_bytes,
                )
            )
        max_wait_ms, min_bytes, max_bytes = self._limits
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_epoch=_NO_SESSION,
            topics=list(topics.values()),
        )
        request.replica_id = self._broker_id
        return request

    async def log_bounds(self, partition: TopicPartition, leader_epoch: int) -> tuple[int, int]:
        earliest = await self._offset(partition, leader_epoch, _EARLIEST)
        return earliest, await self._offset(partition, leader_epoch, _LATEST)

    async def _offset(self, partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        request = ListOffsetsRequest(
            replica_id=self._broker_id,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.partition,
                            current_leader_epoch=leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        response = await self._peer.request(
            request, ListOffsetsResponse, self._config.int("replica.socket.timeout.ms")
        )
        (topic,) = response.topics
        (answer,) = topic.partitions
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(answer.error_code), "the leader does not tell its offsets")
        return answer.offset

    async def close(self) -> None:
        await self._peer.close()
