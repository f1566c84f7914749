"""CreateDelegationToken 1 to 3: refused, as tokens stand for somebody who has logged in.

Behaviour as on a PLAINTEXT listener of Kafka: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, for the owner that was
asked for, by nobody in particular.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

API = ApiKey.CREATE_DELEGATION_TOKEN
VERSIONS = (1, 3)

_USER = "User"
_ANONYMOUS = "ANONYMOUS"
_REQUESTER_SINCE = 3


def handle(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    """There are no tokens."""
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=(request.owner_principal_name and request.owner_principal_type) or _USER,
        principal_name=request.owner_principal_name or _ANONYMOUS,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if context.version >= _REQUESTER_SINCE:
        response.token_requester_principal_type = _USER
        response.token_requester_principal_name = _ANONYMOUS
    return response
