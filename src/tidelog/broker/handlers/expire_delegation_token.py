"""ExpireDelegationToken 1 and 2: let a token end sooner.

Behaviour as in Kafka: the token is named by its HMAC; DELEGATION_TOKEN_NOT_FOUND for one that is not there,
DELEGATION_TOKEN_OWNER_MISMATCH for who is neither its owner nor may renew it, DELEGATION_TOKEN_EXPIRED for
one that is over. A negative period ends it at once.
"""

from __future__ import annotations

from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens
from tidelog.broker.context import RequestContext
from tidelog.errors import KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

API = ApiKey.EXPIRE_DELEGATION_TOKEN
VERSIONS = (1, 2)


async def handle(
    context: RequestContext, request: ExpireDelegationTokenRequest, delegation_tokens: DelegationTokens
) -> ExpireDelegationTokenResponse:
    """Change when a token ends."""
    ends_ms = await delegation_tokens.change_end(
        context.session, bytes(request.hmac), request.expiry_time_period_ms, sooner=True
    )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=ends_ms)


def refuse(request: ExpireDelegationTokenRequest, error: KafkaError) -> ExpireDelegationTokenResponse:
    """An error and no time."""
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
