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

from collections.abc import Awaitable, Collection

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.offset_parts import take_existing, with_refused, write_offsets
from tidelog.broker.responses import refuse_each
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.promise import Promise
from tidelog.security.acls.model import Operation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
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
) -> Awaitable[OffsetCommitResponse]:
    """Commit what exists, and say of the rest that it does not."""
    by_id = context.version >= _TOPIC_IDS_SINCE

    def find(topic: OffsetCommitRequestTopic) -> Collection[int] | ErrorCode:
        found = image.topic_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        if by_id and found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = topic.name if found is None else found.name
        if not authorization.allows_topic(context.session, Operation.READ, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic.name, topic.topic_id = found.name, found.id
        return found.partitions

    def commit(request: OffsetCommitRequest) -> Promise[OffsetCommitResponse]:
        request.topics, refused = take_existing(request.topics, OffsetCommitResponseTopic, find)
        if not request.topics:
            return Promise.of(OffsetCommitResponse(topics=refused))
        reply = groups.write(
            request.group_id, lambda shard: requests.commit(shard.offsets, request, context.version)
        )
        if reply.done and reply.error is None and not refused:
            return reply

        def recover(error: Exception) -> OffsetCommitResponse:
            if not isinstance(error, KafkaError):
                raise error
            return refuse_each(OffsetCommitResponse, request, error)

        return reply.recover(recover).then(lambda response: with_refused(refused, response))

    return write_offsets(request, commit)
