"""AddPartitionsToTxn 0 to 5: the partitions that a transaction is going to write to.

Versions 0 to 3 come from clients, for one transaction; internal topics are TOPIC_AUTHORIZATION_FAILED for
them. Versions 4 and 5 come from brokers, for many, and may only ask whether the partitions are part of the
transaction (``verify_only``, KIP-890): TRANSACTION_ABORTABLE where they are not. If one partition is refused
the others are OPERATION_NOT_ATTEMPTED. Before version 2, INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED
(KIP-588).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.broker.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import INTERNAL_TOPICS, TopicPartition
from tidelog.promise import Promise, gather
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

API = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = (0, 5)

_BATCHES_SINCE = 4
_KNOWS_FENCED = 2


def handle(
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    transactions: TransactionCoordinator,
    authorization: Authorization,
) -> Promise[AddPartitionsToTxnResponse]:
    """Add or verify the partitions of one transaction, or of many."""
    if context.version < _BATCHES_SINCE:
        return _add_for_client(context, request, transactions, authorization)
    authorization.require(context.session, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)

    def add(transaction: AddPartitionsToTxnTransaction) -> Promise[AddPartitionsToTxnResult]:
        reply = transactions.add_or_verify(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            _names(transaction.topics),
            transaction.verify_only,
        )
        return reply.then(
            lambda codes: AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_results(transaction.topics, codes),
            )
        )

    return gather([add(transaction) for transaction in request.transactions]).then(
        lambda results: AddPartitionsToTxnResponse(results_by_transaction=results)
    )


def refuse(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    """The same error for everything."""
    topics = request.v3_and_below_topics
    return AddPartitionsToTxnResponse(
        error_code=error.code,
        results_by_topic_v3_and_below=_results(topics, dict.fromkeys(_names(topics), error.code)),
    )


def _add_for_client(
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    transactions: TransactionCoordinator,
    authorization: Authorization,
) -> Promise[AddPartitionsToTxnResponse]:
    topics = request.v3_and_below_topics
    session = context.session
    authorization.require(
        session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id
    )
    denied = {
        topic.name
        for topic in topics
        if topic.name not in INTERNAL_TOPICS
        and not authorization.allows_topic(session, Operation.WRITE, topic.name)
    }
    if denied:
        refused = transactions.refused_partitions(_names(topics), denied)
        return Promise.of(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, refused)))
    reply = transactions.add_or_verify(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        _names(topics),
        verify_only=False,
        from_client=True,
    )

    def answer(codes: dict[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResponse:
        if context.version < _KNOWS_FENCED:
            codes = {name: _before_fenced(code) for name, code in codes.items()}
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes))

    return reply.then(answer)


def _before_fenced(code: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code


def _names(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=codes[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
