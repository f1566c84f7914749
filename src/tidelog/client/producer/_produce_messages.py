"""Produce as the sender uses it, versions 3 to 13: batches into a request body, an answer into results.

Topics are named by id from version 13 on, which only works where their ids are known. Most answers are about
one partition and carry no complaint; they are read by hand, all others by the generic codec.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.client.metadata import ClusterMetadata, LeaderHint, Node
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.ids import ZERO_UUID, TopicPartition, Uuid
from tidelog.wire.codec import decode
from tidelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from tidelog.wire.produce import TOPIC_ID_SINCE, RecordBuffer, encode_produce_body

LOWEST_VERSION, HIGHEST_VERSION = ProduceResponse.VERSIONS
HIGHEST_VERSION_1_TRANSACTION = 11
"""Newer versions add the partition to the transaction by themselves (KIP-890)."""

# One topic by id, one partition: index, error, base offset, append time, log start; no record errors, no
# message, no tags, throttle time, no tags.
_SINGLE = struct.Struct(">B16sBihqqqBBBBiB")
_SINGLE_SHAPE = (2, 2, 1, 0, 0, 0, 0)


@dataclass(slots=True)
class PartitionResult:
    """What a broker says of one batch."""

    error_code: int
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    current_leader: LeaderHint | None = None


@dataclass(slots=True)
class ProduceResult:
    """What a broker says of all batches of a request."""

    partitions: list[tuple[TopicPartition, PartitionResult]]
    throttle_time_ms: int = 0
    nodes: list[Node] = field(default_factory=list)


def produce_body(
    version: int,
    batches: Sequence[ProducerBatch],
    topic_ids: Mapping[str, Uuid],
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> list[RecordBuffer]:
    """The body of a request with these batches, at most one per partition."""
    topics: dict[str, list[tuple[int, RecordBuffer | None]]] = {}
    for batch in batches:
        topic, partition = batch.topic_partition
        topics.setdefault(topic, []).append((partition, batch.encode()))
    named = [(name, topic_ids.get(name), partitions) for name, partitions in topics.items()]
    return encode_produce_body(version, transactional_id, acks, timeout_ms, named)


def topic_ids_of(batches: Sequence[ProducerBatch], metadata: ClusterMetadata) -> dict[str, Uuid]:
    """The ids of the batches' topics, as far as they are known."""
    ids: dict[str, Uuid] = {}
    for batch in batches:
        topic = metadata.topics.get(batch.topic_partition.topic)
        if topic is not None and topic.topic_id != ZERO_UUID:
            ids[topic.name] = topic.topic_id
    return ids


def highest_version(batches: Sequence[ProducerBatch], topic_ids: Mapping[str, Uuid], version_1: bool) -> int:
    """The newest version that these batches can be sent in."""
    if version_1:
        return HIGHEST_VERSION_1_TRANSACTION
    if any(batch.topic_partition.topic not in topic_ids for batch in batches):
        return TOPIC_ID_SINCE - 1
    return HIGHEST_VERSION


def read_produce_response(
    body: bytes | memoryview, version: int, batches: Sequence[ProducerBatch], topic_ids: Mapping[str, Uuid]
) -> ProduceResult:
    """The answer to a request with ``batches``; raises ``WireError`` for garbage."""
    if version >= TOPIC_ID_SINCE and len(batches) == 1 and len(body) == _SINGLE.size:
        fields = _SINGLE.unpack(body)
        topics, topic_id, partitions, index, error, base, append_time, log_start, *rest = fields
        shape = (topics, partitions, rest[0], rest[1], rest[2], rest[3], rest[5])
        partition = batches[0].topic_partition
        if shape == _SINGLE_SHAPE and index == partition.partition and topic_id == topic_ids[partition.topic]:
            result = PartitionResult(error, base, append_time, log_start)
            return ProduceResult([(partition, result)], rest[4])
    return _read_any(decode(ProduceResponse, version, body)[0], version, topic_ids)


def _read_any(response: ProduceResponse, version: int, topic_ids: Mapping[str, Uuid]) -> ProduceResult:
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    partitions = [
        (
            TopicPartition(
                names.get(topic.topic_id, "") if version >= TOPIC_ID_SINCE else topic.name, each.index
            ),
            _result(each),
        )
        for topic in response.responses
        for each in topic.partition_responses
    ]
    nodes = [Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
    return ProduceResult(partitions, response.throttle_time_ms, nodes)


def _result(answer: PartitionProduceResponse) -> PartitionResult:
    leader = answer.current_leader
    return PartitionResult(
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
        answer.error_message,
        [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors],
        None
        if leader.leader_id < 0 or leader.leader_epoch < 0
        else LeaderHint(leader.leader_id, leader.leader_epoch),
    )
