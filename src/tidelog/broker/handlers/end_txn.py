"""EndTxn 0 to 5: commit or abort a transaction.

Answered when the outcome is written and committed; markers go to the partitions afterwards. Version 5 is of
transaction version 2 (KIP-890): the answer has the producer id and epoch of the next transaction. Before
version 2, INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED (KIP-588).
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.coordinator.transaction.ending import EndRequest
from tidelog.coordinator.transaction.service import TransactionCoordinator, without_producer_fenced
from tidelog.scheduling.promise import Promise
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

API = ApiKey.END_TXN
VERSIONS = (0, 5)

_KNOWS_FENCED = 2
_NEW_EPOCHS_SINCE = 5


def handle(
    context: RequestContext, request: EndTxnRequest, transactions: TransactionCoordinator
) -> Promise[EndTxnResponse]:
    """Decide the transaction."""
    reply = transactions.end(
        request.transactional_id,
        EndRequest(request.producer_id, request.producer_epoch, request.committed),
        client_version=2 if context.version >= _NEW_EPOCHS_SINCE else 0,
    )
    if context.version < _KNOWS_FENCED:
        reply = without_producer_fenced(reply)
    return reply.then(
        lambda producer: EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
    )
