"""DescribeTransactions 0: state, producer, start and partitions of transactional ids (KIP-664).

INVALID_REQUEST for an empty id, TRANSACTIONAL_ID_NOT_FOUND for one that nobody has used or that is forgotten,
and the coordinator's errors where another broker has to be asked; each for its own id.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

API = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = (0, 0)


def handle(
    context: RequestContext,
    request: DescribeTransactionsRequest,
    transactions: TransactionCoordinator,
    authorization: Authorization,
) -> Slices[Promise[DescribeTransactionsResponse]]:
    """Describe each id."""
    session = context.session
    allowed: list[str] = []
    denied: list[TransactionState] = []
    for name in request.transactional_ids:
        try:
            authorization.require(session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        except KafkaError as error:
            denied.append(_refused(name, error))
        else:
            allowed.append(name)
        yield

    def described(transaction: Transaction) -> TransactionState:
        state = _described(transaction)
        state.topics = [
            topic
            for topic in state.topics
            if authorization.allows_topic(session, Operation.DESCRIBE, topic.topic)
        ]
        return state

    reply = yield from transactions.describe(allowed, described, _refused)
    return reply.then(lambda states: DescribeTransactionsResponse(transaction_states=[*states, *denied]))


def _described(transaction: Transaction) -> TransactionState:
    topics: dict[str, TopicData] = {}
    for name, index in sorted(transaction.partitions):
        topics.setdefault(name, TopicData(topic=name)).partitions.append(index)
    return TransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=list(topics.values()),
    )


def _refused(transactional_id: str, error: KafkaError) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=error.code)
