"""AllocateProducerIds, version 0: a broker asks the controller for a block of producer ids (KIP-730).

Tidelog's own brokers take theirs from ZooKeeper directly; Apache Kafka's ask. Elsewhere than at the
controller NOT_CONTROLLER. Only in clusters.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.controller.cluster.controller import ClusterController
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.producer_ids import ProducerIds
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

API = ApiKey.ALLOCATE_PRODUCER_IDS
VERSIONS = (0, 0)


async def handle(
    context: RequestContext,
    request: AllocateProducerIdsRequest,
    cluster_controller: ClusterController,
    producer_ids: ProducerIds,
) -> AllocateProducerIdsResponse:
    """Give a block that nobody else has."""
    known = cluster_controller.term.context.brokers.get(request.broker_id)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered.")
    if known.epoch != request.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    block = await producer_ids.block_for(request.broker_id)
    return AllocateProducerIdsResponse(
        producer_id_start=block.first, producer_id_len=block.last - block.first + 1
    )
