"""OffsetFetch 1 to 10: what groups have committed.

Up to version 7 a request asks for one group, later for several, whose shards are asked one by one. No list
of topics (null, since version 2) means all of them. Groups and partitions without an offset answer -1
without an error. Since version 9 a member of a consumer group gives its id and epoch, which are checked.
With ``require_stable`` (since version 7) an offset that an open transaction is going to change is
UNSTABLE_OFFSET_COMMIT. Version 10 names topics by id: an unknown one is UNKNOWN_TOPIC_ID, and among all
topics those that are gone are left out.

Errors of a group are those of its answer; in version 1, which has no place for them, of every partition.

Difference: without ``require_stable`` Kafka shows what is committed on all replicas while newer commits
wait for theirs; here the answer waits with them, and where very many are asked for, offsets that are
committed while they are gathered may be in it or not. A coordinator that cannot answer in time is
NOT_COORDINATOR, which all clients retry. Whoever wants all topics of groups, one of them perhaps very often,
that have more than ``MAX_OFFSETS`` together is not answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.network.answer import NotAnswerable
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.coordinator.group.shard import GroupShard
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.promise import Promise, gather
from tidelog.scheduling.slices import Slices, run_to_end
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

API = ApiKey.OFFSET_FETCH
VERSIONS = (1, 10)

_GROUP_ERRORS_SINCE = 2
_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
_NO_OFFSET = -1
MAX_OFFSETS = 2_000_000
"""How many offsets an answer may tell of beyond those that its request names: as many as fit into one."""

R = TypeVar("R")


def handle(
    context: RequestContext,
    request: OffsetFetchRequest,
    groups: GroupCoordinator,
    image: MetadataImage,
    authorization: Authorization,
) -> Slices[Promise[OffsetFetchResponse]]:
    """Ask every group's shard."""
    if context.version >= _GROUPS_SINCE:
        replies: list[Promise[OffsetFetchResponseGroup]] = []
        unnamed = 0

        def count(answer: OffsetFetchResponseGroup) -> Slices[OffsetFetchResponseGroup]:
            nonlocal unnamed
            for topic in answer.topics:
                unnamed += len(topic.partitions)
                yield
            if unnamed > MAX_OFFSETS:
                raise NotAnswerable(
                    f"its OffsetFetch (client {context.client_id}) wants more than {MAX_OFFSETS} offsets"
                )
            return answer

        for each in request.groups:
            shape = count if each.topics is None else _as_it_is
            replies.append(
                (
                    yield from _fetch(
                        context, each, request.require_stable, shape, groups, image, authorization
                    )
                )
            )
            yield
        return gather(replies).then(lambda groups: OffsetFetchResponse(groups=groups))
    group = yield from _only_group(request)
    return (
        yield from _fetch(
            context,
            group,
            request.require_stable,
            lambda answer: _as_one_group(context.version, group, answer),
            groups,
            image,
            authorization,
        )
    )


def refuse(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    """The same error in every place that some version has for it."""
    group = run_to_end(_only_group(request))
    response = run_to_end(_as_one_group(_GROUP_ERRORS_SINCE - 1, group, _refused("", error.code)))
    response.error_code = error.code
    response.groups = [_refused(group.group_id, error.code) for group in request.groups]
    return response


def _fetch(
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    shape: Callable[[OffsetFetchResponseGroup], Slices[R]],
    groups: GroupCoordinator,
    image: MetadataImage,
    authorization: Authorization,
) -> Slices[Promise[R]]:
    """The offsets of one group, or its error, as ``shape`` puts it."""
    session = context.session
    if not authorization.allows(session, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        denied = _refused(group.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return Promise.of((yield from shape(denied)))
    unknown: list[OffsetFetchResponseTopics] = []
    if context.version >= _TOPIC_IDS_SINCE:
        unknown = yield from _take_unknown(context, group, image)
    if authorization.is_on and group.topics is not None:
        unknown += yield from _take_denied(context, group, authorization)

    def query(shard: GroupShard) -> Slices[R]:
        answer = yield from requests.fetch(shard.offsets, group, require_stable=require_stable)
        if authorization.is_on and group.topics is None:
            visible: list[OffsetFetchResponseTopics] = []
            for topic in answer.topics:
                if authorization.allows_topic(session, Operation.DESCRIBE, topic.name, quiet=True):
                    visible.append(topic)
                yield
            answer.topics = visible
        if group.topics is None and context.version >= _TOPIC_IDS_SINCE:
            answer.topics = yield from _with_ids(context, answer.topics, image)
        answer.topics += unknown
        return (yield from shape(answer))

    def refused(error: Exception) -> Slices[R]:
        if not isinstance(error, KafkaError):
            raise error
        late = error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return shape(_refused(group.group_id, ErrorCode.NOT_COORDINATOR if late else error.code))

    reply = yield from groups.read_in_slices(group.group_id, query)
    if reply.done and reply.error is not None:
        return Promise.of((yield from refused(reply.error)))
    return reply.recover(lambda error: run_to_end(refused(error)))


def _take_unknown(
    context: RequestContext, group: OffsetFetchRequestGroup, image: MetadataImage
) -> Slices[list[OffsetFetchResponseTopics]]:
    """Give topics their names; those whose ids nobody has are taken out and answered."""
    unknown: list[OffsetFetchResponseTopics] = []
    known: list[OffsetFetchRequestTopics] = []
    for topic in group.topics or ():
        yield
        found = image.topic_by_id.get(topic.topic_id)
        if found is not None:
            topic.name = found.name
            known.append(topic)
            continue
        unknown.append((yield from _refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID)))
    if group.topics is not None:
        group.topics = known
    return unknown


def _take_denied(
    context: RequestContext, group: OffsetFetchRequestGroup, authorization: Authorization
) -> Slices[list[OffsetFetchResponseTopics]]:
    """Topics that the client may not describe are taken out and answered."""
    denied: list[OffsetFetchResponseTopics] = []
    allowed: list[OffsetFetchRequestTopics] = []
    for topic in group.topics or ():
        if authorization.allows_topic(context.session, Operation.DESCRIBE, topic.name):
            allowed.append(topic)
        else:
            denied.append((yield from _refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        yield
    group.topics = allowed
    return denied


def _refused_topic(topic: OffsetFetchRequestTopics, code: ErrorCode) -> Slices[OffsetFetchResponseTopics]:
    partitions: list[OffsetFetchResponsePartitions] = []
    for index in topic.partition_indexes:
        partitions.append(
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=_NO_OFFSET, error_code=code)
        )
        yield
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _with_ids(
    context: RequestContext, topics: list[OffsetFetchResponseTopics], image: MetadataImage
) -> Slices[list[OffsetFetchResponseTopics]]:
    """Topics by the ids they have now; without one there is no way to tell of a topic."""
    present: list[OffsetFetchResponseTopics] = []
    for topic in topics:
        found = image.topics.get(topic.name)
        if found is not None and found.id != ZERO_UUID:
            topic.topic_id = found.id
            present.append(topic)
        yield
    return present


def _refused(group_id: str, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, error_code=code)


def _as_it_is(answer: OffsetFetchResponseGroup) -> Slices[OffsetFetchResponseGroup]:
    """The answer for a group since version 8."""
    yield
    return answer


def _only_group(request: OffsetFetchRequest) -> Slices[OffsetFetchRequestGroup]:
    """The group of versions up to 7 as later ones have it."""
    if request.topics is None:
        return OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    topics: list[OffsetFetchRequestTopics] = []
    for topic in request.topics:
        topics.append(OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes))
        yield
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_one_group(
    version: int, group: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup
) -> Slices[OffsetFetchResponse]:
    """The answer for one group as versions up to 7 have it."""
    topics: list[OffsetFetchResponseTopic] = []
    if answer.error_code and version < _GROUP_ERRORS_SINCE:
        for asked in group.topics or ():
            refused = OffsetFetchResponseTopic(name=asked.name)
            for index in asked.partition_indexes:
                refused.partitions.append(
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=_NO_OFFSET, error_code=answer.error_code
                    )
                )
                yield
            topics.append(refused)
        return OffsetFetchResponse(topics=topics)
    for found in answer.topics:
        topic = OffsetFetchResponseTopic(name=found.name)
        for each in found.partitions:
            topic.partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
            )
            yield
        topics.append(topic)
    return OffsetFetchResponse(topics=topics, error_code=answer.error_code)
