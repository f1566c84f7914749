"""A connection to one other broker, opened when it is needed and again when it was lost.

Requests of one peer go one after the other where their callers await them; each purpose (the controller's
channel, a fetch loop, the way to the controller) has a peer of its own, so that a slow one holds up nobody
else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import NamedTuple, TypeVar

from tidelog.client._address import Address
from tidelog.client._network.connect import open_connection
from tidelog.client._network.connection import Connection, RequestBuilder
from tidelog.client._network.retry import Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.client.errors import BrokerUnreachableError
from tidelog.errors import TidelogError
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Payload)


# A session with a limit is renewed when so much of it is over.
_RENEW_AT = 0.85


class PeerEndpoint(NamedTuple):
    """Where a broker listens for others, and how they connect there."""

    address: Address
    settings: NetworkSettings


class PeerBroker:
    """Where another broker is, and the connection to it."""

    def __init__(self, endpoint: Callable[[], PeerEndpoint | None]) -> None:
        """``endpoint`` is asked whenever a connection is opened; None means that nobody knows."""
        self._endpoint = endpoint
        self._connection: Connection | None = None
        self._renew_at_s = inf
        self._opening = asyncio.Lock()

    @property
    def known_connection(self) -> Connection | None:
        """The connection, if it is open, leads where the broker is, and need not log in again."""
        known = self._connection
        if known is None or not known.is_open or monotonic() > self._renew_at_s:
            return None
        endpoint = self._endpoint()
        return known if endpoint is not None and known.address == endpoint.address else None

    async def connection(self, timeout_ms: float) -> Connection:
        """An open connection; raises what keeps it from being opened."""
        async with self._opening:
            known = self.known_connection
            if known is None:
                endpoint = self._endpoint()
                known = await self._renewed(endpoint, timeout_ms)
                if known is None:
                    await self._drop()
                    if endpoint is None:
                        raise BrokerUnreachableError("the broker's address is not known")
                    known = await open_connection(endpoint.address, endpoint.settings, Deadline(timeout_ms))
                    self._connection = known
                self._watch_session(known)
            return known

    async def _renewed(self, endpoint: PeerEndpoint | None, timeout_ms: float) -> Connection | None:
        """The connection with a new session (KIP-368), if that is all it lacks."""
        known = self._connection
        if known is None or not known.is_open or endpoint is None or known.address != endpoint.address:
            return None
        security = endpoint.settings.security
        if security is None:
            return None
        try:
            await security.authenticate(known, Deadline(timeout_ms))
        except TidelogError as error:
            logger.info("Connecting to %s anew, as it does not renew the session: %s", known.address, error)
            return None
        return known

    def _watch_session(self, connection: Connection) -> None:
        lifetime_s = connection.session_lifetime_ms / 1000
        self._renew_at_s = monotonic() + lifetime_s * _RENEW_AT if lifetime_s > 0 else inf

    async def request(
        self, message: Payload | RequestBuilder, response_type: type[ResponseT], timeout_ms: float
    ) -> ResponseT:
        """Ask and wait for the answer."""
        deadline = Deadline(timeout_ms)
        connection = await self.connection(timeout_ms)
        return await connection.request(message, response_type, deadline)

    async def close(self) -> None:
        """End the connection."""
        await self._drop()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
