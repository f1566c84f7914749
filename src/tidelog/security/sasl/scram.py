"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as Kafka speaks them, from the server's side.

    client   n,,n=alice,r=<nonce>[,tokenauth=true]
    server   r=<nonce><more>,s=<salt>,i=<iterations>
    client   c=<Base64 of what stood before n=>,r=<nonce><more>,p=<proof>
    server   v=<signature>

Each login has a nonce of the server's own, which the proof covers: what was heard of one login is good for no
other. A name that no user has goes the same way to its end, with a credential that was made up to look like
the others (``fake_credentials``). Names and passwords are taken as UTF-8 without SASLprep, as Kafka does, and
there is no channel binding.

``tokenauth`` says that the name is the id of a delegation token and the password its HMAC (KIP-48). Its salt
follows from the id, so that the first answer is the same whether there is such a token or not.
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
from tidelog.security.sasl.fake_credentials import TOKEN_SHAPE, CredentialShapes, fake_credential
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

    def token(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes
    ) -> ScramLogin | Callable[[], ScramLogin] | None:
        """The login by a delegation token; ``None`` if there is no such token, or it has ended.

        Where its credential has to be hashed with ``salt`` first, which takes milliseconds, a function that
        does so, for a thread.
        """

    @property
    def shapes(self) -> CredentialShapes:
        """The shapes of the users' credentials, for those that are made up."""


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
        """``salt_secret`` makes up salts for names that no user has: the same on all brokers, and always."""
        self.name = mechanism.label
        self.mechanism = mechanism
        self.credentials = credentials
        self.new_nonce = new_nonce
        self._salt_secret = salt_secret

    def begin(self) -> ScramExchange:
        """A new login."""
        return ScramExchange(self)

    def fake_user(self, name: str) -> ScramCredential:
        """A credential for a name that has none for this mechanism."""
        shape = self.credentials.shapes.shape_for(self.mechanism, name, self._salt_secret)
        return fake_credential(self.mechanism, name, shape, self._salt_secret)

    def fake_token(self, token_id: str) -> ScramCredential:
        """A credential for the id of a delegation token; that of a real one has its salt."""
        return fake_credential(self.mechanism, f"tokenauth\0{token_id}", TOKEN_SHAPE, self._salt_secret)


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

    def _begin(self, text: str) -> Step:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise Refused("its first message is not SCRAM's")
        name = _unescaped(found["name"])
        if found["acts_as"] is not None and _unescaped(found["acts_as"]) != name:
            raise Refused("it wants to act as somebody else")
        server = self._server
        by_token = "tokenauth=true" in found["extensions"].lower().split(",")
        login: ScramLogin | Callable[[], ScramLogin] | None
        if by_token:
            fake = server.fake_token(name)
            login = server.credentials.token(server.mechanism, name, fake.salt)
        else:
            fake = server.fake_user(name)
            login = server.credentials.user(server.mechanism, name)
        # Made up and written for all, and read for those that have none, so that both ways take as long.
        written = fake.encode()
        credential = login.credential if isinstance(login, ScramLogin) else ScramCredential.parse(written)
        nonce = found["nonce"] + server.new_nonce()
        salt = base64.b64encode(credential.salt).decode()
        server_first = f"r={nonce},s={salt},i={credential.iterations}"
        self._begun = _Begun(found["header"], found["bare"], nonce, server_first, credential, login)
        return Step(server_first.encode())

    def _finish(self, begun: _Begun, text: str) -> Step | SlowStep:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise Refused("its last message is not SCRAM's")
        if not hmac.compare_digest(found["nonce"].encode(), begun.nonce.encode()):
            raise Refused("its nonce is not that of this login")
        if _bytes(found["binding"]) != begun.header.encode():
            raise Refused("it begins and ends with different channel bindings")
        signed = ",".join((begun.bare, begun.server_first, found["signed"])).encode()
        proof = _bytes(found["proof"])
        if callable(begun.login):
            hashed = begun.login

            def check_hashed() -> Step:
                login = hashed()
                return self._check(login.credential, login, signed, proof)

            return SlowStep(check_hashed)
        return self._check(begun.credential, begun.login, signed, proof)

    def _check(
        self, credential: ScramCredential, login: ScramLogin | None, signed: bytes, proof: bytes
    ) -> Step:
        digest = self._server.mechanism.digest
        signature = hmac.digest(credential.stored_key, signed, digest)
        # zip() would stop at the end of a short proof; its key does not fit either way.
        client_key = bytes(a ^ b for a, b in zip(proof.ljust(len(signature), b"\0"), signature, strict=False))
        fits = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        if login is None or not fits or len(proof) != len(signature):
            raise Refused("its name or its password is wrong")
        server_final = b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, digest))
        return Step(server_final, login.proven)


class _Begun(NamedTuple):
    """What a login's last message is checked against."""

    header: str
    bare: str
    nonce: str
    server_first: str
    credential: ScramCredential
    """Of a token that has yet to be hashed one that was made up, with its salt."""
    login: ScramLogin | Callable[[], ScramLogin] | None


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
