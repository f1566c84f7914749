"""What has become of the connections of one listener, since the broker started."""

from __future__ import annotations


class ConnectionCounts:
    """Plain numbers that the network counts up."""

    __slots__ = ("closed", "created", "expired", "failed", "failed_again", "succeeded", "succeeded_again")

    def __init__(self) -> None:
        self.created = 0
        self.closed = 0
        self.succeeded = 0
        """Logins, or handshakes where nobody logs in."""
        self.failed = 0
        self.succeeded_again = 0
        """Logins of those who had logged in before on the same connection."""
        self.failed_again = 0
        self.expired = 0
        """Connections that were closed because their login had expired."""
