"""OffsetCommit 2 to 10: a group's offsets, kept in ``__consumer_offsets``.

Version 10 names topics by id: one that nobody has is UNKNOWN_TOPIC_ID. Topics and partitions that do not
exist are UNKNOWN_TOPIC_OR_PARTITION; only what is left goes to the group's coordinator, which checks member
and generation and answers once the commit is on all replicas that have to have it. A request of a group
that does not know its member gets that error for every partition that exists. Versions 2 to 4 may bring a
retention of their own (``retention_time_ms``).

Who commits without being a member (generation -1) may do so while the group has no members; the group comes
into being with its first offset.

Difference: a commit of very many partitions is written in several batches
(``broker/coordination/offset_parts``). Kafka writes one, and refuses what does not fit.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.offset_parts import in_parts, is_wide, merged
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.promise import Promise, gather
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API = ApiKey.OFFSET_COMMIT
VERSIONS = (2, 10)

_TOPIC_IDS_SINCE = 10


def handle(
    context: RequestContext,
    request: OffsetCommitRequest,
    groups: GroupCoordinator,
    image: MetadataImage,
    authorization: Authorization,
) -> OffsetCommitResponse | Promise[OffsetCommitResponse] | Coroutine[Any, Any, OffsetCommitResponse]:
    """Commit what exists, and say of the rest that it does not."""
    return (
        _commit_in_parts(context, request, groups, image, authorization)
        if is_wide(request.topics)
        else _commit(context, request, groups, image, authorization)
    )


async def _commit_in_parts(
    context: RequestContext,
    request: OffsetCommitRequest,
    groups: GroupCoordinator,
    image: MetadataImage,
    authorization: Authorization,
) -> OffsetCommitResponse:
    replies: list[Promise[OffsetCommitResponse]] = []
    async for topics in yielding_every(1, in_parts(request.topics)):
        committed = _commit(context, replace(request, topics=topics), groups, image, authorization)
        replies.append(committed if isinstance(committed, Promise) else Promise.of(committed))
    answers = [response.topics for response in await gather(replies)]
    return OffsetCommitResponse(topics=await merged(answers, lambda topic: (topic.name, topic.topic_id)))


def _commit(
    context: RequestContext,
    request: OffsetCommitRequest,
    groups: GroupCoordinator,
    image: MetadataImage,
    authorization: Authorization,
) -> OffsetCommitResponse | Promise[OffsetCommitResponse]:
    version = context.version
    known, unknown = _sort(context, request.topics, image, authorization)
    if not known:
        return OffsetCommitResponse(topics=unknown)
    request.topics = known
    reply = groups.write(request.group_id, lambda shard: requests.commit(shard.offsets, request, version))
    if reply.done and reply.error is None and not unknown:
        return reply

    def recover(error: Exception) -> OffsetCommitResponse:
        if not isinstance(error, KafkaError):
            raise error
        return refuse(request, error)

    return reply.recover(recover).then(lambda response: _merge(unknown, response))


def refuse(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    """The same error for every partition."""
    return OffsetCommitResponse(topics=[_refused(topic, error.code) for topic in request.topics])


def _sort(
    context: RequestContext,
    topics: list[OffsetCommitRequestTopic],
    image: MetadataImage,
    authorization: Authorization,
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """The topics and partitions to commit, with name and id, and the answers for the others."""
    by_id = context.version >= _TOPIC_IDS_SINCE
    known: list[OffsetCommitRequestTopic] = []
    unknown: list[OffsetCommitResponseTopic] = []
    for topic in topics:
        found = image.topic_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        name = topic.name if found is None else found.name
        is_nameless = by_id and found is None
        if not is_nameless and not authorization.allows_topic(context.session, Operation.READ, name):
            unknown.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown.append(_refused(topic, code))
            continue
        topic.name, topic.topic_id = found.name, found.id
        partitions = found.partitions
        existing = [each for each in topic.partitions if each.partition_index in partitions]
        if len(existing) < len(topic.partitions):
            topic.partitions = [each for each in topic.partitions if each.partition_index not in partitions]
            unknown.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = existing
        if existing:
            known.append(topic)
    return known, unknown


def _refused(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _merge(unknown: list[OffsetCommitResponseTopic], response: OffsetCommitResponse) -> OffsetCommitResponse:
    """Both answers; a topic that is in both is one, as clients expect it."""
    merged = {(topic.name, topic.topic_id): topic for topic in unknown}
    for topic in response.topics:
        present = merged.setdefault((topic.name, topic.topic_id), topic)
        if present is not topic:
            present.partitions += topic.partitions
    response.topics = list(merged.values())
    return response
