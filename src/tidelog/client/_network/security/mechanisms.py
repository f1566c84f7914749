"""PLAIN and OAUTHBEARER, each as a dialogue.

A dialogue is a generator: it yields what the client says and is sent what the broker answers. It ends when
there is nothing left to say, and raises ``AuthenticationError`` where the answer is not to be trusted.
``sasl`` runs it.
"""

from __future__ import annotations

import json
from collections.abc import Generator

from tidelog.client.errors import AuthenticationError

Dialogue = Generator[bytes, bytes, None]


def plain(username: str, password: str) -> Dialogue:
    """PLAIN (RFC 4616)."""
    yield b"\0".join((b"", username.encode(), password.encode()))


def oauthbearer(token: str) -> Dialogue:
    """OAUTHBEARER (RFC 7628): a refusal comes as JSON, which has to be acknowledged."""
    refusal = yield b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    if refusal:
        yield b"\x01"
        raise AuthenticationError(f"the broker refused the token: {_status(refusal)}")


def _status(refusal: bytes) -> str:
    try:
        return str(json.loads(refusal)["status"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return refusal.decode(errors="replace")
