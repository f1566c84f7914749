"""FindCoordinator 0 to 6: which broker coordinates a group or a transactional id.

There is no coordinator in this release: every key is answered with COORDINATOR_NOT_AVAILABLE, which clients
take as "ask again later", one answer for each key since version 4. A key type that does not exist, and
share groups before version 6, are INVALID_REQUEST, as in Kafka.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
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
_NO_NODE = -1
_NO_PORT = -1


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Answer for the key, or for each of them."""
    code, message = _status(request.key_type)
    if context.version < _BATCHES_SINCE:
        return _single(code, message)
    return FindCoordinatorResponse(
        coordinators=[_coordinator(key, code, message) for key in request.coordinator_keys]
    )


def refuse(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    """The same error for every key."""
    if not request.coordinator_keys:
        return _single(error.code, error.message)
    return FindCoordinatorResponse(
        coordinators=[_coordinator(key, error.code, error.message) for key in request.coordinator_keys]
    )


def _coordinator(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, error_code=code, error_message=message, node_id=_NO_NODE, port=_NO_PORT)


def _status(key_type: int) -> tuple[ErrorCode, str]:
    if key_type not in (_GROUP, _TRANSACTION):
        what = "Share groups are" if key_type == _SHARE else f"Coordinator type {key_type} is"
        return ErrorCode.INVALID_REQUEST, f"{what} not supported by this broker."
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."


def _single(code: ErrorCode, message: str) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=_NO_NODE, port=_NO_PORT)
