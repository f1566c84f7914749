"""FindCoordinator 0 to 6: which broker coordinates a group or a transactional id.

Since version 4 there is one answer for each key. A key type that does not exist, and share groups, which have
no coordinator here, are INVALID_REQUEST. The internal topic of a coordinator comes into being when the first
client looks for one; where it cannot, and where its partition has no leader, the answer is
COORDINATOR_NOT_AVAILABLE, which clients retry.

Difference: Kafka answers the request that makes it create an internal topic with COORDINATOR_NOT_AVAILABLE;
here it is answered when the topic is there.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.coordinators import Coordinators
from tidelog.broker.endpoints import endpoints_of
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_BATCHES_SINCE = 4
_BATCH_SIZE = 64
_NO_NODE = -1
_NO_PORT = -1
_NO_ERROR = "NONE"


async def handle(
    context: RequestContext,
    request: FindCoordinatorRequest,
    coordinators: Coordinators,
    image: MetadataImage,
    authorization: Authorization,
) -> FindCoordinatorResponse:
    """Answer for the key, or for each of them."""
    kind = ResourceType.GROUP if request.key_type == _GROUP else ResourceType.TRANSACTIONAL_ID

    async def find(key: str) -> Coordinator:
        if request.key_type in (_GROUP, _TRANSACTION):
            try:
                authorization.require(context.session, Operation.DESCRIBE, kind, key)
            except KafkaError as error:
                return _refused(key, error)
        return await _find(context, request.key_type, key, coordinators, image)

    if context.version < _BATCHES_SINCE:
        found = await find(request.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message or _NO_ERROR,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    response = FindCoordinatorResponse()
    async for key in yielding_every(_BATCH_SIZE, request.coordinator_keys):
        response.coordinators.append(await find(key))
    return response


def refuse(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    """The same error for every key."""
    if not request.coordinator_keys:
        return FindCoordinatorResponse(
            error_code=error.code, error_message=error.message, node_id=_NO_NODE, port=_NO_PORT
        )
    return FindCoordinatorResponse(coordinators=[_refused(key, error) for key in request.coordinator_keys])


async def _find(
    context: RequestContext, key_type: int, key: str, coordinators: Coordinators, image: MetadataImage
) -> Coordinator:
    try:
        if key_type not in (_GROUP, _TRANSACTION):
            what = "Share groups are" if key_type == _SHARE else f"Coordinator type {key_type} is"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} not supported by this broker.")
        coordinator = coordinators.groups if key_type == _GROUP else coordinators.transactions
        node_id = await coordinators.find(coordinator, key)
        endpoints = endpoints_of(image, [node_id], context.listener)
        if not endpoints:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    except KafkaError as error:
        return _refused(key, error)
    _, host, port, _ = endpoints[0]
    return Coordinator(key=key, error_message="", node_id=node_id, host=host, port=port)


def _refused(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, error_code=error.code, error_message=error.message, node_id=_NO_NODE, port=_NO_PORT
    )
