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

from collections.abc import Awaitable, Collection

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.coordinators import Coordinators
from tidelog.broker.coordination.offset_parts import take_existing, with_refused, write_offsets
from tidelog.broker.coordination.transaction_verification import Operation
from tidelog.broker.responses import refuse_each
from tidelog.coordinator.group.offsets import requests
from tidelog.coordinator.log import told_error
from tidelog.coordinator.runtime import Producer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.promise import Promise
from tidelog.security.acls.model import Operation as AclOperation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
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
) -> Awaitable[TxnOffsetCommitResponse]:
    """Commit what exists, and say of the rest that it does not."""

    def find(topic: TxnOffsetCommitRequestTopic) -> Collection[int] | ErrorCode:
        if not authorization.allows_topic(context.session, AclOperation.READ, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = image.topics.get(topic.name)
        return () if found is None else found.partitions

    def commit(request: TxnOffsetCommitRequest) -> Promise[TxnOffsetCommitResponse]:
        request.topics, refused = take_existing(request.topics, TxnOffsetCommitResponseTopic, find)
        if not request.topics:
            return Promise.of(TxnOffsetCommitResponse(topics=refused))

        def recover(error: Exception) -> TxnOffsetCommitResponse:
            if not isinstance(error, KafkaError):
                raise error
            told = _as_producers_know_it(context.version, error)
            return refuse_each(TxnOffsetCommitResponse, request, told)

        reply = _commit(context, request, coordinators)
        return reply.recover(recover).then(lambda response: with_refused(refused, response))

    return write_offsets(request, commit, first_alone=True)


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


def _as_producers_know_it(version: int, refusal: KafkaError) -> KafkaError:
    error = told_error(refusal)
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_UNDERSTOOD_SINCE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    return error
