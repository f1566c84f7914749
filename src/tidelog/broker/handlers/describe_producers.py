"""DescribeProducers, version 0: the producers that a partition remembers.

Idempotent and transactional producers are remembered until ``producer.id.expiration.ms`` after their last
batch; where a transaction is under way its first offset is told. A partition that is named twice is described
twice, with the same list.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.controller.topic_names import validate_topic_name
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation, ResourceType
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

_PRODUCERS_AT_ONCE = 64


def handle(
    context: RequestContext,
    request: DescribeProducersRequest,
    image: MetadataImage,
    partitions: Partitions,
    authorization: Authorization,
) -> Slices[DescribeProducersResponse]:
    """Describe partition by partition."""
    response = DescribeProducersResponse()
    known: dict[TopicPartition, PartitionResponse] = {}
    for topic in request.topics:
        yield
        refusal = _refusal_of(context, topic, image, authorization)
        answer = TopicResponse(name=topic.name)
        response.topics.append(answer)
        for index in topic.partition_indexes:
            if refusal is not None:
                answer.partitions.append(_refused(index, refusal))
            else:
                name = TopicPartition(topic.name, index)
                if name not in known:
                    known[name] = yield from _partition(name, partitions)
                answer.partitions.append(known[name])
            yield
    return response


def _refusal_of(
    context: RequestContext, topic: TopicRequest, image: MetadataImage, authorization: Authorization
) -> KafkaError | None:
    try:
        validate_topic_name(topic.name)
        authorization.require(context.session, Operation.READ, ResourceType.TOPIC, topic.name)
        if topic.name not in image.topics:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
    except KafkaError as error:
        return error
    return None


def _partition(name: TopicPartition, partitions: Partitions) -> Slices[PartitionResponse]:
    try:
        partition = partitions.get(name.topic, name.partition)
    except KafkaError as error:
        return PartitionResponse(partition_index=name.partition, error_code=error.code)
    answer = PartitionResponse(partition_index=name.partition)
    for count, entry in enumerate(list(partition.log.producers.entries.values())):
        answer.active_producers.append(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.txn_first_offset,
            )
        )
        if count % _PRODUCERS_AT_ONCE == 0:
            yield
    return answer


def _refusal(topic: TopicRequest, error: KafkaError) -> TopicResponse:
    return TopicResponse(
        name=topic.name, partitions=[_refused(index, error) for index in topic.partition_indexes]
    )


def _refused(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message or None
    )
