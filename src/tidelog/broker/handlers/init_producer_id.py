"""InitProducerId 0 to 6 (6 is served and not advertised): the producer id and epoch of a producer.

Without a transactional id every request gets a new id with epoch 0. With one it gets the same id with the
next epoch, so that all earlier producers are fenced; CONCURRENT_TRANSACTIONS while an earlier transaction is
being ended. Where no new id is at hand the answer waits for one, and is COORDINATOR_LOAD_IN_PROGRESS if none
has come in five seconds (Kafka answers so at once). Since version 3 a producer may name its id and epoch to
go on after an error (KIP-360). Before version 4, INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED (KIP-588).
Two-phase commit (KIP-939) needs TWO_PHASE_COMMIT on the id, too, is refused unless
``transaction.two.phase.commit.enable``, and prepared transactions are never kept, as in Kafka 4.3.
"""

from __future__ import annotations

import functools

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.service import TransactionCoordinator, without_producer_fenced
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.scheduling.promise import Promise
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 6)

_KNOWS_FENCED = 4
_REMEMBERED = 16


def handle(
    context: RequestContext,
    request: InitProducerIdRequest,
    transactions: TransactionCoordinator,
    authorization: Authorization,
) -> InitProducerIdResponse | Promise[InitProducerIdResponse]:
    """Hand out a producer id."""
    _check_access(context, request, authorization)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        given = transactions.new_producer()
    else:
        given = _init_transactional(context, request.transactional_id, request, transactions)
    return given.then(functools.partial(_answer, context))


def _check_access(
    context: RequestContext, request: InitProducerIdRequest, authorization: Authorization
) -> None:
    session = context.session
    if request.transactional_id is not None:
        needed = (Operation.WRITE, Operation.TWO_PHASE_COMMIT) if request.enable2_pc else (Operation.WRITE,)
        for operation in needed:
            authorization.require(session, operation, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return
    # Whoever may write to any topic may do it idempotently (KIP-679).
    if not authorization.allows(
        session, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, instead=True
    ) and not authorization.allows_any(session, Operation.WRITE, ResourceType.TOPIC):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def refuse(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    """An error and no producer id."""
    return _refused(error.code)


def _init_transactional(
    context: RequestContext,
    transactional_id: str,
    request: InitProducerIdRequest,
    transactions: TransactionCoordinator,
) -> Promise[Producer]:
    names_itself = request.producer_id != NO_PRODUCER_ID
    reply = transactions.init_producer_id(
        transactional_id,
        request.transaction_timeout_ms,
        Producer(request.producer_id, request.producer_epoch) if names_itself else None,
        two_phase=request.enable2_pc,
        keep_prepared=request.keep_prepared_txn,
    )
    return reply if context.version >= _KNOWS_FENCED else without_producer_fenced(reply)


def _answer(context: RequestContext, producer: Producer) -> InitProducerIdResponse:
    connection = context.connection
    if producer.producer_id not in connection.producer_ids:
        connection.producer_ids = (*connection.producer_ids[1 - _REMEMBERED :], producer.producer_id)
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
