"""Metadata 0 to 13: brokers, topics and partitions as clients need them, and automatic topic creation.

Behaviour as in Kafka: null topics mean all of them (in version 0 an empty list does), topics by id since
version 12 (10 and 11 carry ids only in answers), unknown names are created when the client (since version
4) and ``auto.create.topics.enable`` allow it, names that no topic can have are INVALID_TOPIC_EXCEPTION;
topics that are there come first in the answer, then those that are not, those that the client may not create,
and those that it may not describe: of these it is not even looked whether they are there.
Endpoints are those of the listener that the request came in by; a leader without such a listener is
LISTENER_NOT_FOUND since version 6, LEADER_NOT_AVAILABLE before. Authorized operations are all operations,
as without an authorizer.

A topic that is created on the way is UNKNOWN_TOPIC_OR_PARTITION in that answer, as in Kafka: clients ask
again, and some count on an unknown topic being told apart from an old one.

Difference: a topic that cannot be created says why in the same answer, where Kafka leaves it unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.authorized_operations import cluster_operations, topic_operations
from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.broker.metadata_cache import MetadataCache, Variant
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.responses import EncodedResponse
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.topic_names import reason_invalid
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import INTERNAL_TOPICS, ZERO_UUID, Uuid
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.scheduling.slices import Slices
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.quotas.mutation_quota import Mutations

API = ApiKey.METADATA
VERSIONS = (0, 13)

_BY_ID_SINCE = 12
_ASKED_AT_ONCE = 256


def handle(
    context: RequestContext,
    request: MetadataRequest,
    admin: Admin,
    image: MetadataImage,
    config: BrokerConfig,
    metadata_cache: MetadataCache,
    authorization: Authorization,
    quotas: ClientQuotas,
    lane: SlowLane,
) -> Slices[EncodedResponse | Awaitable[EncodedResponse]]:
    """Describe the cluster and the topics asked for; waits only where topics are to be created first."""
    call = _Call(context, request, image, metadata_cache, authorization)
    if request.topics is None or (context.version == 0 and not request.topics):
        visible = (yield from _visible_topics(call)) if authorization.is_on else None
        return (yield from _response(call, visible))
    ids: dict[Uuid, None] = {}
    names: dict[str, None] = {}
    for count, topic in enumerate(request.topics, 1):
        _check_name_and_id(context, topic)
        if topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] = None
        if topic.name is not None:
            names[topic.name] = None
        if not count % _ASKED_AT_ONCE:
            yield
    if ids:
        return (yield from _response(call, (_topic_by_id(call, topic_id) for topic_id in ids)))
    known, missing, denied = yield from _sorted(call, names)
    # One by one, when they are written: they may be very many.
    refused: Iterable[MetadataResponseTopic] = (_denied(name) for name in denied)
    if missing and request.allow_auto_topic_creation and config.bool("auto.create.topics.enable"):
        missing, not_creatable = yield from _creatable(call, missing)
        uncreated = (_denied(name, is_internal=name in INTERNAL_TOPICS) for name in not_creatable)
        refused = chain(uncreated, refused)
        if missing:
            mutations = quotas.changes_partitions(context.payer, strict=False)
            return _create_and_describe(call, known, missing, refused, admin, mutations, lane)
    found = (_topic_by_name(call, name) for name in (*known, *missing))
    return (yield from _response(call, chain(found, refused)))


class _Call(NamedTuple):
    """A request and what is needed to answer it."""

    context: RequestContext
    request: MetadataRequest
    image: MetadataImage
    cache: MetadataCache
    authorization: Authorization

    def may_describe(self, name: str, *, quiet: bool = False) -> bool:
        """Whether the client may know of a topic."""
        return self.authorization.allows_topic(self.context.session, Operation.DESCRIBE, name, quiet=quiet)


def _visible_topics(call: _Call) -> Slices[list[TopicImage]]:
    visible: list[TopicImage] = []
    for count, topic in enumerate(list(call.image.topics.values()), 1):
        if call.may_describe(topic.name, quiet=True):
            visible.append(topic)
        if not count % _ASKED_AT_ONCE:
            yield
    return visible


def _sorted(call: _Call, names: Iterable[str]) -> Slices[tuple[list[str], list[str], list[str]]]:
    """The topics that are there, those that are not, and those that the client may not know of."""
    known: list[str] = []
    missing: list[str] = []
    denied: list[str] = []
    for count, name in enumerate(names, 1):
        if not count % _ASKED_AT_ONCE:
            yield
        if not call.may_describe(name):
            denied.append(name)
        else:
            (known if name in call.image.topics else missing).append(name)
    return known, missing, denied


def _creatable(call: _Call, missing: Iterable[str]) -> Slices[tuple[list[str], list[str]]]:
    """The topics that are to be created for this client, and those that it may not create."""
    session, authorization = call.context.session, call.authorization
    all_allowed = authorization.allows(session, Operation.CREATE, ResourceType.CLUSTER, instead=True)
    creatable: list[str] = []
    refused: list[str] = []
    for count, name in enumerate(missing, 1):
        if not count % _ASKED_AT_ONCE:
            yield
        allowed = all_allowed or authorization.allows_topic(session, Operation.CREATE, name)
        (creatable if allowed else refused).append(name)
    return creatable, refused


async def _create_and_describe(
    call: _Call,
    known: list[str],
    creatable: list[str],
    refused: Iterable[MetadataResponseTopic],
    admin: Admin,
    mutations: Mutations | None,
    lane: SlowLane,
) -> EncodedResponse:
    errors = await admin.auto_create_topics(creatable)
    if mutations is not None:
        made = (call.image.topics.get(name) for name, error in errors.items() if error is None)
        mutations.record(sum(len(topic.partitions) for topic in made if topic is not None))
        call.context.pause_ms = mutations.pause_ms
    found = (
        _unknown(name, errors.get(name)) if name in errors else _topic_by_name(call, name)
        for name in (*known, *creatable)
    )
    return await lane.run(_response(call, chain(found, refused)))


def _response(
    call: _Call, topics: Iterable[TopicImage | MetadataResponseTopic] | None
) -> Slices[EncodedResponse]:
    """The answer; without ``topics`` it tells of all."""
    context, request, image, cache, authorization = call
    session = context.session
    operations: Callable[[str], int] | None = None
    if authorization.is_on and request.include_topic_authorized_operations:

        def operations(topic: str) -> int:
            return topic_operations(authorization, session, topic)

    variant = Variant(context.version, context.listener, request.include_topic_authorized_operations)
    if topics is None:
        elements = yield from cache.all_topics(variant)
    else:
        elements = yield from cache.topics(variant, topics, operations)
    response = MetadataResponse(
        brokers=_brokers(context, image), cluster_id=image.cluster_id, controller_id=image.controller_id
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(authorization, session)
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


def _topic_by_id(call: _Call, topic_id: Uuid) -> TopicImage | MetadataResponseTopic:
    topic = call.image.topic_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not call.may_describe(topic.name):
        # The client knows the id, and learns nothing by it.
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)
    return topic


def _denied(name: str, *, is_internal: bool = False) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=is_internal
    )


def _topic_by_name(call: _Call, name: str) -> TopicImage | MetadataResponseTopic:
    topic = call.image.topics.get(name)
    return _unknown(name) if topic is None else topic


def _unknown(name: str, error: KafkaError | None = None) -> MetadataResponseTopic:
    if error is not None:
        code = error.code
    elif reason_invalid(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _brokers(context: RequestContext, image: MetadataImage) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(
            node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        for broker in image.brokers.values()
        for endpoint in broker.endpoints
        if endpoint.name == context.listener
    ]
