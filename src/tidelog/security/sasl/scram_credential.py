"""What a server keeps of a SCRAM password: salt, two keys, and how often they were hashed.

Nobody can log in by it, and nobody learns the password from it but by trying. The text form is Kafka's, in
which credentials stand in the configs of users: ``salt=…,stored_key=…,server_key=…,iterations=…``, bytes in
Base64. Never shown: the ``repr`` has the number of iterations alone.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

DEFAULT_ITERATIONS = 8192
SALT_BYTES = 26


class ScramMechanism(enum.Enum):
    """The two that Kafka has; ``type`` is their number in requests."""

    SHA_256 = ("SCRAM-SHA-256", 1, "sha256")
    SHA_512 = ("SCRAM-SHA-512", 2, "sha512")

    def __init__(self, label: str, type_: int, digest: str) -> None:
        self.label = label
        self.type = type_
        self.digest = digest

    @property
    def min_iterations(self) -> int:
        """As many hashes as a credential must have at least (RFC 7677)."""
        return 4096

    @property
    def max_iterations(self) -> int:
        """As many as Kafka allows: clients do the work, over and over."""
        return 16384


BY_LABEL = {each.label: each for each in ScramMechanism}
BY_TYPE = {each.type: each for each in ScramMechanism}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """One user's credential for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
    ) -> ScramCredential:
        """From what a client has hashed: servers never see the password."""
        client_key = hmac.digest(salted_password, b"Client Key", mechanism.digest)
        return cls(
            salt=salt,
            stored_key=hashlib.new(mechanism.digest, client_key).digest(),
            server_key=hmac.digest(salted_password, b"Server Key", mechanism.digest),
            iterations=iterations,
        )

    @classmethod
    def of_password(
        cls,
        mechanism: ScramMechanism,
        password: str,
        iterations: int = DEFAULT_ITERATIONS,
        salt: bytes | None = None,
    ) -> ScramCredential:
        """With a new salt where none is given; takes some milliseconds."""
        salt = salt or new_salt()
        salted = salted_password(mechanism, password, salt, iterations)
        return cls.of_salted_password(mechanism, salt, salted, iterations)

    def encode(self) -> str:
        """The text that is kept."""
        salt, stored, server = (
            base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """The inverse of :meth:`encode`; raises ``ValueError``, which shows nothing of it."""
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        try:
            return cls(
                salt=base64.b64decode(fields["salt"], validate=True),
                stored_key=base64.b64decode(fields["stored_key"], validate=True),
                server_key=base64.b64decode(fields["server_key"], validate=True),
                iterations=int(fields["iterations"]),
            )
        except (KeyError, ValueError, binascii.Error):
            raise ValueError("a SCRAM credential is not as Kafka writes them") from None


def new_salt() -> bytes:
    """A salt for a new password."""
    return secrets.token_bytes(SALT_BYTES)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """A password, hashed as clients do when they log in."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
