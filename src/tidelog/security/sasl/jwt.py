"""Tokens of OAuth in the form of JSON Web Tokens: whose they are, until when, and whether to believe them.

``SignedTokens`` believes what one of an issuer's keys has signed (``jwks``). Which algorithms a key is good
for follows from the key and never from the token: ``none`` is nobody's, and a public key is never taken for
the secret of an HMAC. ``UnsecuredTokens`` believes everybody, for trying things out; it has to be asked for.

Both want an end (``exp``) and look at the other times, the issuer and the audience. Runs in threads; used by
``oauthbearer``, and by the console where people log in at a provider of OpenID Connect.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidelog.security.sasl.mechanism import Refused

if TYPE_CHECKING:
    from tidelog.security.sasl.jwks import KeySource

# An identity provider that lists all groups of a user makes long ones; nobody makes longer ones.
MAX_TOKEN_BYTES = 256 * 1024
# Far beyond any time that means something, and small enough for all arithmetic.
_LAST_SECOND = 1e12

Claims = Mapping[str, Any]


class TokenOwner(NamedTuple):
    """What a token says that was believed."""

    name: str
    scopes: frozenset[str]
    expires_at_ms: float


class TokenValidator(Protocol):
    """Who decides whether to believe a token."""

    def validate(self, token: str) -> TokenOwner:
        """Whose it is; raises :class:`Refused`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """What a token must say."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    """One of these must be among the token's; if there are none, any will do."""
    required_scopes: frozenset[str] = frozenset()
    clock_skew_s: float = 30.0
    needs_issue_time: bool = True

    def owner_of(self, claims: Claims, now_s: float) -> TokenOwner:
        """Check everything; raises :class:`Refused`."""
        expires_s = _time(claims, "exp")
        if expires_s is None:
            raise Refused("its token has no end (exp)")
        if now_s >= expires_s + self.clock_skew_s:
            raise Refused("its token has ended (exp)")
        issued_s, not_before_s = _time(claims, "iat"), _time(claims, "nbf")
        if issued_s is None and self.needs_issue_time:
            raise Refused("its token has no beginning (iat)")
        if issued_s is not None and issued_s > expires_s:
            raise Refused("its token ends (exp) before it begins (iat)")
        if not_before_s is not None and now_s < not_before_s - self.clock_skew_s:
            raise Refused("its token is not good yet (nbf)")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise Refused("its token is of another issuer (iss)")
        if self.audiences and not self.audiences & _texts(claims, "aud", split=False):
            raise Refused("its token is for another audience (aud)")
        scopes = _texts(claims, self.scope_claim, split=True)
        if not self.required_scopes <= scopes:
            raise Refused(f"its token lacks a scope ({self.scope_claim})")
        name = claims.get(self.subject_claim)
        if not isinstance(name, str) or not name.strip():
            raise Refused(f"its token has no subject ({self.subject_claim})")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Refused(f"its token has a name that is not text ({self.subject_claim})") from None
        return TokenOwner(name, scopes, expires_s * 1000)


class SignedTokens:
    """Believes what the keys of an issuer have signed."""

    def __init__(self, keys: KeySource, rules: ClaimRules, now_s: Callable[[], float]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_s = now_s

    def validate(self, token: str) -> TokenOwner:
        """Whose it is."""
        return self._rules.owner_of(signed_claims(token, self._keys), self._now_s())


def signed_claims(token: str, keys: KeySource, algorithms: Collection[str] | None = None) -> Claims:
    """What a token says that one of the keys has signed; what it claims is for the caller to check.

    ``algorithms`` are those that are taken; without them all that a public key is good for. Raises
    :class:`Refused`.
    """
    # The library is large, and few brokers need it.
    from joserfc import jws
    from joserfc.errors import JoseError

    header, _, signature = _parts(token)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None) or not signature:
        raise Refused("its token is not signed")
    if algorithms is not None and algorithm not in algorithms:
        raise Refused(f"its token is signed by an algorithm that is not taken here ({algorithm[:20]!r})")
    if "crit" in header:
        raise Refused("its token has a header that must be understood, and is not (crit)")
    key = keys.key_for(key_id, algorithm)
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = registry.max_payload_length = MAX_TOKEN_BYTES
    registry.max_signature_length = MAX_TOKEN_BYTES
    try:
        verified = jws.deserialize_compact(token, key, registry=registry)
    except (JoseError, ValueError, TypeError):
        raise Refused("its token's signature is wrong") from None
    return _json(verified.payload)


class UnsecuredTokens:
    """Believes everybody: for trying things out, where everybody may be anybody."""

    def __init__(self, rules: ClaimRules, now_s: Callable[[], float]) -> None:
        self._rules = rules
        self._now_s = now_s

    def validate(self, token: str) -> TokenOwner:
        """Whom it names."""
        header, payload, signature = _parts(token)
        if header.get("alg") != "none" or signature:
            raise Refused("its token is signed, and only unsecured ones are taken here")
        return self._rules.owner_of(_json(_base64url(payload)), self._now_s())


def _parts(token: str) -> tuple[Claims, str, str]:
    if len(token) > MAX_TOKEN_BYTES:
        raise Refused("its token is too long")
    parts = token.split(".")
    if len(parts) != 3:
        raise Refused("its token does not have three parts")
    return _json(_base64url(parts[0])), parts[1], parts[2]


def _base64url(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Refused("its token is not Base64") from None


def _json(raw: bytes) -> Claims:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused("its token is not JSON") from None
    if not isinstance(found, dict):
        raise Refused("its token is not an object")
    return found


def _time(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"its token has a time that is not a number ({name})")
    # Python's JSON reads NaN, Infinity and numbers of any length.
    if not -_LAST_SECOND < value < _LAST_SECOND or math.isnan(value):
        raise Refused(f"its token has a time that cannot be ({name})")
    return float(value)


def _texts(claims: Claims, name: str, *, split: bool) -> frozenset[str]:
    """A claim that is one text or a list of them; scopes in one text are split at spaces."""
    value = claims.get(name)
    if isinstance(value, str):
        return frozenset(value.split() if split else (value,))
    if isinstance(value, list):
        return frozenset(each for each in value if isinstance(each, str))
    return frozenset()
