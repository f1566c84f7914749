"""AddPartitionsToTxn 0 to 5: the partitions that a transaction is going to write to.

Versions 0 to 3 come from clients, for one transaction; internal topics are TOPIC_AUTHORIZATION_FAILED for
them. Versions 4 and 5 come from brokers, for many, and may only ask whether the partitions are part of the
transaction (``verify_only``, KIP-890): TRANSACTION_ABORTABLE where they are not. If one partition is refused
the others are OPERATION_NOT_ATTEMPTED. Before version 2, INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED
(KIP-588).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.responses import is_long
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import INTERNAL_TOPICS, TopicPartition
from tidelog.scheduling.promise import Promise, gather
from tidelog.scheduling.slices import Slices, clear_in_slices, run_to_end
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

API = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = (0, 5)

_BATCHES_SINCE = 4
_KNOWS_FENCED = 2

T = TypeVar("T")

Codes = dict[TopicPartition, ErrorCode]


def handle(
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    transactions: TransactionCoordinator,
    authorization: Authorization,
    lane: SlowLane,
) -> Slices[AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]]:
    """Add or verify the partitions of one transaction, or of many."""
    if context.version < _BATCHES_SINCE:
        return (yield from _add_for_client(context, request, transactions, authorization, lane))
    authorization.require(context.session, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    replies: list[Promise[Codes]] = []
    for transaction in request.transactions:
        names = yield from _names(transaction.topics)
        refused = yield from transactions.refused_partitions(names, from_client=False)
        replies.append(
            Promise.of(refused)
            if refused
            else transactions.add_or_verify(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                names,
                transaction.verify_only,
            )
        )
        yield

    def answer(found: list[Codes]) -> Slices[AddPartitionsToTxnResponse]:
        response = AddPartitionsToTxnResponse()
        for transaction, codes in zip(request.transactions, found, strict=True):
            results = yield from _results(transaction.topics, codes)
            response.results_by_transaction.append(
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)
            )
        return response

    return _when_settled(gather(replies), answer, lane if is_long(request) else None)


def refuse(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    """The same error for everything."""
    return AddPartitionsToTxnResponse(
        error_code=error.code,
        results_by_topic_v3_and_below=run_to_end(_results(request.v3_and_below_topics, {}, error.code)),
    )


def _add_for_client(
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    transactions: TransactionCoordinator,
    authorization: Authorization,
    lane: SlowLane,
) -> Slices[AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]]:
    topics = request.v3_and_below_topics
    session = context.session
    authorization.require(
        session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id
    )
    denied: set[str] = set()
    for topic in topics:
        if topic.name not in INTERNAL_TOPICS and not authorization.allows_topic(
            session, Operation.WRITE, topic.name
        ):
            denied.add(topic.name)
        yield
    names = yield from _names(topics)
    refused = yield from transactions.refused_partitions(names, from_client=True, denied=denied)

    def answer(codes: Codes) -> Slices[AddPartitionsToTxnResponse]:
        results = yield from _results(topics, codes)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    if refused:
        response = yield from answer(refused)
        yield from clear_in_slices(names)
        yield from clear_in_slices(refused)
        return response
    reply = transactions.add_or_verify(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        names,
        verify_only=False,
        from_client=True,
    )
    if context.version < _KNOWS_FENCED:
        reply = reply.then(lambda codes: {name: _before_fenced(code) for name, code in codes.items()})
    return _when_settled(reply, answer, lane if is_long(request) else None)


def _when_settled(
    reply: Promise[T], answer: Callable[[T], Slices[AddPartitionsToTxnResponse]], lane: SlowLane | None
) -> Awaitable[AddPartitionsToTxnResponse]:
    """The answer by what the coordinator replies; in slices if there is a lane for them."""
    if lane is None:
        return reply.then(lambda found: run_to_end(answer(found)))

    async def write() -> AddPartitionsToTxnResponse:
        return await lane.run(answer(await reply))

    return write()


def _before_fenced(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _names(topics: Iterable[AddPartitionsToTxnTopic]) -> Slices[dict[TopicPartition, None]]:
    names: dict[TopicPartition, None] = {}
    for topic in topics:
        for index in topic.partitions:
            names[TopicPartition(topic.name, index)] = None
            yield
        yield
    return names


def _results(
    topics: Iterable[AddPartitionsToTxnTopic],
    codes: Codes,
    otherwise: ErrorCode = ErrorCode.OPERATION_NOT_ATTEMPTED,
) -> Slices[list[AddPartitionsToTxnTopicResult]]:
    """What has become of each partition; ``otherwise`` is that of those without a code."""
    results: list[AddPartitionsToTxnTopicResult] = []
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name)
        results.append(result)
        for index in topic.partitions:
            code = codes.get(TopicPartition(topic.name, index), otherwise)
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            )
            yield
        yield
    return results
