"""CreateDelegationToken 1 to 3: a token by which others log in as the one who asks.

Behaviour as in Kafka: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for those who are not known, or known by a token;
DELEGATION_TOKEN_AUTH_DISABLED without ``delegation.token.secret.key``; INVALID_PRINCIPAL_TYPE for owners and
renewers that are no users. INVALID_REQUEST, where Kafka keeps what it cannot read afterwards, for renewers
without a name, or too many of them. A token for another owner needs CREATE_TOKENS on that user, or is refused
with DELEGATION_TOKEN_AUTHORIZATION_FAILED; without an authorizer (Kafka then lets everybody) always. Any
broker of a cluster makes them, not the controller alone.
"""

from __future__ import annotations

from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens
from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.security.principal import USER, Principal
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

API = ApiKey.CREATE_DELEGATION_TOKEN
VERSIONS = (1, 3)

_REQUESTER_SINCE = 3


async def handle(
    context: RequestContext,
    request: CreateDelegationTokenRequest,
    delegation_tokens: DelegationTokens,
    authorization: Authorization,
) -> CreateDelegationTokenResponse:
    """Make a token."""
    requester = context.session.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_name, request.owner_principal_type or USER)
    response = CreateDelegationTokenResponse(principal_type=owner.type, principal_name=owner.name)
    if context.version >= _REQUESTER_SINCE:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    try:
        delegation_tokens.check_allowed(context.session)
        if owner != requester and not _may_create_for(authorization, context, owner):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        token = await delegation_tokens.create(
            requester,
            owner,
            (Principal(each.principal_name, each.principal_type) for each in request.renewers),
            request.max_lifetime_ms,
        )
    except KafkaError as error:
        response.error_code = error.code
        response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1
        return response
    response.error_code = ErrorCode.NONE
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.id
    response.hmac = delegation_tokens.hmac_of(token)
    return response


def _may_create_for(authorization: Authorization, context: RequestContext, owner: Principal) -> bool:
    if not authorization.is_on:
        return False
    return authorization.allows(context.session, Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
