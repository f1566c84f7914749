"""Delegation tokens (KIP-48, KIP-373): passwords for a time, by which somebody lets others log in as himself.

A token is known by its id; its password is an HMAC of the id under a secret that all brokers share
(``delegation.token.secret.key``), so that nothing that could be stolen is kept. Clients log in with it by
SCRAM, with the id for a name and the HMAC in Base64 for a password.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass

from tidelog.security.principal import Principal
from tidelog.security.sasl.fake_credentials import TOKEN_SHAPE
from tidelog.security.sasl.mechanism import Proven
from tidelog.security.sasl.scram import ScramLogin
from tidelog.security.sasl.scram_credential import ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """What is kept of a token."""

    id: str
    owner: Principal
    """Whom one is known as who logs in by it."""
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    """When it ends for good."""
    expires_ms: int
    """When it ends, if nobody renews it."""

    def is_over(self, now_ms: float) -> bool:
        """Whether it is good no more."""
        return now_ms > min(self.expires_ms, self.max_ms)

    def may_change(self, principal: Principal) -> bool:
        """Whether somebody may renew it or let it end."""
        return principal in (self.owner, self.requester, *self.renewers)


def token_hmac(secret: str, token_id: str) -> bytes:
    """What proves that somebody was given a token."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_credential(mechanism: ScramMechanism, mac: bytes, salt: bytes) -> ScramCredential:
    """The credential of a token; takes some milliseconds."""
    password = base64.b64encode(mac).decode()
    return ScramCredential.of_password(mechanism, password, TOKEN_SHAPE.iterations, salt)


def token_login(token: DelegationToken, credential: ScramCredential) -> ScramLogin:
    """Who has logged in by a token is its owner, until it ends."""
    expires_ms = min(token.expires_ms, token.max_ms)
    return ScramLogin(credential, Proven(token.owner, by_token=True, expires_at_ms=expires_ms))
