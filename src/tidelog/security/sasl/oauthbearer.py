"""OAUTHBEARER (RFC 7628): a token says who the client is, and its issuer's signature that it is true.

    client   n,[a=<name>],^Aauth=Bearer <token>[^A<extension>=<value>…]^A^A
    server   nothing, or {"status":"invalid_token"}, to which the client says ^A, and that is the end

Extensions are read and passed over, as Kafka does with those that nobody has asked for.
"""

from __future__ import annotations

import re

from tidelog.security.principal import Principal
from tidelog.security.sasl.jwt import TokenOwner, TokenValidator
from tidelog.security.sasl.mechanism import Proven, Refused, Step

OAUTHBEARER = "OAUTHBEARER"
_MESSAGE = re.compile(r"n,(?:a=(?P<acts_as>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_BEARER = re.compile(r"[Bb]earer +(?P<token>[-\w.~+/=]+)", re.ASCII)
_INVALID = b'{"status":"invalid_token"}'
_ACKNOWLEDGED = b"\x01"


class OAuthBearerMechanism:
    """OAUTHBEARER with one way to check tokens."""

    name = OAUTHBEARER
    is_slow = True

    def __init__(self, validator: TokenValidator) -> None:
        self.validator = validator

    def begin(self) -> OAuthBearerExchange:
        """A new login."""
        return OAuthBearerExchange(self.validator)


class OAuthBearerExchange:
    """One login."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        # Its text alone: the exception would keep all frames that it came through, and they this.
        self._refusal: str | None = None

    def step(self, message: bytes) -> Step:
        """The client's token, or its word that it has heard of the refusal."""
        if self._refusal is not None:
            raise Refused(self._refusal)
        if message == _ACKNOWLEDGED:
            raise Refused("it acknowledges a refusal before there was one")
        try:
            owner = self._owner(message)
        except Refused as refusal:
            self._refusal = str(refusal)
            return Step(_INVALID)
        return Step(b"", Proven(Principal(owner.name), expires_at_ms=owner.expires_at_ms))

    def _owner(self, message: bytes) -> TokenOwner:
        try:
            found = _MESSAGE.fullmatch(message.decode())
        except UnicodeDecodeError:
            found = None
        if found is None:
            raise Refused("its message is not OAUTHBEARER's")
        pairs = [pair.partition("=") for pair in found["pairs"].removesuffix("\x01").split("\x01")]
        tokens = [value for name, _, value in pairs if name == "auth"]
        bearer = _BEARER.fullmatch(tokens[0]) if len(tokens) == 1 else None
        if bearer is None:
            raise Refused("its message has no bearer token, or several")
        owner = self._validator.validate(bearer["token"])
        if found["acts_as"] and found["acts_as"] != owner.name:
            raise Refused("it wants to act as somebody else")
        return owner
