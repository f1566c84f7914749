"""The producers that partitions know, and the transactions in them that hang.

A transaction hangs where a partition has it open and no coordinator will ever end it: its producer belongs to
no transactional id, or the id's transaction does not contain the partition (KIP-664). It holds up the last
stable offset, and so every read_committed consumer. Called by ``AsyncAdmin``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.leaders import ask_leaders, by_topic, split_by_leader
from tidelog.client.admin._transactions import describe_transactions, list_transactions
from tidelog.client.admin.transaction_resources import (
    HangingTransactions,
    OpenTransaction,
    PartitionProducers,
    ProducerState,
)
from tidelog.client.errors import error_from
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages import describe_producers as describe

_PARTITIONS_PER_REQUEST = 500


async def describe_producers(
    cluster: Cluster, partitions: Collection[TopicPartition], *, broker_id: int | None = None
) -> dict[TopicPartition, PartitionProducers]:
    """See :meth:`AsyncAdmin.describe_producers`."""
    deadline = cluster.deadline()

    async def ask_leader(node: Node, wanted: dict[TopicPartition, None]) -> list[PartitionProducers]:
        response_type = describe.DescribeProducersResponse
        return _answers(await cluster.request_node_once(node, _request(wanted), response_type, deadline))

    def refuse(partition: TopicPartition, error: KafkaError) -> PartitionProducers:
        return PartitionProducers(partition, error=error)

    found: dict[TopicPartition, PartitionProducers] = {}
    for some in _batches(sorted(partitions), _PARTITIONS_PER_REQUEST):
        if broker_id is None:
            found |= await ask_leaders(cluster, dict.fromkeys(some, None), ask_leader, refuse, deadline)
        else:
            response_type = describe.DescribeProducersResponse
            response = await cluster.request_node(broker_id, _request(some), response_type, deadline)
            found |= {each.partition: each for each in _answers(response)}
    return found


def _request(wanted: Collection[TopicPartition]) -> describe.DescribeProducersRequest:
    return describe.DescribeProducersRequest(
        topics=[
            describe.TopicRequest(name=topic, partition_indexes=list(indexes))
            for topic, indexes in by_topic(dict.fromkeys(wanted, None)).items()
        ]
    )


def _answers(response: describe.DescribeProducersResponse) -> list[PartitionProducers]:
    return [_producers(topic.name, each) for topic in response.topics for each in topic.partitions]


def _producers(topic: str, answer: describe.PartitionResponse) -> PartitionProducers:
    partition = TopicPartition(topic, answer.partition_index)
    states = (
        ProducerState(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch if each.coordinator_epoch >= 0 else None,
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for each in answer.active_producers
    )
    return PartitionProducers(
        partition,
        tuple(sorted(states, key=lambda each: each.producer_id)),
        error_from(answer.error_code, answer.error_message, f"partition {partition}"),
    )


async def find_hanging_transactions(
    cluster: Cluster,
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker_id: int | None = None,
    idle_longer_than_ms: int,
) -> HangingTransactions:
    """See :meth:`AsyncAdmin.find_hanging_transactions`."""
    wanted = await _partitions_to_search(cluster, topic, partition, broker_id)
    errors: list[KafkaError] = []
    if broker_id is None:
        wanted, problems = await split_by_leader(cluster, wanted)
        errors += problems.values()
    described = (await describe_producers(cluster, wanted, broker_id=broker_id)).values()
    errors += [each.error for each in described if each.error is not None]
    oldest_ms = time.time() * 1000 - idle_longer_than_ms
    candidates = [
        OpenTransaction(each.partition, producer)
        for each in described
        for producer in each.producers
        if producer.txn_start_offset is not None and producer.last_timestamp_ms < oldest_ms
    ]
    hanging = await _without_coordinator(cluster, candidates) if candidates else ()
    return HangingTransactions(tuple(hanging), len(wanted), tuple(errors))


async def _partitions_to_search(
    cluster: Cluster, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    metadata = await cluster.refresh(None if topic is None else [topic])
    if broker_id is not None:
        cluster.known_node(broker_id)
    if topic is not None and (topic not in metadata.topics or metadata.topics[topic].error):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
    return [
        TopicPartition(each.name, known.partition)
        for _, each in sorted(metadata.topics.items())
        for known in each.partitions.values()
        if broker_id is None or broker_id in known.replicas
    ]


async def _without_coordinator(
    cluster: Cluster, candidates: Sequence[OpenTransaction]
) -> list[OpenTransaction]:
    producer_ids = {each.producer.producer_id for each in candidates}
    listed = await list_transactions(cluster, producer_ids=producer_ids)
    for error in listed.errors:
        # A coordinator that does not answer may know the transaction: calling it hanging would be a guess.
        raise error
    names = {each.producer_id: each.transactional_id for each in listed.transactions}
    described = await describe_transactions(cluster, names.values()) if names else {}
    expected: dict[int, tuple[TopicPartition, ...]] = {}
    for producer_id, name in names.items():
        description = described[name]
        if description.error is None:
            expected[producer_id] = description.partitions
        elif description.error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise description.error
    return [each for each in candidates if each.partition not in expected.get(each.producer.producer_id, ())]


def _batches(items: Sequence[TopicPartition], size: int) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
