"""InitProducerId 0 to 6 (6 is served and not advertised): a producer id for an idempotent producer.

Without a transactional id every request gets a new id with epoch 0, as in Kafka. With one, the transaction
coordinator has to answer, which this release does not have: COORDINATOR_NOT_AVAILABLE, which clients retry,
or INVALID_REQUEST for an empty id.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 6)


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Hand out a producer id."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        empty = not request.transactional_id
        return _refused(ErrorCode.INVALID_REQUEST if empty else ErrorCode.COORDINATOR_NOT_AVAILABLE)
    producer_ids = context.broker.producer_ids
    producer_id = producer_ids.next_id_nowait()
    if producer_id is None:
        producer_id = await producer_ids.next_id()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def refuse(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    """An error and no producer id."""
    return _refused(error.code)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
