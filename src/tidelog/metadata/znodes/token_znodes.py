"""Znodes of delegation tokens, with Kafka's paths and JSON.

``/delegation_token/tokens/<id>`` is a token; names of principals in it are escaped like those of nodes. Below
``/delegation_token/token_changes`` a notice says which one has come, changed or gone.
"""

from __future__ import annotations

from urllib.parse import unquote

import msgspec

from tidelog.errors import StorageError
from tidelog.metadata.znodes.znodes import DELEGATION_TOKENS, decode_json, sanitized
from tidelog.security.delegation_token import DelegationToken
from tidelog.security.principal import Principal, parse_principal

TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = f"{TOKEN_CHANGES}/token_change_"


def token_path(token_id: str) -> str:
    """One token."""
    return f"{DELEGATION_TOKENS}/{token_id}"


class _TokenPayload(msgspec.Struct):
    owner: str
    issueTimestamp: int
    maxTimestamp: int
    expiryTimestamp: int
    tokenId: str
    renewers: list[str] = []
    tokenRequester: str | None = None


def encode_token(token: DelegationToken) -> bytes:
    """Version 3."""
    return msgspec.json.encode(
        {
            "version": 3,
            "owner": sanitized(str(token.owner)),
            "tokenRequester": sanitized(str(token.requester)),
            "renewers": [sanitized(str(each)) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.id,
        }
    )


def decode_token(token_id: str, raw: bytes) -> DelegationToken:
    """Any version; before 3 the owner had asked for it himself."""
    path = token_path(token_id)
    payload = decode_json(_TokenPayload, path, raw)
    return DelegationToken(
        id=token_id,
        owner=_principal(path, payload.owner),
        requester=_principal(path, payload.tokenRequester or payload.owner),
        renewers=tuple(_principal(path, each) for each in payload.renewers),
        issued_ms=payload.issueTimestamp,
        max_ms=payload.maxTimestamp,
        expires_ms=payload.expiryTimestamp,
    )


def _principal(path: str, text: str) -> Principal:
    try:
        return parse_principal(unquote(text))
    except ValueError as error:
        raise StorageError(f"metadata node {path} names nobody: {error}") from error
