"""Delegation tokens (KIP-48, KIP-373), as :class:`AsyncAdmin` hands them out, renews and ends them.

A token is a password for a time: whoever has it logs in by SCRAM as its owner, with its id as user name, its
HMAC in Base64 as password and ``tokenauth=true``. Brokers answer with codes alone; the sentences are from
here. Called by ``tidelog tokens`` and by Spark's driver.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.client._network.cluster import Cluster
from tidelog.client.errors import error_from
from tidelog.errors import ErrorCode, KafkaError
from tidelog.security.principal import Principal, parse_principal
from tidelog.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidelog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tidelog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_OWNER_SINCE = 3
_BROKERS_CHOICE = -1

_SENTENCES = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "the brokers keep no delegation tokens: set delegation.token.secret.key, the same on all of them, "
        "and start them again"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "delegation tokens are not for those who are not known to the broker, nor for those who have logged "
        "in by one: log in with a password, a ticket or a certificate"
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token, or it has ended",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the delegation token has ended: create another",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "the delegation token is changed by its owner, by who asked for it and by its renewers alone: log in "
        "as one of them"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "a delegation token for somebody else needs CREATE_TOKENS on that user: ask for the right, or leave "
        "the owner out"
    ),
    ErrorCode.INVALID_PRINCIPAL_TYPE: "owners and renewers of delegation tokens are users: write User:NAME",
}


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token, with what proves it; times are in ms since 1970."""

    token_id: str
    """The user name to log in with."""
    hmac: bytes = field(repr=False)
    """What proves that one was given it, and names it to brokers."""
    owner: str
    """Whom one is known as who logs in by it, as in ``User:alice``."""
    requester: str
    """Who asked for it; older brokers do not tell, and it is the owner."""
    renewers: tuple[str, ...]
    """Who else may renew it, and end it."""
    issued_ms: int
    expires_ms: int
    """When it ends, if nobody renews it."""
    max_ms: int
    """When it ends for good."""

    @property
    def password(self) -> str:
        """The password to log in with."""
        return base64.b64encode(self.hmac).decode()


async def create_delegation_token(
    cluster: Cluster, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int | None
) -> DelegationToken:
    """See :meth:`AsyncAdmin.create_delegation_token`."""
    whose = None if owner is None else parse_principal(owner)
    chosen = [parse_principal(each) for each in renewers]
    if max_lifetime_ms is not None and max_lifetime_ms <= 0:
        raise ValueError(
            f"max_lifetime_ms is {max_lifetime_ms}: give the longest life in ms, or leave it to the broker"
        )

    def build(version: int) -> CreateDelegationTokenRequest:
        if whose is not None and version < _OWNER_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "the broker makes delegation tokens only for who asks for them (it is older than Kafka 3.3): "
                "leave the owner out",
            )
        return CreateDelegationTokenRequest(
            owner_principal_type=None if whose is None else whose.type,
            owner_principal_name=None if whose is None else whose.name,
            renewers=[
                CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in chosen
            ],
            max_lifetime_ms=_BROKERS_CHOICE if max_lifetime_ms is None else max_lifetime_ms,
        )

    answer = await cluster.request_any(build, CreateDelegationTokenResponse)
    _check(answer.error_code, "a delegation token")
    name = Principal(answer.principal_name, answer.principal_type)
    return DelegationToken(
        token_id=answer.token_id,
        hmac=bytes(answer.hmac),
        owner=str(name),
        requester=_requester(
            answer.token_requester_principal_type, answer.token_requester_principal_name, name
        ),
        renewers=tuple(map(str, chosen)),
        issued_ms=answer.issue_timestamp_ms,
        expires_ms=answer.expiry_timestamp_ms,
        max_ms=answer.max_timestamp_ms,
    )


async def renew_delegation_token(cluster: Cluster, hmac: bytes, period_ms: int | None) -> int:
    """See :meth:`AsyncAdmin.renew_delegation_token`."""
    period_ms = _BROKERS_CHOICE if period_ms is None else _positive(period_ms, "period_ms")
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = await cluster.request_any(request, RenewDelegationTokenResponse)
    _check(answer.error_code, "the delegation token")
    return answer.expiry_timestamp_ms


async def expire_delegation_token(cluster: Cluster, hmac: bytes, period_ms: int | None) -> int:
    """See :meth:`AsyncAdmin.expire_delegation_token`."""
    period_ms = -1 if period_ms is None else _positive(period_ms, "period_ms")
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = await cluster.request_any(request, ExpireDelegationTokenResponse)
    _check(answer.error_code, "the delegation token")
    return answer.expiry_timestamp_ms


async def describe_delegation_tokens(cluster: Cluster, owners: Sequence[str] | None) -> list[DelegationToken]:
    """See :meth:`AsyncAdmin.describe_delegation_tokens`."""
    wanted = None if owners is None else [parse_principal(each) for each in owners]
    request = DescribeDelegationTokenRequest(
        owners=None
        if wanted is None
        else [
            DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
            for each in wanted
        ]
    )
    answer = await cluster.request_any(request, DescribeDelegationTokenResponse)
    _check(answer.error_code, "the delegation tokens of the cluster")
    return [_described(each) for each in answer.tokens]


def _described(token: DescribedDelegationToken) -> DelegationToken:
    owner = Principal(token.principal_name, token.principal_type)
    return DelegationToken(
        token_id=token.token_id,
        hmac=bytes(token.hmac),
        owner=str(owner),
        requester=_requester(
            token.token_requester_principal_type, token.token_requester_principal_name, owner
        ),
        renewers=tuple(str(Principal(each.principal_name, each.principal_type)) for each in token.renewers),
        issued_ms=token.issue_timestamp,
        expires_ms=token.expiry_timestamp,
        max_ms=token.max_timestamp,
    )


def _requester(type_: str, name: str, owner: Principal) -> str:
    return str(Principal(name, type_) if name else owner)


def _positive(period_ms: int, name: str) -> int:
    if period_ms < 0:
        raise ValueError(f"{name} is {period_ms}: give milliseconds from now on, or leave it out")
    return period_ms


def _check(code: int, subject: str) -> None:
    error = error_from(code, _SENTENCES.get(ErrorCode(code)), subject)
    if error is not None:
        raise error
