"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as Kafka speaks them, from the client's side.

Both sides prove that they know the password without sending it. Names and passwords are taken as UTF-8
without SASLprep, as Kafka does, and there is no channel binding. ``tokenauth`` marks a delegation token
(KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from tidelog.client._network.security.mechanisms import Dialogue
from tidelog.client.errors import AuthenticationError

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_MIN_ITERATIONS = 4096
# Enough for any credential that Kafka's tools make; a broker must not keep the client busy for ever.
_MAX_ITERATIONS = 10_000_000
_NO_CHANNEL_BINDING = b"n,,"


def scram(
    mechanism: str, username: str, password: str, *, tokenauth: bool = False, nonce: str | None = None
) -> Dialogue:
    """The three messages of one login; ``nonce`` is for tests."""
    digest = HASHES[mechanism]
    nonce = nonce or secrets.token_urlsafe(24)
    extension = ",tokenauth=true" if tokenauth else ""
    client_first = f"n={_sasl_name(username)},r={nonce}{extension}".encode()

    server_first = yield _NO_CHANNEL_BINDING + client_first
    fields = _fields(server_first)
    server_nonce, salt, iterations = fields.get("r", ""), _salt(fields), _iterations(fields)
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise AuthenticationError(f"{mechanism}: the broker's nonce does not continue ours")

    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    without_proof = b"c=" + base64.b64encode(_NO_CHANNEL_BINDING) + b",r=" + server_nonce.encode()
    signed = b",".join((client_first, server_first, without_proof))
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

    server_final = yield without_proof + b",p=" + base64.b64encode(proof)
    fields = _fields(server_final)
    if "e" in fields:
        raise AuthenticationError(f"{mechanism}: the broker refused the login: {fields['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(_base64(fields.get("v", "")), expected):
        raise AuthenticationError(f"{mechanism}: the broker does not know the password, it may be another's")


def _sasl_name(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _fields(message: bytes) -> dict[str, str]:
    text = message.decode(errors="replace")
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _salt(fields: dict[str, str]) -> bytes:
    salt = _base64(fields.get("s", ""))
    if not salt:
        raise AuthenticationError(
            "SCRAM: the broker sent no salt" + (f": {fields['e']}" if "e" in fields else "")
        )
    return salt


def _iterations(fields: dict[str, str]) -> int:
    text = fields.get("i", "")
    iterations = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise AuthenticationError(
            f"SCRAM: the broker asks for {text or 'no'} iterations, {_MIN_ITERATIONS} are the least"
        )
    return iterations


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
