"""A TCP proxy in front of a broker that cuts connections at a chosen byte, or trickles."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterable, Iterator

_TRICKLE_S = 0.002


class FaultProxy:
    """Forwards to a broker; each new connection is cut after the next of ``cuts``, in bytes of the broker's.

    Connections after the last number live for ever. With ``trickle`` bytes come in pieces of that size.
    """

    def __init__(self, cuts: Iterable[int] = (), trickle: int | None = None) -> None:
        self.target_port = 0
        self.connections = 0
        self._cuts: Iterator[int | None] = itertools.chain(cuts, itertools.repeat(None))
        self._trickle = trickle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, target_port: int) -> None:
        self.target_port = target_port
        self._accepting.start()

    def close(self) -> None:
        self._listener.close()
        for each in list(self._open):
            _cut(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                broker = socket.create_connection(("127.0.0.1", self.target_port), timeout=60)
            except OSError:
                _cut(client)
                continue
            broker.settimeout(None)
            self._open |= {client, broker}
            limit = next(self._cuts)
            threading.Thread(target=self._pump, args=(client, broker, None), daemon=True).start()
            threading.Thread(target=self._pump, args=(broker, client, limit), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        left = limit
        with contextlib.suppress(OSError):
            while left is None or left > 0:
                size = self._trickle if limit is None and self._trickle else 65536
                data = source.recv(size if left is None else min(size, left))
                if not data:
                    break
                sink.sendall(data)
                if left is not None:
                    left -= len(data)
                if self._trickle:
                    time.sleep(_TRICKLE_S)
        for each in (source, sink):
            self._open.discard(each)
            _cut(each)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
