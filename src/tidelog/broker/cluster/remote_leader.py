"""Another broker as the leader of partitions that this one follows: fetches and offsets over the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.broker.cluster.peer import Peer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, Uuid
from tidelog.metadata.broker_config import BrokerConfig
from tidelog.replication.leader_endpoint import FetchedPartition, FollowerPosition
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import encode
from tidelog.wire.fetch_response import decode_fetch_response
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_LOWEST, _HIGHEST = 12, 17
_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
_EARLIEST = -2
_LATEST = -1
_NO_SESSION = -1


class RemoteLeader:
    """Satisfies ``LeaderEndpoint``."""

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], peer: Peer, config: BrokerConfig
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._peer = peer
        self._config = config

    async def fetch(
        self, positions: Mapping[TopicPartition, FollowerPosition]
    ) -> dict[TopicPartition, FetchedPartition]:
        timeout_ms = self._config.int("replica.socket.timeout.ms")
        connection = await self._peer.connection(timeout_ms)
        version = connection.require_version(ApiKey.FETCH, _LOWEST, _HIGHEST)
        body = encode(self._request(positions, version), version)
        answer = await connection.send(ApiKey.FETCH, version, [body], timeout_ms / 1000)
        result = decode_fetch_response(version, memoryview(answer))
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(result.error_code), "the fetch was refused")
        names = {(position.topic_id, name.partition): name for name, position in positions.items()}
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
                        each.records if isinstance(each.records, memoryview) else memoryview(b""),
                    )
        return found

    def _request(self, positions: Mapping[TopicPartition, FollowerPosition], version: int) -> FetchRequest:
        max_bytes = self._config.int("replica.fetch.max.bytes")
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
                    partition_max_bytes=max_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=self._config.int("replica.fetch.wait.max.ms"),
            min_bytes=self._config.int("replica.fetch.min.bytes"),
            max_bytes=self._config.int("replica.fetch.response.max.bytes"),
            session_epoch=_NO_SESSION,
            topics=list(topics.values()),
        )
        if version >= _REPLICA_STATE_SINCE:
            request.replica_state = ReplicaState(
                replica_id=self._broker_id, replica_epoch=self._broker_epoch()
            )
        else:
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
