"""Delegation tokens (KIP-48): the list, new ones, and the end of those that are there.

What proves a token leaves the console once, in the answer to who has had it made; it is in no list, log or
audit entry. Brokers decide by the console's own login what it may see and change.
"""

from __future__ import annotations

import msgspec

from tidelog.client.admin.delegation_tokens import DelegationToken
from tidelog.console.api.endpoint import Call, Nothing, changes, reads, require_whole_cluster
from tidelog.console.refusal import Refusal, not_found
from tidelog.console.settings import Role


class DelegationTokenRow(msgspec.Struct, frozen=True):
    """A token, without what proves it; times are in ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    max_ms: int


class NewDelegationTokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A token for the console's own login, or for ``owner`` (Kafka 3.3; needs CREATE_TOKENS on that user)."""

    owner: str | None = None
    renewers: list[str] = []
    max_lifetime_ms: int | None = None


class NewDelegationToken(msgspec.Struct, frozen=True):
    """A new token; its password is told this once."""

    token: DelegationTokenRow
    hmac: str
    """The password, as Base64; the user name is the token's id."""


class PeriodRequest(msgspec.Struct, forbid_unknown_fields=True):
    """So many ms from now; without it the broker's usual time."""

    period_ms: int | None = None


class Expiry(msgspec.Struct, frozen=True):
    """When a token ends, in ms since 1970."""

    expires_ms: int


@reads("/clusters/{cluster}/delegation-tokens", "Delegation tokens, without their passwords.", Nothing)
async def delegation_tokens(call: Call, asked: Nothing) -> list[DelegationTokenRow]:
    """Those that the console's login may know of, the first to end first."""
    require_whole_cluster(call)
    found = await call.cluster.admin.describe_delegation_tokens()
    return [_row(each) for each in sorted(found, key=lambda each: (each.expires_ms, each.token_id))]


@changes(
    "POST",
    "/clusters/{cluster}/delegation-tokens",
    "Create a delegation token. Only this response contains its password.",
    NewDelegationTokenRequest,
    action="create delegation token",
    role=Role.ADMIN,
)
async def create_delegation_token(call: Call, asked: NewDelegationTokenRequest) -> NewDelegationToken:
    """Whoever has it logs in as its owner until it ends."""
    call.details |= {"owner": asked.owner, "renewers": asked.renewers}
    try:
        made = await call.cluster.admin.create_delegation_token(
            owner=asked.owner, renewers=asked.renewers, max_lifetime_ms=asked.max_lifetime_ms
        )
    except ValueError as error:
        raise Refusal(str(error)) from None
    call.details |= {"owner": made.owner, "token_id": made.token_id}
    return NewDelegationToken(_row(made), made.password)


@changes(
    "POST",
    "/clusters/{cluster}/delegation-tokens/{id}/renew",
    "Renew a delegation token, up to its maximum lifetime.",
    PeriodRequest,
    action="renew delegation token",
    role=Role.ADMIN,
)
async def renew_delegation_token(call: Call, asked: PeriodRequest) -> Expiry:
    """Its owner, who asked for it and its renewers may, as brokers see it."""
    token = await _found(call, asked)
    return Expiry(await call.cluster.admin.renew_delegation_token(token.hmac, period_ms=asked.period_ms))


@changes(
    "DELETE",
    "/clusters/{cluster}/delegation-tokens/{id}",
    "Expire a delegation token, immediately or after period_ms milliseconds.",
    PeriodRequest,
    action="expire delegation token",
    role=Role.ADMIN,
)
async def expire_delegation_token(call: Call, asked: PeriodRequest) -> Expiry:
    """Who has logged in by it stays so until his session ends."""
    token = await _found(call, asked)
    return Expiry(await call.cluster.admin.expire_delegation_token(token.hmac, period_ms=asked.period_ms))


async def _found(call: Call, asked: PeriodRequest) -> DelegationToken:
    if asked.period_ms is not None and asked.period_ms < 0:
        raise Refusal("period_ms must be at least 0; omit it for the default")
    wanted = call.path["id"]
    for each in await call.cluster.admin.describe_delegation_tokens():
        if each.token_id == wanted:
            call.details |= {"owner": each.owner, "period_ms": asked.period_ms}
            return each
    raise not_found(f"delegation token {wanted} does not exist, or the console's user may not describe it")


def _row(token: DelegationToken) -> DelegationTokenRow:
    return DelegationTokenRow(
        token.token_id,
        token.owner,
        token.requester,
        list(token.renewers),
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
    )


ENDPOINTS = (
    delegation_tokens,
    create_delegation_token,
    renew_delegation_token,
    expire_delegation_token,
)
