"""OffsetDelete 0: single offsets of a group are forgotten, also those of open transactions.

Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, topics that the group's members read
GROUP_SUBSCRIBED_TO_TOPIC; deleting an offset that is not there is no error. The group's own errors stand
alone: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (members, and they are no consumers), INVALID_GROUP_ID for an empty
id. What is asked of very many partitions is done in several batches (``broker/coordination/offset_parts``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.offset_parts import take_existing, with_refused, write_offsets
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.promise import Promise
from tidelog.security.acls.model import Operation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
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
) -> Awaitable[OffsetDeleteResponse]:
    """Delete what exists."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")

    def find(topic: OffsetDeleteRequestTopic) -> Collection[int] | ErrorCode:
        if not authorization.allows_topic(context.session, Operation.READ, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = image.topics.get(topic.name)
        return () if found is None else found.partitions

    def delete(request: OffsetDeleteRequest) -> Promise[OffsetDeleteResponse]:
        topics, refused = take_existing(request.topics, OffsetDeleteResponseTopic, find)
        wanted = OffsetDeleteRequest(group_id=request.group_id, topics=topics)
        reply = groups.write(request.group_id, lambda shard: requests.delete(shard.offsets, wanted))
        return reply.then(lambda response: with_refused(refused, response))

    return write_offsets(request, delete)
