"""RenewDelegationToken 1 and 2: let a token end later.

Behaviour as in Kafka: the token is named by its HMAC; DELEGATION_TOKEN_NOT_FOUND for one that is not there,
DELEGATION_TOKEN_OWNER_MISMATCH for who is neither its owner nor may renew it, DELEGATION_TOKEN_EXPIRED for
one that is over. A negative period stands for ``delegation.token.expiry.time.ms``.
"""

from __future__ import annotations

from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens
from tidelog.broker.context import RequestContext
from tidelog.errors import KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

API = ApiKey.RENEW_DELEGATION_TOKEN
VERSIONS = (1, 2)


async def handle(
    context: RequestContext, request: RenewDelegationTokenRequest, delegation_tokens: DelegationTokens
) -> RenewDelegationTokenResponse:
    """Change when a token ends."""
    ends_ms = await delegation_tokens.change_end(
        context.session, bytes(request.hmac), request.renew_period_ms, sooner=False
    )
    return RenewDelegationTokenResponse(expiry_timestamp_ms=ends_ms)


def refuse(request: RenewDelegationTokenRequest, error: KafkaError) -> RenewDelegationTokenResponse:
    """An error and no time."""
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
