"""A connection to one other broker, opened when it is needed and again when it was lost.

Requests of one peer go one after the other where their callers await them; each purpose (the controller's
channel, a fetch loop, the way to the controller) has a peer of its own, so that a slow one holds up nobody
else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tidelog.client.address import Address
from tidelog.client.connect import open_connection
from tidelog.client.connection import Connection, RequestBuilder
from tidelog.client.errors import BrokerUnreachableError
from tidelog.client.retry import Deadline
from tidelog.client.settings import NetworkSettings
from tidelog.wire.schema import Payload

ResponseT = TypeVar("ResponseT", bound=Payload)


class PeerBroker:
    """Where another broker is, and the connection to it."""

    def __init__(self, address: Callable[[], Address | None], settings: NetworkSettings) -> None:
        """``address`` is asked whenever a connection is opened; None means that nobody knows."""
        self._address = address
        self._settings = settings
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    @property
    def known_connection(self) -> Connection | None:
        """The connection, if it is open and leads where the broker is."""
        known = self._connection
        return known if known is not None and known.is_open and known.address == self._address() else None

    async def connection(self, timeout_ms: float) -> Connection:
        """An open connection; raises what keeps it from being opened."""
        async with self._opening:
            known = self.known_connection
            if known is None:
                await self._drop()
                address = self._address()
                if address is None:
                    raise BrokerUnreachableError("the broker's address is not known")
                known = await open_connection(address, self._settings, Deadline(timeout_ms))
                self._connection = known
            return known

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
