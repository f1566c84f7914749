"""Personal tokens for assistants (``people.tokens``): one's own; the console's admins see and revoke all."""

from __future__ import annotations

import msgspec

from tidelog.console.api.endpoint import Call, Nothing, changes, reads
from tidelog.console.api.shapes import Done
from tidelog.console.auth.person import Account
from tidelog.console.auth.tokens import Token, Tokens
from tidelog.console.refusal import Refusal, forbidden
from tidelog.console.settings import Role


class TokenRow(msgspec.Struct, frozen=True):
    """A token; its secret is known to its owner alone."""

    id: str
    user: str
    login: str
    label: str
    read_only: bool
    made_at_ms: int
    ends_at_ms: int
    own: bool


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token to make."""

    label: str
    days: float = 7.0
    read_only: bool = True


class MadeToken(msgspec.Struct, frozen=True):
    """The token, which is shown this once."""

    token: str
    id: str
    ends_at_ms: int


@reads("/tokens", "Tokens for assistants: your own; for admins of the console, all tokens.", Nothing)
async def tokens(call: Call, asked: Nothing) -> list[TokenRow]:
    """Those that have not ended, the newest first."""
    kept, account = _tokens(call)
    shown = kept.all() if _is_admin(call) else kept.of(account.user, account.way)
    return [
        TokenRow(
            each.id,
            each.user,
            each.way.value,
            each.label,
            each.read_only,
            each.made_at_ms,
            each.ends_at_ms,
            _is_own(each, account),
        )
        for each in shown
    ]


@changes("POST", "/tokens", "Create a token.", NewToken, action="make token", role=Role.VIEWER)
async def make_token(call: Call, asked: NewToken) -> MadeToken:
    """It has the rights of its owner, or less; only a hash of it is kept."""
    kept, account = _tokens(call)
    call.details |= {"label": asked.label[:100], "days": asked.days, "read_only": asked.read_only}
    text, token = kept.make(
        account.user, account.way, account.groups, asked.label, asked.days, read_only=asked.read_only
    )
    call.details["id"] = token.id
    return MadeToken(text, token.id, token.ends_at_ms)


@changes("DELETE", "/tokens/{id}", "Revoke a token.", Nothing, action="revoke token", role=Role.VIEWER)
async def revoke_token(call: Call, asked: Nothing) -> Done:
    """At once; one's own, or as an admin of the console anybody's."""
    kept, account = _tokens(call)
    token = kept.get(call.path["id"])
    if not _is_own(token, account) and not _is_admin(call):
        raise forbidden(
            f"token {token.id} belongs to another user: only an admin of all clusters may revoke it"
        )
    call.details |= {"user": token.user, "label": token.label}
    kept.revoke(token.id)
    return Done()


def _tokens(call: Call) -> tuple[Tokens, Account]:
    if call.console.tokens is None or call.person.account is None:
        raise Refusal(
            "tokens are disabled: add [mcp] and [login] sections to the file in the console's --config",
            409,
            "NO_TOKENS",
        )
    return call.console.tokens, call.person.account


def _is_own(token: Token, account: Account) -> bool:
    return (token.user, token.way) == (account.user, account.way)


def _is_admin(call: Call) -> bool:
    return call.person.is_admin_of(call.console.clusters)


ENDPOINTS = (tokens, make_token, revoke_token)
