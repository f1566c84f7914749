"""kazoo's threads and sockets, with a share of the time for each server of an ensemble.

kazoo gives every connection the whole session timeout. A machine that does not answer, tried first, would
cost a broker its session while the other servers are well; Java's client divides the time among them, too.

Used by ``metadata.zookeeper`` and ``client._old_offsets``.
"""

from __future__ import annotations

from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


class ZooKeeperSockets(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """What a ``KazooClient`` takes as its handler; ``connect`` is ``host:port,host:port/chroot``."""

    def __init__(self, connect: str) -> None:
        super().__init__()
        hosts, _, _ = connect.partition("/")
        self._servers = len(hosts.split(","))

    def create_connection(self, *, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> Any:
        """Connect; the socket keeps its timeout until kazoo or TLS set another."""
        return super().create_connection(address=address, timeout=timeout / self._servers)
