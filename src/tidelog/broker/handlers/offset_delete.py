"""OffsetDelete 0: single offsets of a group are forgotten, also those of open transactions.

Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, topics that the group's members read
GROUP_SUBSCRIBED_TO_TOPIC; deleting an offset that is not there is no error. The group's own errors stand
alone: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (members, and they are no consumers), INVALID_GROUP_ID for an empty
id. What is asked of very many partitions is done in several batches (``broker/coordination/offset_parts``).
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
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

API = ApiKey.OFFSET_DELETE
VERSIONS = (0, 0)


def handle(
    context: RequestContext,
    request: OffsetDeleteRequest,
    groups: GroupCoordinator,
    image: MetadataImage,
    authorization: Authorization,
) -> Promise[OffsetDeleteResponse] | Coroutine[Any, Any, OffsetDeleteResponse]:
    """Delete what exists."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
    return (
        _delete_in_parts(context, request, groups, image, authorization)
        if is_wide(request.topics)
        else _delete(context, request, groups, image, authorization)
    )


async def _delete_in_parts(
    context: RequestContext,
    request: OffsetDeleteRequest,
    groups: GroupCoordinator,
    image: MetadataImage,
    authorization: Authorization,
) -> OffsetDeleteResponse:
    replies: list[Promise[OffsetDeleteResponse]] = []
    async for topics in yielding_every(1, in_parts(request.topics)):
        replies.append(_delete(context, replace(request, topics=topics), groups, image, authorization))
    answers = [response.topics for response in await gather(replies)]
    return OffsetDeleteResponse(topics=await merged(answers, lambda topic: topic.name))


def _delete(
    context: RequestContext,
    request: OffsetDeleteRequest,
    groups: GroupCoordinator,
    image: MetadataImage,
    authorization: Authorization,
) -> Promise[OffsetDeleteResponse]:
    known: list[OffsetDeleteRequestTopic] = []
    unknown: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in request.topics:
        if not authorization.allows_topic(context.session, Operation.READ, topic.name):
            indexes = [each.partition_index for each in topic.partitions]
            unknown[topic.name] = _refused(topic.name, indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
        found = image.topics.get(topic.name)
        partitions = found.partitions if found is not None else {}
        existing = [each for each in topic.partitions if each.partition_index in partitions]
        missing = [
            each.partition_index for each in topic.partitions if each.partition_index not in partitions
        ]
        if missing:
            unknown[topic.name] = _refused(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if existing:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=existing))
    wanted = OffsetDeleteRequest(group_id=request.group_id, topics=known)
    return groups.write(request.group_id, lambda shard: requests.delete(shard.offsets, wanted)).then(
        lambda response: _merge(unknown, response)
    )


def _refused(topic: str, indexes: list[int], code: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes
        ],
    )


def _merge(
    unknown: dict[str, OffsetDeleteResponseTopic], response: OffsetDeleteResponse
) -> OffsetDeleteResponse:
    """Both answers, each topic once."""
    for topic in response.topics:
        present = unknown.setdefault(topic.name, topic)
        if present is not topic:
            present.partitions += topic.partitions
    response.topics = list(unknown.values())
    return response
