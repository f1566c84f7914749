"""Offsets by time, and deletion of records: requests that go to the leader of each partition.

Called by ``Admin`` and the consumer. Only partitions whose leader has moved are asked for again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from tidelog.client.cluster import Cluster
from tidelog.client.errors import NoLeaderError, error_from, is_retriable
from tidelog.client.metadata import Node
from tidelog.client.resources import DeletedRecords, IsolationLevel, OffsetResult, OffsetSpec
from tidelog.client.retry import Deadline
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_CONSUMER = -1
_SPECIAL_SINCE: dict[int, int] = {OffsetSpec.MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8}

ResultT = TypeVar("ResultT", OffsetResult, DeletedRecords)
Ask = Callable[[Node, dict[TopicPartition, int]], Awaitable[list[ResultT]]]


async def list_offsets(
    cluster: Cluster,
    partitions: Mapping[TopicPartition, int],
    *,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, OffsetResult]:
    """See :meth:`tidelog.client.admin.Admin.list_offsets`."""
    within = deadline or cluster.deadline()

    async def ask(node: Node, wanted: dict[TopicPartition, int]) -> list[OffsetResult]:
        def build(version: int) -> ListOffsetsRequest:
            _require_specs(wanted, version)
            return _list_offsets_request(wanted, isolation_level)

        response = await cluster.request_node(node.id, build, ListOffsetsResponse, within)
        return [
            OffsetResult(
                TopicPartition(topic.name, each.partition_index),
                each.offset,
                each.timestamp,
                each.leader_epoch,
                error_from(each.error_code, None, f"partition {topic.name}-{each.partition_index}"),
            )
            for topic in response.topics
            for each in topic.partitions
        ]

    return await _ask_leaders(cluster, partitions, ask, OffsetResult, within)


def _list_offsets_request(
    wanted: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index, timestamp in indexes.items()
                ],
            )
            for topic, indexes in _by_topic(wanted).items()
        ],
    )


def _require_specs(wanted: Mapping[TopicPartition, int], version: int) -> None:
    for timestamp in wanted.values():
        if version < _SPECIAL_SINCE.get(timestamp, 0):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"this broker is too old to find {OffsetSpec(timestamp).name.lower().replace('_', ' ')}",
            )


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, DeletedRecords]:
    """See :meth:`tidelog.client.admin.Admin.delete_records`."""
    within = cluster.deadline()

    async def ask(node: Node, wanted: dict[TopicPartition, int]) -> list[DeletedRecords]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=offset)
                        for index, offset in indexes.items()
                    ],
                )
                for topic, indexes in _by_topic(wanted).items()
            ],
            timeout_ms=within.remaining_ms,
        )
        response = await cluster.request_node(node.id, request, DeleteRecordsResponse, within)
        return [
            DeletedRecords(
                TopicPartition(topic.name, each.partition_index),
                each.low_watermark,
                error_from(each.error_code, None, f"partition {topic.name}-{each.partition_index}"),
            )
            for topic in response.topics
            for each in topic.partitions
        ]

    return await _ask_leaders(cluster, before, ask, DeletedRecords, within)


async def _ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    ask: Ask[ResultT],
    result_type: type[ResultT],
    deadline: Deadline,
) -> dict[TopicPartition, ResultT]:
    results: dict[TopicPartition, ResultT] = {}
    todo = dict(wanted)
    backoff = cluster.backoff()
    while todo:
        await cluster.refresh({partition.topic for partition in todo}, deadline=deadline)
        by_leader: dict[Node, dict[TopicPartition, int]] = defaultdict(dict)
        for partition, value in todo.items():
            try:
                by_leader[cluster.leader_of(partition)[0]][partition] = value
            except KafkaError as error:
                results[partition] = result_type(partition, error=error)
            except NoLeaderError as error:
                problem = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error))
                results[partition] = result_type(partition, error=problem)
        for answers in await asyncio.gather(*(ask(node, part) for node, part in by_leader.items())):
            results.update((answer.partition, answer) for answer in answers)
        wait = backoff.next_ms() / 1000
        if wait >= deadline.remaining:
            break
        todo = {p: value for p, value in todo.items() if _is_worth_asking_again(cluster, p, results.get(p))}
        if todo:
            await asyncio.sleep(wait)
    return {partition: results[partition] for partition in wanted if partition in results}


def _is_worth_asking_again(
    cluster: Cluster, partition: TopicPartition, result: OffsetResult | DeletedRecords | None
) -> bool:
    if result is None:
        return True
    topic = cluster.metadata.topics.get(partition.topic)
    exists = topic is not None and partition.partition in topic.partitions
    return exists and result.error is not None and is_retriable(result.error)


def _by_topic(partitions: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = defaultdict(dict)
    for partition, value in partitions.items():
        topics[partition.topic][partition.partition] = value
    return topics
