"""TxnOffsetCommit 0 to 5: offsets that count once a producer's transaction is committed.

Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, an empty group id is
INVALID_GROUP_ID. Since version 3 (KIP-447) member and generation are checked by the group:
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, which also stands for a group that does not exist
and for a stale epoch of a member of a consumer group. Clients before version 2 are told
COORDINATOR_NOT_AVAILABLE while the coordinator loads, because some of them fail on the other error.

The transaction coordinator is asked first whether the transaction covers the group's partition of
``__consumer_offsets``; since version 5 the request itself adds it (KIP-890). The offsets are then written as
part of the transaction; nobody reads them until its marker comes. Those of very many partitions are written
in several batches (``broker/coordination/offset_parts``), the first of them before all others, because with
it the transaction is known to be open.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.coordinators import Coordinators
from tidelog.broker.coordination.offset_parts import in_parts, is_wide, merged
from tidelog.broker.coordination.transaction_verification import Operation
from tidelog.coordinator.append_error import told_error
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.runtime import Producer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.promise import Promise, gather
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation as AclOperation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

API = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = (0, 5)

_LOADING_UNDERSTOOD_SINCE = 2


def handle(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    coordinators: Coordinators,
    image: MetadataImage,
    authorization: Authorization,
) -> (
    TxnOffsetCommitResponse | Promise[TxnOffsetCommitResponse] | Coroutine[Any, Any, TxnOffsetCommitResponse]
):
    """Commit what exists, and say of the rest that it does not."""
    return (
        _in_parts(context, request, coordinators, image, authorization)
        if is_wide(request.topics)
        else _at_once(context, request, coordinators, image, authorization)
    )


async def _in_parts(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    coordinators: Coordinators,
    image: MetadataImage,
    authorization: Authorization,
) -> TxnOffsetCommitResponse:
    replies: list[Promise[TxnOffsetCommitResponse]] = []
    async for topics in yielding_every(1, in_parts(request.topics)):
        answer = _at_once(context, replace(request, topics=topics), coordinators, image, authorization)
        reply = answer if isinstance(answer, Promise) else Promise.of(answer)
        if not replies:
            await reply
        replies.append(reply)
    answers = [response.topics for response in await gather(replies)]
    return TxnOffsetCommitResponse(topics=await merged(answers, lambda topic: topic.name))


def _at_once(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    coordinators: Coordinators,
    image: MetadataImage,
    authorization: Authorization,
) -> TxnOffsetCommitResponse | Promise[TxnOffsetCommitResponse]:
    version = context.version
    known, unknown = _sort(context, request.topics, image, authorization)
    if not known:
        return TxnOffsetCommitResponse(topics=unknown)
    request.topics = known

    def recover(error: Exception) -> TxnOffsetCommitResponse:
        if not isinstance(error, KafkaError):
            raise error
        return refuse(request, _as_producers_know_it(version, error))

    return (
        _commit(context, request, coordinators)
        .recover(recover)
        .then(lambda response: _merge(unknown, response))
    )


def refuse(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return TxnOffsetCommitResponse(topics=[_refused(topic, error.code) for topic in request.topics])


def _commit(
    context: RequestContext, request: TxnOffsetCommitRequest, coordinators: Coordinators
) -> Promise[TxnOffsetCommitResponse]:
    if not request.group_id:
        return Promise.failed(KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty."))
    version = context.version
    groups = coordinators.groups
    producer = Producer(request.producer_id, request.producer_epoch)
    return coordinators.verification.in_transaction(
        request.transactional_id,
        producer,
        TopicPartition(groups.TOPIC, groups.partition_for(request.group_id)),
        Operation.of_txn_offset_commit(version),
        lambda: groups.write(
            request.group_id,
            lambda shard: requests.commit_in_transaction(shard.offsets, request, version),
            producer,
        ),
    )


def _sort(
    context: RequestContext,
    topics: list[TxnOffsetCommitRequestTopic],
    image: MetadataImage,
    authorization: Authorization,
) -> tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitResponseTopic]]:
    """The topics and partitions to commit, and the answers for the others."""
    known: list[TxnOffsetCommitRequestTopic] = []
    unknown: list[TxnOffsetCommitResponseTopic] = []
    for topic in topics:
        if not authorization.allows_topic(context.session, AclOperation.READ, topic.name):
            unknown.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        found = image.topics.get(topic.name)
        partitions = found.partitions if found is not None else {}
        existing = [each for each in topic.partitions if each.partition_index in partitions]
        if len(existing) < len(topic.partitions):
            topic.partitions = [each for each in topic.partitions if each.partition_index not in partitions]
            unknown.append(_refused(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = existing
        if existing:
            known.append(topic)
    return known, unknown


def _as_producers_know_it(version: int, refusal: KafkaError) -> KafkaError:
    error = told_error(refusal)
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_UNDERSTOOD_SINCE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    return error


def _refused(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _merge(
    unknown: list[TxnOffsetCommitResponseTopic], response: TxnOffsetCommitResponse
) -> TxnOffsetCommitResponse:
    """Both answers, each topic once."""
    merged = {topic.name: topic for topic in unknown}
    for topic in response.topics:
        present = merged.setdefault(topic.name, topic)
        if present is not topic:
            present.partitions += topic.partitions
    response.topics = list(merged.values())
    return response
