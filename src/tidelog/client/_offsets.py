"""Offsets by time, and deletion of records: requests that go to the leader of each partition.

Called by ``AsyncAdmin`` and the consumer.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.leaders import ask_leaders, by_topic
from tidelog.client._network.retry import Deadline
from tidelog.client.errors import error_from
from tidelog.client.metadata import Node
from tidelog.client.resources import DeletedRecords, IsolationLevel, OffsetResult, OffsetSpec
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


async def list_offsets(
    cluster: Cluster,
    partitions: Mapping[TopicPartition, int],
    *,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, OffsetResult]:
    """See :meth:`AsyncAdmin.list_offsets`."""
    within = deadline or cluster.deadline()

    async def ask(node: Node, wanted: dict[TopicPartition, int]) -> list[OffsetResult]:
        def build(version: int) -> ListOffsetsRequest:
            _require_specs(wanted, version)
            return _list_offsets_request(wanted, isolation_level)

        response = await cluster.request_node_once(node, build, ListOffsetsResponse, within)
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

    def refuse(partition: TopicPartition, error: KafkaError) -> OffsetResult:
        return OffsetResult(partition, error=error)

    return await ask_leaders(cluster, partitions, ask, refuse, within)


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
            for topic, indexes in by_topic(wanted).items()
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
    """See :meth:`AsyncAdmin.delete_records`."""
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
                for topic, indexes in by_topic(wanted).items()
            ],
            timeout_ms=within.remaining_ms,
        )
        response = await cluster.request_node_once(node, request, DeleteRecordsResponse, within)
        return [
            DeletedRecords(
                TopicPartition(topic.name, each.partition_index),
                each.low_watermark,
                error_from(each.error_code, None, f"partition {topic.name}-{each.partition_index}"),
            )
            for topic in response.topics
            for each in topic.partitions
        ]

    def refuse(partition: TopicPartition, error: KafkaError) -> DeletedRecords:
        return DeletedRecords(partition, error=error)

    return await ask_leaders(cluster, before, ask, refuse, within)
