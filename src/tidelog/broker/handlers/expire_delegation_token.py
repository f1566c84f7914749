"""ExpireDelegationToken 1 and 2: refused, as tokens stand for somebody who has logged in.

Behaviour as on a PLAINTEXT listener of Kafka: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

API = ApiKey.EXPIRE_DELEGATION_TOKEN
VERSIONS = (1, 2)


def handle(context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    """There are no tokens."""
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )
