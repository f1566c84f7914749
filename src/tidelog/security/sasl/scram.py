"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as Kafka speaks them, from the server's side.

    client   n,,n=alice,r=<nonce>[,tokenauth=true]
    server   r=<nonce><more>,s=<salt>,i=<iterations>
    client   c=<Base64 of what stood before n=>,r=<nonce><more>,p=<proof>
    server   v=<signature>

Each login has a nonce of the server's own, which the proof covers: what was heard of one login is good for no
other. A name that nobody has goes the same way to its end, with a credential that was made up: its salt is
the same each time, so that asking twice tells nothing either. Names and passwords are taken as UTF-8 without
SASLprep, as Kafka does, and there is no channel binding.

``tokenauth`` says that the name is the id of a delegation token and the password its HMAC (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidelog.security.principal import Principal
from tidelog.security.sasl.mechanism import Proven, Refused, SlowStep, Step
from tidelog.security.sasl.scram_credential import ScramCredential, ScramMechanism

_FIRST = re.compile(
    r"(?P<header>n,(?:a=(?P<acts_as>[^,]+))?,)"
    r"(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_FINAL = re.compile(
    r"(?P<signed>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]*)*?)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_ESCAPE = re.compile("=(2C|3D)?")


@dataclass(frozen=True, slots=True)
class ScramLogin:
    """What is known of somebody who wants to log in."""

    credential: ScramCredential = field(repr=False)
    proven: Proven
    """What he has proven by it."""


class ScramCredentials(Protocol):
    """Where credentials are looked up."""

    def user(self, mechanism: ScramMechanism, name: str) -> ScramLogin | None:
        """The login of a user; ``None`` if there is none by this mechanism."""

    def token(self, mechanism: ScramMechanism, token_id: str) -> ScramLogin | Callable[[], ScramLogin] | None:
        """The login by a delegation token; ``None`` if there is no such token, or it has ended.

        Where its credential has to be hashed first, which takes milliseconds, what does so in a thread.
        """

    def shape(self, mechanism: ScramMechanism) -> CredentialShape:
        """What credentials of this mechanism look like, for those that are made up."""


class CredentialShape(NamedTuple):
    """What tells credentials of one origin from those of another."""

    iterations: int
    salt_bytes: int


class ScramServer:
    """A mechanism as one listener offers it."""

    is_slow = False

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: ScramCredentials,
        salt_secret: bytes,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        """``salt_secret`` makes up salts for names that nobody has: the same on all brokers, and for ever."""
        self.name = mechanism.label
        self.mechanism = mechanism
        self.credentials = credentials
        self.new_nonce = new_nonce
        self._salt_secret = salt_secret

    def begin(self) -> ScramExchange:
        """A new login."""
        return ScramExchange(self)

    def made_up(self, name: str) -> ScramCredential:
        """A credential that nobody can log in by, always the same for a name."""
        shape = self.credentials.shape(self.mechanism)
        asked = f"{self.name}\0{name}".encode()
        stream = hmac.digest(self._salt_secret, b"salt" + asked, "sha512")
        keys = hmac.digest(self._salt_secret, b"keys" + asked, self.mechanism.digest)
        return ScramCredential(stream[: shape.salt_bytes], keys, keys, shape.iterations)


class ScramExchange:
    """One login."""

    def __init__(self, server: ScramServer) -> None:
        self._server = server
        self._begun: _Begun | None = None

    def step(self, message: bytes) -> Step | SlowStep:
        """The client's first message, or its last."""
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise Refused("its message is not UTF-8") from None
        return self._begin(text) if self._begun is None else self._finish(self._begun, text)

    def _begin(self, text: str) -> Step | SlowStep:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise Refused("its first message is not SCRAM's")
        name = _unescaped(found["name"])
        if found["acts_as"] is not None and _unescaped(found["acts_as"]) != name:
            raise Refused("it wants to act as somebody else")
        server = self._server
        by_token = "tokenauth=true" in found["extensions"].lower().split(",")
        find = server.credentials.token if by_token else server.credentials.user
        login = find(server.mechanism, name)
        # Made up for everybody, and read for those who have none, so that both ways take as long.
        made_up = server.made_up(name)
        if callable(login):
            hashed = login
            return SlowStep(lambda: self._greet(found, made_up, hashed()))
        return self._greet(found, made_up, login)

    def _greet(self, found: re.Match[str], made_up: ScramCredential, login: ScramLogin | None) -> Step:
        credential = ScramCredential.parse(made_up.encode()) if login is None else login.credential
        nonce = found["nonce"] + self._server.new_nonce()
        salt = base64.b64encode(credential.salt).decode()
        server_first = f"r={nonce},s={salt},i={credential.iterations}"
        self._begun = _Begun(found["header"], found["bare"], nonce, server_first, credential, login)
        return Step(server_first.encode())

    def _finish(self, begun: _Begun, text: str) -> Step:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise Refused("its last message is not SCRAM's")
        if not hmac.compare_digest(found["nonce"].encode(), begun.nonce.encode()):
            raise Refused("its nonce is not that of this login")
        if _bytes(found["binding"]) != begun.header.encode():
            raise Refused("it begins and ends with different channel bindings")
        digest = self._server.mechanism.digest
        credential = begun.credential
        signed = ",".join((begun.bare, begun.server_first, found["signed"])).encode()
        signature = hmac.digest(credential.stored_key, signed, digest)
        proof = _bytes(found["proof"])
        # zip() would stop at the end of a short proof; its key does not fit either way.
        client_key = bytes(a ^ b for a, b in zip(proof.ljust(len(signature), b"\0"), signature, strict=False))
        fits = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        if begun.login is None or not fits or len(proof) != len(signature):
            raise Refused("its name or its password is wrong")
        server_final = b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, digest))
        return Step(server_final, begun.login.proven)


class _Begun(NamedTuple):
    """What a login's last message is checked against."""

    header: str
    bare: str
    nonce: str
    server_first: str
    credential: ScramCredential
    login: ScramLogin | None


def user_login(name: str, credential: ScramCredential) -> ScramLogin:
    """The login of a user by his own password."""
    return ScramLogin(credential, Proven(Principal(name)))


def _unescaped(name: str) -> str:
    """A name as it was before commas and equals signs were written as ``=2C`` and ``=3D``."""

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            raise Refused("its name has an equals sign that is not written as =3D")
        return "," if found[1] == "2C" else "="

    return _ESCAPE.sub(one, name)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refused("its last message is not SCRAM's") from None
