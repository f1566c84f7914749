"""DescribeDelegationToken 1 to 3: the tokens that somebody may know of, with what proves them.

Behaviour as in Kafka: tokens are told to their owners, to who asked for them and to those who may renew them,
and to whoever may DESCRIBE the token, or DESCRIBE_TOKENS of its owner; without an authorizer, by which Kafka
tells everybody, to nobody else. No list of owners stands for all, an empty one
for none; renewers and those who asked for a token count as its owners.
"""

from __future__ import annotations

from tidelog.broker.access.authentication.delegation_tokens import DelegationTokens
from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.security.delegation_token import DelegationToken
from tidelog.security.principal import Principal
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

API = ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS = (1, 3)

_REQUESTER_SINCE = 3


def handle(
    context: RequestContext,
    request: DescribeDelegationTokenRequest,
    delegation_tokens: DelegationTokens,
    authorization: Authorization,
) -> DescribeDelegationTokenResponse:
    """List tokens."""
    delegation_tokens.check_allowed(context.session)
    owners = request.owners
    wanted = (
        None if owners is None else [Principal(each.principal_name, each.principal_type) for each in owners]
    )
    response = DescribeDelegationTokenResponse()

    def may_describe(token: DelegationToken) -> bool:
        if not authorization.is_on:
            return False
        session = context.session
        return authorization.allows(
            session, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner)
        ) or authorization.allows(session, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)

    for token in delegation_tokens.visible_to(context.session.principal, wanted, may_describe):
        described = DescribedDelegationToken(
            principal_type=token.owner.type,
            principal_name=token.owner.name,
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expires_ms,
            max_timestamp=token.max_ms,
            token_id=token.id,
            hmac=delegation_tokens.hmac_of(token),
            renewers=[
                DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
                for each in token.renewers
            ],
        )
        if context.version >= _REQUESTER_SINCE:
            described.token_requester_principal_type = token.requester.type
            described.token_requester_principal_name = token.requester.name
        response.tokens.append(described)
    return response
