"""What the two sides of a login need of a Kerberos library, and how that fails; ``library`` has it."""

from __future__ import annotations

from typing import Protocol

from tidelog.errors import TidelogError


class KerberosError(TidelogError):
    """What the library refuses, in its own words and with what to do about it where that is known."""


class Context(Protocol):
    """One side of one login; all of it may take a while, and raises :class:`KerberosError`."""

    @property
    def is_complete(self) -> bool:
        """Whether both sides know each other, as far as they have asked for it."""

    @property
    def initiator(self) -> str:
        """The client's principal, once it is complete."""

    def step(self, token: bytes | None) -> bytes:
        """Take the other side's token, ``None`` to begin; gives what to send, which may be nothing."""

    def wrap(self, message: bytes) -> bytes:
        """A message that cannot be changed on the way."""

    def unwrap(self, message: bytes) -> bytes:
        """What the other side has wrapped."""
