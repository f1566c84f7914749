"""PLAIN (RFC 4616): name and password in one message, looked up in the listener's JAAS line.

A password is compared in a time that depends neither on where it differs nor on whether there is such a user.
Over anything but TLS it can be read by whoever sees the network.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from tidelog.security.principal import Principal
from tidelog.security.sasl.mechanism import Proven, Refused, Step

PLAIN = "PLAIN"
_USER_OPTION = "user_"


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """The users of a JAAS line: ``user_alice="…"`` is one of them."""
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in options.items()
        if name.startswith(_USER_OPTION) and name != _USER_OPTION
    }


class PlainMechanism:
    """PLAIN with a fixed set of users."""

    name = PLAIN
    is_slow = False

    def __init__(self, users: Mapping[str, str]) -> None:
        # Digests have one length, so that comparing them tells nothing about the password's.
        self._digests = {name: _digest(password) for name, password in users.items()}
        self._nobody = secrets.token_bytes(32)

    def begin(self) -> PlainExchange:
        """A new login."""
        return PlainExchange(self)

    def is_password_of(self, name: str, password: str) -> bool:
        """Whether ``name`` is a user with this password."""
        return hmac.compare_digest(self._digests.get(name, self._nobody), _digest(password))


class PlainExchange:
    """One login."""

    def __init__(self, mechanism: PlainMechanism) -> None:
        self._mechanism = mechanism

    def step(self, message: bytes) -> Step:
        """The only message: ``[authorization id] NUL name NUL password``."""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise Refused("its message is not UTF-8") from None
        if len(parts) != 3:
            raise Refused("its message does not have three parts")
        acts_as, name, password = parts
        if not name or not password:
            raise Refused("it sent no name or no password")
        known = self._mechanism.is_password_of(name, password)
        if acts_as and acts_as != name:
            raise Refused("it wants to act as somebody else")
        if not known:
            raise Refused("its name or its password is wrong")
        return Step(b"", Proven(Principal(name)))


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
