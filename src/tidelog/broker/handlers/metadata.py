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

from tidelog.broker.authorized_operations import CLUSTER_OPERATIONS
from tidelog.broker.context import RequestContext
from tidelog.broker.metadata_cache import Variant
from tidelog.broker.slow_lane import EncodedResponse, Work
from tidelog.controller.topic_names import reason_invalid
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import INTERNAL_TOPICS, ZERO_UUID, Uuid
from tidelog.metadata.image import TopicImage
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

API = ApiKey.METADATA
VERSIONS = (0, 13)

_BY_ID_SINCE = 12
_ASKED_AT_ONCE = 256


def handle(
    context: RequestContext, request: MetadataRequest
) -> Work[EncodedResponse | Awaitable[Work[EncodedResponse]]]:
    """Describe the cluster and the topics asked for; waits only where topics are to be created first."""
    if request.topics is None or (context.version == 0 and not request.topics):
        return (yield from _response(context, request, None))
    ids: dict[Uuid, None] = {}
    known: dict[str, None] = {}
    missing: dict[str, None] = {}
    for count, topic in enumerate(request.topics, 1):
        _check_name_and_id(context, topic)
        if topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] = None
        if topic.name is not None:
            (known if topic.name in context.broker.image.topics else missing)[topic.name] = None
        if not count % _ASKED_AT_ONCE:
            yield
    if ids:
        by_id = (_topic_by_id(context, topic_id) for topic_id in ids)
        return (yield from _response(context, request, by_id))
    if (
        missing
        and request.allow_auto_topic_creation
        and context.broker.config.bool("auto.create.topics.enable")
    ):
        return _create_and_describe(context, request, [*known, *missing], list(missing))
    by_name = (_topic_by_name(context, name) for name in (*known, *missing))
    return (yield from _response(context, request, by_name))


async def _create_and_describe(
    context: RequestContext, request: MetadataRequest, names: list[str], missing: list[str]
) -> Work[EncodedResponse]:
    errors = await context.broker.controller.auto_create_topics(missing)
    topics = (
        _unknown(name, errors.get(name)) if name in errors else _topic_by_name(context, name)
        for name in names
    )
    return _response(context, request, topics)


def _response(
    context: RequestContext,
    request: MetadataRequest,
    topics: Iterable[TopicImage | MetadataResponseTopic] | None,
) -> Work[EncodedResponse]:
    """The answer; without ``topics`` it tells of all."""
    cache = context.broker.metadata_cache
    variant = Variant(context.version, context.listener, request.include_topic_authorized_operations)
    if topics is None:
        elements = yield from cache.all_topics(variant)
    else:
        elements = yield from cache.topics(variant, topics)
    image = context.broker.image
    response = MetadataResponse(
        brokers=_brokers(context), cluster_id=image.cluster_id, controller_id=image.controller_id
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return EncodedResponse(response, "topics", *elements)


def refuse(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """The same error for every topic that was asked for."""
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


def _check_name_and_id(context: RequestContext, topic: MetadataRequestTopic) -> None:
    if context.version >= _BY_ID_SINCE:
        return
    if topic.name is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {context.version}"
        )
    if topic.topic_id != ZERO_UUID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Topic IDs are not supported in requests for version {context.version}",
        )


def _topic_by_id(context: RequestContext, topic_id: Uuid) -> TopicImage | MetadataResponseTopic:
    topic = context.broker.image.topic_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return topic


def _topic_by_name(context: RequestContext, name: str) -> TopicImage | MetadataResponseTopic:
    topic = context.broker.image.topics.get(name)
    return _unknown(name) if topic is None else topic


def _unknown(name: str, error: KafkaError | None = None) -> MetadataResponseTopic:
    if error is not None:
        code = error.code
    elif reason_invalid(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _brokers(context: RequestContext) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(
            node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        for broker in context.broker.image.brokers.values()
        for endpoint in broker.endpoints
        if endpoint.name == context.listener
    ]
