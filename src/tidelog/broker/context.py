"""What a handler gets to know about the request it answers, besides the request itself.

Made by ``broker/dispatch`` for every request that goes through the generic path; passed as the first
argument of every ``handle`` function in ``broker/handlers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.app import Broker
    from tidelog.broker.connection import Connection


class RequestContext:
    """The broker, the connection and the header of one request."""

    __slots__ = ("broker", "client_id", "connection", "correlation_id", "version")

    def __init__(
        self, broker: Broker, connection: Connection, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def listener(self) -> str:
        """The name of the listener that the request came in by; endpoints in answers are of that listener."""
        return self.connection.listener

    @property
    def client_address(self) -> str:
        """The IP address of the client."""
        return self.connection.peer[0]
