"""ListTransactions 0 to 2: the transactional ids that this broker coordinates, and their states (KIP-664).

Filters: states (names that there are not come back in the answer), producer ids, a least duration since
version 1, and since version 2 a regular expression that the whole id must match; INVALID_REGULAR_EXPRESSION
if it is none. COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded.

Differences: letters beyond ASCII in an expression match nothing, and a very large one is refused; see
``coordinator/transaction/listing`` and ``regex``.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.coordinator.transaction.listing import TransactionFilter
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

API = ApiKey.LIST_TRANSACTIONS
VERSIONS = (0, 2)


def handle(
    context: RequestContext,
    request: ListTransactionsRequest,
    transactions: TransactionCoordinator,
    authorization: Authorization,
) -> Slices[Promise[ListTransactionsResponse]]:
    """List what the filters let through."""
    wanted = TransactionFilter.parse(
        request.state_filters,
        request.producer_id_filters,
        request.duration_filter,
        request.transactional_id_pattern,
    )
    kind = ResourceType.TRANSACTIONAL_ID

    def is_visible(transactional_id: str) -> bool:
        return authorization.allows(context.session, Operation.DESCRIBE, kind, transactional_id, quiet=True)

    reply = yield from transactions.list(wanted, _listed, is_visible)
    return reply.then(
        lambda found: ListTransactionsResponse(
            unknown_state_filters=list(wanted.unknown_states), transaction_states=found
        )
    )


def _listed(transaction: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )
