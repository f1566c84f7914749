"""DeleteTopics, versions 1 to 6: deletes topics by name, since version 6 by id too.

Behaviour as a Kafka 4 controller's: topics go one by one, one that is named twice, by name or by id or by
both, is INVALID_REQUEST. When the answer leaves the topic is gone for good and its name is free; its files
follow after ``file.delete.delay.ms``. With ``delete.topic.enable=false`` nothing is deleted:
TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST. A topic that is too much for its client's quota is
THROTTLING_QUOTA_EXCEEDED; before version 5 it is deleted, and the client pauses afterwards.

Deviation: answers are in the order of the request; Kafka shuffles them.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from tidelog.broker.access.authorization import Authorization, refusal
from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.metadata.image import MetadataImage
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

API = ApiKey.DELETE_TOPICS
VERSIONS = (1, 6)

_DISABLED_CODE_SINCE = 3
_STRICT_QUOTA_SINCE = 5
_AT_ONCE = 256
_ALREADY_SUPPLIED = "The provided topic name maps to an ID that was already supplied."


async def handle(
    context: RequestContext,
    request: DeleteTopicsRequest,
    config: BrokerConfig,
    image: MetadataImage,
    admin: Admin,
    authorization: Authorization,
    quotas: ClientQuotas,
) -> DeleteTopicsResponse:
    """Delete what can be deleted."""
    if not config.bool("delete.topic.enable"):
        old = context.version < _DISABLED_CODE_SINCE
        raise KafkaError(ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED)
    session = context.session
    all_allowed = authorization.allows(session, Operation.DELETE, ResourceType.CLUSTER, instead=True)
    chosen: dict[Uuid, DeletableTopicResult] = {}
    responses = []
    mentions: Counter[tuple[str | None, Uuid]] = Counter()
    asked: dict[tuple[str | None, Uuid], DeleteTopicState] = {}
    for count, topic in enumerate(_asked(request), 1):
        asked[_key(topic)] = topic
        mentions[_key(topic)] += 1
        if not count % _AT_ONCE:
            await asyncio.sleep(0)
    for count, topic in enumerate(asked.values(), 1):
        if not count % _AT_ONCE:
            await asyncio.sleep(0)
        result = _resolve(topic, mentions, image)
        name = result.name
        is_allowed = all_allowed and not (name and authorization.is_audit_topic(name))
        if not is_allowed and name is not None and result.error_code != ErrorCode.INVALID_REQUEST:
            _hide(result, context, authorization, by_id=topic.topic_id != ZERO_UUID)
        if result.error_code == ErrorCode.NONE and result.topic_id in chosen:
            chosen.pop(result.topic_id)
            _fail(result, ErrorCode.INVALID_REQUEST, _ALREADY_SUPPLIED)
        elif result.error_code == ErrorCode.NONE:
            chosen[result.topic_id] = result
        responses.append(result)
    # A topic named both ways is answered once, with the refusal.
    responses = [each for each in responses if each.error_code or each.topic_id in chosen]
    mutations = quotas.changes_partitions(context.payer, strict=context.version >= _STRICT_QUOTA_SINCE)
    if mutations is not None:
        for topic_id in list(chosen):
            known = image.topic_by_id.get(topic_id)
            try:
                mutations.record(0 if known is None else len(known.partitions))
            except KafkaError as exceeded:
                _fail(chosen.pop(topic_id), exceeded.code, exceeded.message)
        context.pause_ms = mutations.pause_ms
    outcomes = await admin.delete_topics(list(chosen), timeout_ms=request.timeout_ms)
    for topic_id, error in outcomes.items():
        if error is not None:
            _fail(chosen[topic_id], error.code, error.message)
    return DeleteTopicsResponse(responses=responses)


def _hide(
    result: DeletableTopicResult, context: RequestContext, authorization: Authorization, *, by_id: bool
) -> None:
    """Say no more of a topic that may not be deleted than the client knows, or may know."""
    name = result.name or ""
    session = context.session
    may_describe = authorization.allows_topic(session, Operation.DESCRIBE, name)
    if may_describe and result.error_code:
        return
    if may_describe and authorization.allows_topic(session, Operation.DELETE, name):
        return
    if not by_id:
        result.topic_id = ZERO_UUID
    elif not may_describe:
        result.name = None
    error = refusal(session, Operation.DELETE, ResourceType.TOPIC, name)
    _fail(result, error.code, error.message if result.name is not None else "")


def refuse(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    """The same error for every topic."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error.code)
            for topic in _asked(request)
        ]
    )


def _asked(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]


def _key(topic: DeleteTopicState) -> tuple[str | None, Uuid]:
    return topic.name, topic.topic_id


def _resolve(
    topic: DeleteTopicState, mentions: Counter[tuple[str | None, Uuid]], image: MetadataImage
) -> DeletableTopicResult:
    """The topic's name and id, or why it cannot be deleted."""
    result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
    by_id = topic.topic_id != ZERO_UUID
    if topic.name is None and not by_id:
        return _fail(result, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if topic.name is not None and by_id:
        return _fail(result, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if mentions[_key(topic)] > 1:
        return _fail(result, ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if by_id else 'name'}.")
    found = image.topic_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name or "")
    if found is None and by_id:
        return _fail(result, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if found is None:
        return _fail(
            result, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    result.name, result.topic_id = found.name, found.id
    return result


def _fail(result: DeletableTopicResult, code: ErrorCode, message: str) -> DeletableTopicResult:
    result.error_code, result.error_message = code, message or None
    return result
