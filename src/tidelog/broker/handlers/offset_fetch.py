"""OffsetFetch 1 to 10: what groups have committed.

Up to version 7 a request asks for one group, later for several, whose shards are asked one by one. No list
of topics (null, since version 2) means all of them. Groups and partitions without an offset answer -1
without an error. Since version 9 a member of a consumer group gives its id and epoch, which are checked.
With ``require_stable`` (since version 7) an offset that an open transaction is going to change is
UNSTABLE_OFFSET_COMMIT. Version 10 names topics by id: an unknown one is UNKNOWN_TOPIC_ID, and among all
topics those that are gone are left out.

Errors of a group are those of its answer; in version 1, which has no place for them, of every partition.

Difference: without ``require_stable`` Kafka shows what is committed on all replicas while newer commits
wait for theirs; here the answer waits with them. A coordinator that cannot answer in time is
NOT_COORDINATOR, which all clients retry.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.reply import Reply, gather
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID
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


def handle(context: RequestContext, request: OffsetFetchRequest) -> Reply[OffsetFetchResponse]:
    """Ask every group's shard."""
    if context.version >= _GROUPS_SINCE:
        replies = [_fetch(context, group, request.require_stable) for group in request.groups]
        return gather(replies).then(lambda groups: OffsetFetchResponse(groups=groups))
    group = _only_group(request)
    return _fetch(context, group, request.require_stable).then(
        lambda answer: _as_one_group(context.version, group, answer)
    )


def refuse(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    """The same error in every place that some version has for it."""
    response = _as_one_group(_GROUP_ERRORS_SINCE - 1, _only_group(request), _refused("", error.code))
    response.error_code = error.code
    response.groups = [_refused(group.group_id, error.code) for group in request.groups]
    return response


def _fetch(
    context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> Reply[OffsetFetchResponseGroup]:
    unknown = _take_unknown(context, group) if context.version >= _TOPIC_IDS_SINCE else []

    def recover(error: Exception) -> OffsetFetchResponseGroup:
        if not isinstance(error, KafkaError):
            raise error
        late = error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _refused(group.group_id, ErrorCode.NOT_COORDINATOR if late else error.code)

    def complete(answer: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        if answer.error_code == ErrorCode.NONE:
            if group.topics is None and context.version >= _TOPIC_IDS_SINCE:
                answer.topics = _with_ids(context, answer.topics)
            answer.topics += unknown
        return answer

    return (
        context.broker.coordinators.groups.read(
            group.group_id, lambda shard: requests.fetch(shard.offsets, group, require_stable=require_stable)
        )
        .recover(recover)
        .then(complete)
    )


def _take_unknown(context: RequestContext, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Give topics their names; those whose ids nobody has are taken out and answered."""
    by_id = context.broker.image.topic_by_id
    unknown: list[OffsetFetchResponseTopics] = []
    known: list[OffsetFetchRequestTopics] = []
    for topic in group.topics or ():
        found = by_id.get(topic.topic_id)
        if found is not None:
            topic.name = found.name
            known.append(topic)
            continue
        unknown.append(
            OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=_NO_OFFSET,
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
    if group.topics is not None:
        group.topics = known
    return unknown


def _with_ids(
    context: RequestContext, topics: list[OffsetFetchResponseTopics]
) -> list[OffsetFetchResponseTopics]:
    """Topics by the ids they have now; without one there is no way to tell of a topic."""
    for topic in topics:
        found = context.broker.image.topics.get(topic.name)
        topic.topic_id = ZERO_UUID if found is None else found.id
    return [topic for topic in topics if topic.topic_id != ZERO_UUID]


def _refused(group_id: str, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, error_code=code)


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The group of versions up to 7 as later ones have it."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_one_group(
    version: int, group: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    """The answer for one group as versions up to 7 have it."""
    if answer.error_code and version < _GROUP_ERRORS_SINCE:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=_NO_OFFSET, error_code=answer.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in answer.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=answer.error_code)
