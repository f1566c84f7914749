"""Log directories: each broker tells of its own, and moves its own replicas. Called by ``AsyncAdmin``."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import partial

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.leaders import by_topic
from tidelog.client._network.retry import Deadline
from tidelog.client._network.unanswered import Unanswered
from tidelog.client.admin.cluster_resources import (
    BrokerLogDirs,
    LogDirDescription,
    ReplicaInfo,
    ReplicaMove,
)
from tidelog.client.errors import error_from
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

_UNKNOWN_SIZE = -1


async def describe_log_dirs(
    cluster: Cluster, broker_ids: Collection[int] | None, partitions: Collection[TopicPartition] | None
) -> dict[int, BrokerLogDirs]:
    """See :meth:`AsyncAdmin.describe_log_dirs`."""
    deadline = cluster.deadline()
    nodes = (await cluster.refresh([], deadline=deadline)).nodes
    wanted = sorted(nodes) if broker_ids is None else list(broker_ids)
    request = DescribeLogDirsRequest(topics=None if partitions is None else _topics(partitions))
    unanswered: Unanswered[int] = Unanswered()
    asked = (
        unanswered.answer(partial(_describe_on, cluster, each, request, deadline), (each,)) for each in wanted
    )
    described = {each.broker_id: each for each in await asyncio.gather(*asked) if each is not None}
    return unanswered.filled_in(
        described,
        wanted,
        lambda broker_id, error: BrokerLogDirs(broker_id, error=error),
        lambda broker_id: f"broker {broker_id}",
    )


async def _describe_on(
    cluster: Cluster, broker_id: int, request: DescribeLogDirsRequest, deadline: Deadline
) -> BrokerLogDirs:
    try:
        response = await cluster.request_node(broker_id, request, DescribeLogDirsResponse, deadline)
    except KafkaError as error:
        return BrokerLogDirs(broker_id, error=error)
    refusal = error_from(response.error_code, None, f"the log directories of broker {broker_id}")
    return BrokerLogDirs(broker_id, tuple(map(_log_dir, response.results)), refusal)


def _log_dir(result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        result.log_dir,
        tuple(
            ReplicaInfo(
                TopicPartition(topic.name, each.partition_index),
                each.partition_size,
                each.offset_lag,
                each.is_future_key,
            )
            for topic in result.topics
            for each in topic.partitions
        ),
        None if result.total_bytes == _UNKNOWN_SIZE else result.total_bytes,
        None if result.usable_bytes == _UNKNOWN_SIZE else result.usable_bytes,
        error_from(result.error_code, None, f"log directory {result.log_dir}"),
    )


def _topics(partitions: Collection[TopicPartition]) -> list[DescribableLogDirTopic]:
    return [
        DescribableLogDirTopic(topic=name, partitions=list(indexes))
        for name, indexes in by_topic(dict.fromkeys(partitions, None)).items()
    ]


async def alter_replica_log_dirs(
    cluster: Cluster, moves: Mapping[tuple[int, TopicPartition], str]
) -> list[ReplicaMove]:
    """See :meth:`AsyncAdmin.alter_replica_log_dirs`."""
    deadline = cluster.deadline()
    by_broker: dict[int, dict[str, dict[TopicPartition, None]]] = defaultdict(lambda: defaultdict(dict))
    for (broker_id, partition), path in moves.items():
        by_broker[broker_id][path][partition] = None
    unanswered: Unanswered[tuple[int, TopicPartition]] = Unanswered()
    asked = (
        unanswered.answer(
            partial(_alter_on, cluster, each, dirs, deadline),
            [(each, partition) for partitions in dirs.values() for partition in partitions],
        )
        for each, dirs in by_broker.items()
    )
    begun = {
        (move.broker_id, move.partition): move for part in await asyncio.gather(*asked) for move in part or ()
    }
    return list(
        unanswered.filled_in(
            begun,
            moves,
            lambda key, error: ReplicaMove(*key, error),
            lambda key: f"broker {key[0]}",
        ).values()
    )


async def _alter_on(
    cluster: Cluster, broker_id: int, dirs: Mapping[str, dict[TopicPartition, None]], deadline: Deadline
) -> list[ReplicaMove]:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=list(indexes))
                    for name, indexes in by_topic(partitions).items()
                ],
            )
            for path, partitions in dirs.items()
        ]
    )
    try:
        response = await cluster.request_node(broker_id, request, AlterReplicaLogDirsResponse, deadline)
    except KafkaError as error:
        return [ReplicaMove(broker_id, each, error) for partitions in dirs.values() for each in partitions]
    return [
        ReplicaMove(
            broker_id,
            TopicPartition(topic.topic_name, each.partition_index),
            error_from(each.error_code, None, f"partition {topic.topic_name}-{each.partition_index}"),
        )
        for topic in response.results
        for each in topic.partitions
    ]
