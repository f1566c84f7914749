"""A port for a server that a test starts later, or again: no other process is given it in between.

A socket that is bound, but does not listen, keeps the port from everyone who asks for any free port, and from
outgoing connections. A server that sets ``SO_REUSEADDR``, as ours all do, may listen there meanwhile; while
none does, connections are refused. Linux alone shares a port in this way: elsewhere the port was free a
moment ago, and that is all. Used by ``testing.broker_process`` and by tests.
"""

from __future__ import annotations

import socket
import sys
from types import TracebackType


class ReservedPort:
    """Holds a port until ``close``, or to the end of a ``with`` block."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """``port`` 0 takes one that is free.

        Raises:
            OSError: Another process listens on the port.
        """
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._socket = socket.socket(family)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)
            self.port: int = self._socket.getsockname()[1]
        except OSError:
            self._socket.close()
            raise
        if sys.platform != "linux":
            self._socket.close()

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()

    def __enter__(self) -> ReservedPort:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
