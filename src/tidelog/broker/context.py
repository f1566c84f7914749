"""What a handler gets to know about the request it answers, besides the request itself.

Made by ``broker/exchange/dispatch`` for every request that goes through the generic path; passed as the first
argument of every ``handle`` function in ``broker/handlers``.
"""

from __future__ import annotations

from tidelog.broker.network.connection import Connection
from tidelog.broker.quotas.payer import Payer, payer_called
from tidelog.security.session import Session


class RequestContext:
    """The connection and the header of one request."""

    __slots__ = ("client_id", "connection", "correlation_id", "pause_ms", "version")

    def __init__(
        self, connection: Connection, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.pause_ms = 0
        """For how long the client has to pause, because of what it changes: its handler says so."""

    @property
    def listener(self) -> str:
        """The name of the listener that the request came in by; endpoints in answers are of that listener."""
        return self.connection.listener

    @property
    def client_address(self) -> str:
        """The IP address of the client."""
        return self.connection.peer[0]

    @property
    def payer(self) -> Payer:
        """Who pays for it, where there are quotas."""
        return payer_called(self.connection, self.client_id or "")

    @property
    def session(self) -> Session:
        """Who sent it."""
        return self.connection.session
