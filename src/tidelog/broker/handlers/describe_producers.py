"""DescribeProducers, version 0: the producers that a partition remembers.

Idempotent and transactional producers are remembered until ``producer.id.expiration.ms`` after their last
batch; where a transaction is under way its first offset is told.
"""

from __future__ import annotations

from tidelog.broker.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.controller.topic_names import validate_topic_name
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.replication.partitions import Partitions
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.storage.log.log import Log
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)

API = ApiKey.DESCRIBE_PRODUCERS
VERSIONS = (0, 0)


def handle(
    context: RequestContext,
    request: DescribeProducersRequest,
    image: MetadataImage,
    partitions: Partitions,
    authorization: Authorization,
) -> DescribeProducersResponse:
    """Describe partition by partition."""
    return DescribeProducersResponse(
        topics=[_topic(context, topic, image, partitions, authorization) for topic in request.topics]
    )


def refuse(request: DescribeProducersRequest, error: KafkaError) -> DescribeProducersResponse:
    """The same error for every partition."""
    return DescribeProducersResponse(topics=[_refusal(topic, error) for topic in request.topics])


def _topic(
    context: RequestContext,
    topic: TopicRequest,
    image: MetadataImage,
    partitions: Partitions,
    authorization: Authorization,
) -> TopicResponse:
    try:
        validate_topic_name(topic.name)
        authorization.require(context.session, Operation.READ, ResourceType.TOPIC, topic.name)
        if topic.name not in image.topics:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
    except KafkaError as error:
        return _refusal(topic, error)
    return TopicResponse(
        name=topic.name,
        partitions=[_partition(context, topic.name, index, partitions) for index in topic.partition_indexes],
    )


def _partition(context: RequestContext, topic: str, index: int, partitions: Partitions) -> PartitionResponse:
    try:
        partition = partitions.get(topic, index)
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code)
    return PartitionResponse(partition_index=index, active_producers=_producers(partition.log))


def _producers(log: Log) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.txn_first_offset,
        )
        for entry in log.producers.entries.values()
    ]


def _refusal(topic: TopicRequest, error: KafkaError) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        partitions=[
            PartitionResponse(
                partition_index=index, error_code=error.code, error_message=error.message or None
            )
            for index in topic.partition_indexes
        ],
    )
