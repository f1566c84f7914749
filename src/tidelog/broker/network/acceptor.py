"""A listener: bound at once, listening from ``listen`` on, so that clients are refused until then and ask
another broker. Accepts while there is room, turns away addresses that have too many connections.

When the broker or the listener is full, or three quarters of the files that the process may open are sockets
(a crowd of connections must not keep logs from being opened), the acceptor stops listening for events and the
kernel's backlog holds newcomers; ``Network.forget`` calls ``resume`` when a connection has gone. Connections
of an address that makes them faster than its quota are kept for a moment, unserved, and closed. When the
process is out of file descriptors all the same it pauses for a moment instead of spinning. While it pauses
for a time, be it for that or because connections are made faster than ``max.connection.creation.rate``, none
that closes makes it accept.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Protocol

from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.config.listeners import Listener
from tidelog.errors import ConfigError

_ACCEPTS_PER_TURN = 16
_PAUSE_S = 0.1
# Sockets that are kept, unserved, of those who make too many; of more, each is closed at once.
_MAX_EARLY = 1000
_NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class AcceptingSide(Protocol):
    """What an acceptor needs from the network it accepts for."""

    loop: asyncio.AbstractEventLoop
    quotas: ConnectionQuotas
    rate_limited_log: RateLimitedLog
    max_sockets: int

    @property
    def sockets(self) -> int:
        """How many are open, those that shake hands included."""

    def accepted(self, sock: socket.socket, peer: tuple[str, int], listener: str) -> None:
        """Serve an accepted socket that the quotas have admitted."""


class Acceptor:
    """One bound listener."""

    def __init__(self, listener: Listener, network: AcceptingSide, backlog: int) -> None:
        self._network = network
        self._accepting = False
        self._pause_timer: asyncio.TimerHandle | None = None
        self._early: set[socket.socket] = set()
        self._backlog = backlog
        self._is_listening = False
        self._sock = _bind(listener)
        self.listener = listener._replace(port=self._sock.getsockname()[1])

    def listen(self) -> None:
        """Begin to listen and to accept; a second call changes nothing."""
        if not self._is_listening:
            try:
                self._sock.listen(self._backlog)
            except OSError as error:
                raise ConfigError(_bind_failure(self.listener, error)) from error
            self._is_listening = True
        self.resume()

    def resume(self) -> None:
        """Accept, if there is room, no pause is to be kept, and it is not being done already."""
        if (
            not self._is_listening
            or self._accepting
            or self._pause_timer is not None
            or self._sock.fileno() < 0
            or not self._has_room()
        ):
            return
        self._accepting = True
        self._network.loop.add_reader(self._sock, self._on_acceptable)

    def pause(self) -> None:
        """Leave newcomers in the kernel's queue."""
        if self._accepting:
            self._accepting = False
            self._network.loop.remove_reader(self._sock)

    def close(self) -> None:
        """Stop listening."""
        self.pause()
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._sock.close()
        for early in self._early:
            early.close()

    def _has_room(self) -> bool:
        network = self._network
        return network.sockets < network.max_sockets and network.quotas.has_room(self.listener.name)

    def _pause_for(self, seconds: float) -> None:
        self.pause()
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._pause_timer = self._network.loop.call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause_timer = None
        self.resume()

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._has_room():
                self._complain_that_full()
                self.pause()
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_accept_error(error)
                return
            wait_s = self._network.quotas.count_creation(self.listener.name, self._network.loop.time())
            self._admit(sock, (address[0], address[1]))
            if wait_s > 0:
                self._pause_for(wait_s)
                return

    def _close_later(self, sock: socket.socket, ip: str, seconds: float) -> None:
        """Let a client that makes too many connections wait with this one, and then find it closed."""
        self._network.rate_limited_log.warn(
            "too fast", "Turning away %s: it makes more connections than its connection_creation_rate", ip
        )
        if len(self._early) >= _MAX_EARLY:
            sock.close()
            return

        def close() -> None:
            self._early.discard(sock)
            sock.close()

        self._early.add(sock)
        self._network.loop.call_later(seconds, close)

    def _complain_that_full(self) -> None:
        reason = ""
        if self._network.sockets >= self._network.max_sockets:
            reason = ", as the other files it may open are kept for logs: raise the limit (ulimit -n)"
        self._network.rate_limited_log.warn(
            "full", "%s accepts no connections until one of them closes%s", self.listener.name, reason
        )

    def _on_accept_error(self, error: OSError) -> None:
        if error.errno not in _OUT_OF_RESOURCES:
            raise error
        self._network.rate_limited_log.warn(
            "out of resources",
            "%s cannot accept connections: %s; raise the limit of open files (ulimit -n)",
            self.listener.name,
            os.strerror(error.errno or 0),
        )
        self._pause_for(_PAUSE_S)

    def _admit(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        quotas = self._network.quotas
        ip = _plain_ip(peer[0])
        too_early_s = quotas.too_early_s(self.listener.name, ip, self._network.loop.time())
        if too_early_s > 0:
            self._close_later(sock, ip, too_early_s)
            return
        if quotas.admit(self.listener.name, ip):
            self._network.accepted(sock, (ip, peer[1]), self.listener.name)
            return
        sock.close()
        self._network.rate_limited_log.warn(
            "too many",
            "Turning away %s: it has %d connections, all that max.connections.per.ip allows it",
            ip,
            quotas.ip_limit(ip),
        )


def _plain_ip(ip: str) -> str:
    return ip.removeprefix("::ffff:")


def _bind(listener: Listener) -> socket.socket:
    """A bound socket: every interface means IPv4 and IPv6 alike, a host name its IPv4 address first."""
    host = listener.host or None
    preferred = socket.AF_INET6 if host is None else socket.AF_INET
    try:
        found = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the host of listener {listener} cannot be resolved: name an address of this machine, "
            "or 0.0.0.0 for all of them"
        ) from error
    failure = OSError(errno.EADDRNOTAVAIL, "")
    for family, _, _, _, address in sorted(found, key=lambda info: info[0] != preferred):
        try:
            return _bound(family, address, both=host is None)
        except OSError as error:
            failure = error
            if error.errno not in _NO_SUCH_FAMILY:
                break
    raise ConfigError(_bind_failure(listener, failure)) from failure


def _bound(family: int, address: tuple[object, ...], *, both: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _bind_failure(listener: Listener, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {listener.port} of listener {listener} is already in use: stop what is using it, "
                "or choose another with --listen HOST:PORT (option listeners)"
            )
        case errno.EADDRNOTAVAIL:
            return f"listener {listener} names an address that this machine does not have: change listeners"
        case errno.EACCES:
            return f"listener {listener} needs a port above 1023, or a user who may open this one"
    return f"listener {listener} cannot be opened: {os.strerror(error.errno or 0)}"
