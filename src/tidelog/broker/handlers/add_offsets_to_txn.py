"""AddOffsetsToTxn 0 to 4: a transaction is going to commit offsets of a group.

Adds the group's partition of ``__consumer_offsets`` to the transaction, whether that topic exists yet or not,
as in Kafka. Before version 2, INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED (KIP-588). Clients of
transaction version 2 do not send it: TxnOffsetCommit 5 adds the partition by itself (KIP-890).
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.coordinators import Coordinators
from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.service import without_producer_fenced
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from tidelog.scheduling.promise import Promise
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

API = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS = (0, 4)

_KNOWS_FENCED = 2


def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest, coordinators: Coordinators
) -> Promise[AddOffsetsToTxnResponse]:
    """Add the group's partition."""
    partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, coordinators.groups.partition_for(request.group_id))
    reply = coordinators.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        frozenset({partition}),
        client_version=0,
    )
    if context.version < _KNOWS_FENCED:
        reply = without_producer_fenced(reply)
    return reply.then(lambda _: AddOffsetsToTxnResponse())
