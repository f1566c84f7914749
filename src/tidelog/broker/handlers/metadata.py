"""Metadata 0 to 13: brokers, topics and partitions as clients need them, and automatic topic creation.

Behaviour as in Kafka: null topics mean all of them (in version 0 an empty list does), topics by id since
version 12 (10 and 11 carry ids only in answers), unknown names are created when the client (since version
4) and ``auto.create.topics.enable`` allow it, names that no topic can have are INVALID_TOPIC_EXCEPTION;
topics that are there come first in the answer.
Endpoints are those of the listener that the request came in by; a leader without such a listener is
LISTENER_NOT_FOUND since version 6, LEADER_NOT_AVAILABLE before. Authorized operations are all operations,
as without an authorizer.

A topic that is created on the way is UNKNOWN_TOPIC_OR_PARTITION in that answer, as in Kafka: clients ask
again, and some count on an unknown topic being told apart from an old one.

Difference: a topic that cannot be created says why in the same answer, where Kafka leaves it unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from tidelog.broker.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tidelog.broker.context import RequestContext
from tidelog.controller.topic_names import reason_invalid
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import INTERNAL_TOPICS, ZERO_UUID, Uuid
from tidelog.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.metadata.znodes import NO_LEADER
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API = ApiKey.METADATA
VERSIONS = (0, 13)

_BY_ID_SINCE = 12
_LISTENER_ERROR_SINCE = 6


def handle(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Describe the cluster and the topics asked for; waits only where topics are to be created first."""
    if request.topics is None or (context.version == 0 and not request.topics):
        return _response(
            context, request, [_topic(context, each) for each in context.broker.image.topics.values()]
        )
    _check_names_and_ids(context, request)
    ids = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID)
    if ids:
        return _response(context, request, [_topic_by_id(context, topic_id) for topic_id in ids])
    asked = dict.fromkeys(topic.name for topic in request.topics if topic.name is not None)
    missing = [name for name in asked if name not in context.broker.image.topics]
    names = [name for name in asked if name in context.broker.image.topics] + missing
    if (
        missing
        and request.allow_auto_topic_creation
        and context.broker.config.bool("auto.create.topics.enable")
    ):
        return _create_and_describe(context, request, names, missing)
    return _response(context, request, [_topic_by_name(context, name) for name in names])


async def _create_and_describe(
    context: RequestContext, request: MetadataRequest, names: list[str], missing: list[str]
) -> MetadataResponse:
    errors = await context.broker.controller.auto_create_topics(missing)
    topics = [
        _unknown(name, errors.get(name)) if name in errors else _topic_by_name(context, name)
        for name in names
    ]
    return _response(context, request, topics)


def _response(
    context: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    image = context.broker.image
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=_brokers(context),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def refuse(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """The same error for every topic that was asked for."""
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


def _check_names_and_ids(context: RequestContext, request: MetadataRequest) -> None:
    if context.version >= _BY_ID_SINCE:
        return
    for topic in request.topics or ():
        if topic.name is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {context.version}"
            )
        if topic.topic_id != ZERO_UUID:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Topic IDs are not supported in requests for version {context.version}",
            )


def _topic_by_id(context: RequestContext, topic_id: Uuid) -> MetadataResponseTopic:
    topic = context.broker.image.topic_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _topic(context, topic)


def _topic_by_name(context: RequestContext, name: str) -> MetadataResponseTopic:
    topic = context.broker.image.topics.get(name)
    return _unknown(name) if topic is None else _topic(context, topic)


def _unknown(name: str, error: KafkaError | None = None) -> MetadataResponseTopic:
    if error is not None:
        code = error.code
    elif reason_invalid(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _topic(context: RequestContext, topic: TopicImage) -> MetadataResponseTopic:
    image = context.broker.image
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _partition(context, image, index, partition) for index, partition in topic.partitions.items()
        ],
    )


def _partition(
    context: RequestContext, image: MetadataImage, index: int, partition: PartitionImage
) -> MetadataResponsePartition:
    reachable = {id for id in partition.replicas if _has_listener(image, id, context.listener)}
    code = ErrorCode.NONE
    leader = partition.leader
    if leader not in reachable:
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if leader in image.brokers and context.version >= _LISTENER_ERROR_SINCE:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader = NO_LEADER
    replicas: Iterable[int] = partition.replicas
    isr: Iterable[int] = partition.isr
    if context.version == 0:
        # Only here: clients of later versions are told all replicas and find out from the list of brokers.
        replicas = [id for id in replicas if id in reachable]
        isr = [id for id in isr if id in reachable]
        if code == ErrorCode.NONE and len(reachable) < len(partition.replicas):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=[
            id for id in partition.replicas if id not in reachable or id in partition.offline_replicas
        ],
    )


def _has_listener(image: MetadataImage, broker_id: int, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and any(endpoint.name == listener for endpoint in broker.endpoints)


def _brokers(context: RequestContext) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(
            node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        for broker in context.broker.image.brokers.values()
        for endpoint in broker.endpoints
        if endpoint.name == context.listener
    ]
