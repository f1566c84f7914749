"""Logging in: SaslHandshake (v1) names the mechanism, SaslAuthenticate (v0 to v2) carries its messages.

A broker that limits sessions (KIP-368) says for how long; ``client._network.node_connection`` logs in again
on the same connection before that. A refusal is an ``AuthenticationError``, which nobody tries again by
itself.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.client._network.retry import Deadline
from tidelog.client._network.security.mechanisms import Dialogue, oauthbearer
from tidelog.client.errors import AuthenticationError, RequestTimeoutError
from tidelog.errors import ErrorCode
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from tidelog.client._address import Address
    from tidelog.client._network.connection import Connection

TokenProvider = Callable[[], str | Awaitable[str]]
"""Returns an OAuth token, or a coroutine for one."""


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """One mechanism and how to begin its dialogue; called for every login on a connection."""

    mechanism: str
    begin: Callable[[Address], Awaitable[Dialogue]]
    is_slow: bool = False
    """Whether a step of the dialogue may take a while, and belongs into a thread."""
    remedy: str = ""
    """How an error of a refused login ends: what to check."""

    async def __call__(self, connection: Connection, deadline: Deadline) -> None:
        dialogue = await self.begin(connection.address)
        await self._shake_hands(connection, deadline)
        message = await self._next_message(dialogue, None, deadline)
        while message is not None:
            response = await connection.request(
                SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, deadline
            )
            if response.error_code:
                raise self._refused(connection, response)
            connection.session_lifetime_ms = response.session_lifetime_ms
            message = await self._next_message(dialogue, bytes(response.auth_bytes), deadline)

    async def _next_message(
        self, dialogue: Dialogue, answer: bytes | None, deadline: Deadline
    ) -> bytes | None:
        """What to say to the broker's answer, ``None`` to begin with; ``None`` when all is said."""
        if not self.is_slow:
            return _advance(dialogue, answer)
        step = asyncio.to_thread(_advance, dialogue, answer)
        try:
            return await asyncio.wait_for(step, deadline.remaining)
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"the login by {self.mechanism} was not ready within {deadline.timeout_ms / 1000:.3g} s"
            ) from error

    async def _shake_hands(self, connection: Connection, deadline: Deadline) -> None:
        response = await connection.request(
            SaslHandshakeRequest(mechanism=self.mechanism), SaslHandshakeResponse, deadline
        )
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms) or "none"
            raise AuthenticationError(
                f"{connection.address} does not take sasl.mechanism={self.mechanism}; it takes {offered}"
            )
        if response.error_code:
            code = ErrorCode(response.error_code).name
            raise AuthenticationError(
                f"{connection.address} refused to begin a login ({code}); for a listener without logins set "
                "security.protocol=PLAINTEXT, or SSL with TLS"
            )

    def _refused(self, connection: Connection, response: SaslAuthenticateResponse) -> AuthenticationError:
        why = response.error_message or ErrorCode(response.error_code).name
        return AuthenticationError(
            f"{connection.address} refused the login by {self.mechanism}: {why}{self.remedy}"
        )


def _advance(dialogue: Dialogue, answer: bytes | None) -> bytes | None:
    try:
        return next(dialogue) if answer is None else dialogue.send(answer)
    except StopIteration:
        return None


def oauth_login(provider: TokenProvider) -> SaslLogin:
    """OAUTHBEARER with tokens from ``provider``, asked for each time."""

    async def begin(_: Address) -> Dialogue:
        try:
            token = provider()
            if inspect.isawaitable(token):
                token = await token
        except Exception as error:
            raise AuthenticationError(
                f"sasl.login.callback.handler.class failed to give a token: {error}"
            ) from error
        if not isinstance(token, str):
            raise AuthenticationError(
                f"sasl.login.callback.handler.class must return a token as text, not a {type(token).__name__}"
            )
        return oauthbearer(token)

    return SaslLogin("OAUTHBEARER", begin)
