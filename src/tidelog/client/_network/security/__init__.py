"""How a client proves who it is and whom it trusts: TLS and SASL, by ``security.protocol``.

tls           PEM options into an ``ssl.SSLContext``
sasl          handshake and exchange of tokens with any mechanism, re-authentication
mechanisms    PLAIN and OAUTHBEARER          scram    SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802)
gssapi        GSSAPI, which is an extra
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from tidelog.client._network.connection import Connection
    from tidelog.client._network.retry import Deadline

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


class Authenticator(Protocol):
    """A SASL dialogue, once per connection."""

    async def __call__(self, connection: Connection, deadline: Deadline) -> None:
        """Authenticate, or raise ``AuthenticationError``."""


@dataclass(frozen=True, slots=True)
class Security:
    """What a connection does before its first request."""

    protocol: SecurityProtocol = "PLAINTEXT"
    tls: Callable[[], ssl.SSLContext] | None = None
    """Asked for the context of each new connection."""
    sasl: Authenticator | None = None

    async def authenticate(self, connection: Connection, deadline: Deadline) -> None:
        if self.sasl is not None:
            await self.sasl(connection, deadline)
