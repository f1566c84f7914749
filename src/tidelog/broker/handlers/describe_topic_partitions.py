"""DescribeTopicPartitions, version 0: topics and their partitions, page by page.

Topics are answered sorted by name, without any in the request all of them. A page ends after
``response_partition_limit`` partitions (at most ``max.request.partition.size.limit``, at least one);
``next_cursor`` says where the next begins, and the cursor's topic must be among those asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.authorized_operations import topic_operations
from tidelog.broker.context import RequestContext
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.topic_names import reason_invalid
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

API = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = (0, 0)

_SORTED_AT_ONCE = 2048


def handle(
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    image: MetadataImage,
    config: BrokerConfig,
    authorization: Authorization,
) -> Slices[DescribeTopicPartitionsResponse]:
    """One page."""
    most = config.int("max.request.partition.size.limit")
    room = max(min(most, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    session = context.session
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for name in (yield from _names(request, image)):
        yield
        if not authorization.allows_topic(session, Operation.DESCRIBE, name, quiet=not request.topics):
            if request.topics:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                denied.append(DescribeTopicPartitionsResponseTopic(name=name, error_code=code))
            continue
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name, topic_operations(authorization, session, name)))
            continue
        start = request.cursor.partition_index if request.cursor and request.cursor.topic_name == name else 0
        # In a cluster some may not be known yet, or be gone already.
        rest = [index for index in sorted(topic.partitions) if index >= start]
        described = [_partition(index, topic.partitions[index], image) for index in rest[:room]]
        response.topics.append(_topic(topic, described, topic_operations(authorization, session, name)))
        if len(rest) > room:
            response.next_cursor = Cursor(topic_name=name, partition_index=rest[room])
            break
        room -= len(described)
    response.topics += denied
    return response


def _names(request: DescribeTopicPartitionsRequest, image: MetadataImage) -> Slices[Iterator[str]]:
    """The topics from the cursor on, sorted."""
    cursor = request.cursor
    asked: dict[str, None] = {}
    named = (topic.name for topic in request.topics) if request.topics else list(image.topics)
    for name in named:
        if cursor is None or name >= cursor.topic_name:
            asked[name] = None
        yield
    if cursor is not None and request.topics and cursor.topic_name not in asked:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}",
        )
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor.partition_index}",
        )
    # All of them sorted at once would take long.
    names = iter(asked)
    runs: list[list[str]] = []
    while run := sorted(islice(names, _SORTED_AT_ONCE)):
        runs.append(run)
        yield
    return iter(heapq.merge(*runs))


def _unknown(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    invalid = reason_invalid(name) is not None
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topic_authorized_operations=operations,
    )


def _topic(
    topic: TopicImage, partitions: list[DescribeTopicPartitionsResponsePartition], operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _partition(
    index: int, partition: PartitionImage, image: MetadataImage
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader if partition.leader in image.brokers else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[
            replica
            for replica in partition.replicas
            if replica not in image.brokers or replica in partition.offline_replicas
        ],
    )
