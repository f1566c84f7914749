"""Everything on the network side of a broker that is not one connection: buffers, limits, acceptors, idle
expiry.

The roles of Kafka's SocketServer on one loop. ``open`` binds the listeners, so that a port in use is an
error at start; ``start`` begins to listen and to accept, when the rest of the broker is ready, on all
listeners or on some first; ``stop_requests`` and ``close`` are the two halves of a shutdown.

One listener may be kept apart from the others (``control.plane.listener.name``): it is a network of its own,
with its own buffers and none of the limits, and it is looked at not only when the loop comes to it, but also
between the events of all other connections. So the controller is heard after one event of a client's
connection, however many clients there are and whatever they send.

Wired by ``broker/app``.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from tidelog.broker.network.acceptor import Acceptor
from tidelog.broker.network.answer_times import AnswerLog, RequestObserver
from tidelog.broker.network.busy_time import BusyTime
from tidelog.broker.network.connection import Connection, RequestHandler, RequestTimer
from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.broker.network.inbox import RECEIVE_BUFFER_BYTES, FrameLimits
from tidelog.broker.network.loop_turn import LoopTurn
from tidelog.broker.network.memory_pool import UNLIMITED, FrameBuffers, RequestMemory
from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.broker.network.tls_socket import TlsSocket
from tidelog.clock import Clock, SystemClock
from tidelog.config.listeners import Listener
from tidelog.metrics.connection_counts import ConnectionCounts
from tidelog.security.session import Session

if TYPE_CHECKING:
    from tidelog.broker.network.tls_handshake import Newcomer, TlsHandshakes, TlsListener

_DRAIN_POLL_S = 0.005
_BACKLOG_TURN_S = 0.0005
_QUIET_S = 1.0
_LOOK_APART_S = 0.001


class NetworkLimits(Struct, frozen=True):
    """The options of the network side, in the units they are used in."""

    max_request_bytes: int = 100 * 1024 * 1024
    queued_request_bytes: int = UNLIMITED
    max_idle_ms: int = 600_000
    send_buffer_bytes: int = UNLIMITED
    receive_buffer_bytes: int = UNLIMITED
    backlog: int = 50
    quotas: ConnectionQuotas = field(default_factory=ConnectionQuotas)


class Network:
    """The open connections of a broker and what they share."""

    def __init__(
        self,
        handler: RequestHandler,
        loop: asyncio.AbstractEventLoop,
        limits: NetworkLimits | None = None,
        clock: Clock | None = None,
        tls: Mapping[str, TlsListener] | None = None,
    ) -> None:
        """``tls`` says which listeners, by their names, speak TLS."""
        limits = limits or NetworkLimits()
        self.handler = handler
        self.loop = loop
        self.logger = logging.getLogger(__name__)
        self.rate_limited_log = RateLimitedLog(self.logger, clock or SystemClock())
        self.quotas = limits.quotas
        self.max_request_bytes = limits.max_request_bytes
        self.memory = RequestMemory(limits.queued_request_bytes)
        self.frame_buffers = FrameBuffers()
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.turn = LoopTurn(loop)
        self.put_back_bytes = 0
        """What connections have received and could not handle yet."""
        self.connections: set[Connection] = set()
        self.stopping = False
        self.max_sockets = _max_sockets()
        """How many connections there can be before logs lack the file descriptors that they need."""
        self.after_event: Callable[[], None] | None = None
        """Called after each event of a connection, where a listener is kept apart."""
        self.counts: defaultdict[str, ConnectionCounts] = defaultdict(ConnectionCounts)
        """What has become of connections, by listener."""
        self.frame_limits: FrameLimits | None = None
        """How long requests may be by their API, where that is less than ``socket.request.max.bytes``."""
        self.observer: RequestObserver | None = None
        """Is told how long requests took, where that is counted or logged."""
        self.answer_log: AnswerLog | None = None
        """Sees the answers, too, where every request is logged; only while there is an ``observer``."""
        self.request_time: RequestTimer | None = None
        """Times requests while there is a quota of it."""
        self.greeters: dict[str, Callable[[Connection], None]] = {}
        """By listener, who meets its new connections before the handler does: those that have to log in."""
        self._limits = limits
        self._clock = clock
        self._tls = tls or {}
        self.handshakes: TlsHandshakes | None = None
        """Those who shake hands, where there is TLS."""
        if self._tls:
            # Not before: a broker without TLS starts without it.
            from tidelog.broker.network.tls_handshake import LIMIT_S, TlsHandshakes

            idle_s = limits.max_idle_ms / 1000
            self.handshakes = TlsHandshakes(self, min(LIMIT_S, idle_s) if idle_s > 0 else LIMIT_S)
        self._apart: Network | None = None
        self.apart_busy: BusyTime | None = None
        """How long the listener that is kept apart was busy while requests were observed, if there is one."""
        self._looked_s = 0.0
        self._backlog: deque[Connection] = deque()
        self._serving_backlog = False
        self._acceptors: list[Acceptor] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._quiet_timer: asyncio.TimerHandle | None = None

    def open(self, listeners: Sequence[Listener], apart: str | None = None) -> dict[str, int]:
        """Bind all listeners, that with the name ``apart`` by itself; returns the port that each of them
        got."""
        ports: dict[str, int] = {}
        for listener in listeners:
            if listener.name == apart:
                ports |= self._open_apart(listener)
                continue
            acceptor = Acceptor(listener, self, self._limits.backlog)
            _ = self.counts[listener.name]
            self._acceptors.append(acceptor)
            self.quotas.add_listener(listener.name)
            ports[listener.name] = acceptor.listener.port
        return ports

    def _open_apart(self, listener: Listener) -> dict[str, int]:
        limits = replace(self._limits, queued_request_bytes=UNLIMITED, quotas=ConnectionQuotas())
        self._apart = Network(self.handler, self.loop, limits, self._clock, self._tls)
        self._apart.greeters = self.greeters
        self._apart.counts = self.counts
        self._apart.frame_limits = self.frame_limits
        self.apart_busy = BusyTime()
        self.after_event = self._look_apart
        return self._apart.open([listener])

    def _look_apart(self) -> None:
        """Serve the listener that is kept apart, if nobody has looked there for a moment."""
        # The loop's own time stands still during a turn.
        now_s = time.monotonic()
        if self._apart is not None and now_s - self._looked_s > _LOOK_APART_S:
            self._looked_s = now_s
            for connection in tuple(self._apart.connections):
                connection.look_for_requests()

    def sessions(self) -> Iterator[Session]:
        """Who is connected."""
        for connection in self.all_connections():
            yield connection.session

    def all_connections(self) -> list[Connection]:
        """Those that are open, of the listener that is kept apart, too."""
        apart = [] if self._apart is None else self._apart.all_connections()
        return [*self.connections, *apart]

    def observe(self, observer: RequestObserver | None, answer_log: AnswerLog | None = None) -> None:
        """Report to ``observer`` alone how long requests take from now on, and answers to ``answer_log``."""
        self.observer = observer
        self.answer_log = answer_log
        if self._apart is not None and self.apart_busy is not None:
            self.apart_busy.observer = observer
            self._apart.observe(None if observer is None else self.apart_busy, answer_log)

    def time_requests(self, request_time: RequestTimer | None) -> None:
        """Have ``request_time`` time requests from now on, or nothing."""
        self.request_time = request_time
        if self._apart is not None:
            self._apart.time_requests(request_time)

    def start(self, only: Collection[str] | None = None) -> None:
        """Accept connections and serve them, on all listeners or on those named in ``only``."""
        if self._apart is not None:
            self._apart.start(only)
        for acceptor in self._acceptors:
            if only is None or acceptor.listener.name in only:
                acceptor.listen()
        if self._idle_timer is None:
            self._expire_idle()
        if self._quiet_timer is None:
            now = self.loop.time()
            self._look_at_quiet(now, now)

    @property
    def sockets(self) -> int:
        """How many are open, those that shake hands included."""
        return len(self.connections) + (0 if self.handshakes is None else len(self.handshakes))

    def accepted(self, sock: socket.socket, peer: tuple[str, int], listener: str) -> None:
        """Serve an accepted socket that the quotas have admitted, after a handshake where there is TLS."""
        self.counts[listener].created += 1
        if self.handshakes is not None and listener in self._tls:
            from tidelog.broker.network.tls_handshake import Newcomer

            self._set_options(sock)
            self.handshakes.begin(Newcomer(sock, peer, listener), self._tls[listener])
            self._make_room()
        else:
            self.adopt(sock, peer, listener)

    def adopt(self, sock: socket.socket, peer: tuple[str, int], listener: str) -> Connection:
        """Serve a socket without TLS that the quotas have admitted."""
        self._set_options(sock)
        connection = self._serve(Connection(sock, peer, listener, self))
        self._make_room()
        return connection

    def _serve(self, connection: Connection) -> Connection:
        """A new connection; on some listeners it has to log in first."""
        self.connections.add(connection)
        if connection.listener in self.greeters:
            self.greeters[connection.listener](connection)
        return connection

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer_bytes)
        if self._limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._limits.receive_buffer_bytes)

    def _make_room(self) -> None:
        """One more has come: where there may not be as many, one that has long been idle goes."""
        if self.quotas.is_overdrawn():
            self._close_longest_idle()

    def greeted(self, newcomer: Newcomer, sock: TlsSocket, session: Session) -> None:
        """A handshake has succeeded."""
        if newcomer.listener not in self.greeters:
            self.counts[newcomer.listener].succeeded += 1
        self._serve(Connection(sock, newcomer.peer, newcomer.listener, self, session))

    def turned_away(self, newcomer: Newcomer) -> None:
        """A handshake has failed, and its socket is closed."""
        self.quotas.leave(newcomer.listener, newcomer.peer[0])
        counts = self.counts[newcomer.listener]
        counts.closed += 1
        counts.failed += 1
        self.quotas_changed()

    def resume_soon(self, connection: Connection) -> None:
        """``connection`` has requests left, and goes on after those who came before it."""
        self._backlog.append(connection)
        if not self._serving_backlog:
            self._serving_backlog = True
            self.loop.call_soon(self._serve_backlog)

    def _serve_backlog(self) -> None:
        """Let connections go on for a moment; the loop looks for new requests before there is another."""
        backlog = self._backlog
        end_s = time.monotonic() + _BACKLOG_TURN_S
        while backlog:
            connection = backlog.popleft()
            try:
                connection.resume()
            except Exception:
                # The others in the backlog have nobody else to go on with them.
                self.logger.exception("Going on with the requests of %s failed", connection)
                connection.refuse("its requests could not be handled")
            if self.after_event is not None:
                self.after_event()
            if time.monotonic() > end_s:
                break
        if backlog:
            self.loop.call_soon(self._serve_backlog)
        else:
            self._serving_backlog = False

    def forget(self, connection: Connection) -> None:
        """A connection has closed itself."""
        self.connections.discard(connection)
        counts = self.counts[connection.listener]
        counts.closed += 1
        counts.past_sent_bytes += connection.sent_bytes
        if connection.times is not None:
            counts.past_requests += connection.times.requests
            counts.past_received_bytes += connection.times.received_bytes
        self.quotas.leave(connection.listener, connection.peer[0])
        self.quotas_changed()

    def quotas_changed(self) -> None:
        """There may be room for connections that was not there before."""
        if not self.stopping:
            for acceptor in self._acceptors:
                acceptor.resume()

    def stop_requests(self) -> None:
        """First half of the shutdown: no new connections, no new requests."""
        self.stopping = True
        if self._apart is not None:
            self._apart.stop_requests()
        for timer in (self._idle_timer, self._quiet_timer):
            if timer is not None:
                timer.cancel()
        for acceptor in self._acceptors:
            acceptor.close()
        if self.handshakes is not None:
            self.handshakes.close()
        for connection in self.connections:
            connection.stop_reading()

    async def drain(self, deadline_s: float) -> None:
        """Wait until no request is being worked on, at most ``deadline_s``; long polls are given up."""
        end = self.loop.time() + deadline_s
        while any(each.busy for each in self.connections) and self.loop.time() < end:  # noqa: ASYNC110
            # Once in a broker's life: not worth an event that every connection would have to set.
            await asyncio.sleep(_DRAIN_POLL_S)

        for connection in self.connections:
            connection.give_up_waits()
        if self._apart is not None:
            await self._apart.drain(max(end - self.loop.time(), 0))

    def close(self) -> None:
        """Second half: close every connection."""
        self.stop_requests()
        if self._apart is not None:
            self._apart.close()
        for connection in list(self.connections):
            connection.close()

    def _close_longest_idle(self) -> None:
        candidates = [c for c in self.connections if not self.quotas.is_protected(c.listener)]
        if candidates:
            oldest = min(candidates, key=lambda connection: connection.last_active)
            self.rate_limited_log.warn(
                "evicted", "Closing %s, idle longest: max.connections is reached", oldest
            )
            oldest.close()

    def _look_at_quiet(self, before_last: float, last: float) -> None:
        """Look once at each connection that was active between the last two looks and not since.

        uvloop tells of a socket that was reset right behind its last bytes once, and then no more: they are
        read, and the reset, seen by nobody, would keep the connection and its request memory until it is idle
        for too long.
        """
        for connection in list(self.connections):
            if before_last <= connection.last_active < last:
                connection.look_for_end()
        now = self.loop.time()
        self._quiet_timer = self.loop.call_later(_QUIET_S, self._look_at_quiet, last, now)

    def _expire_idle(self) -> None:
        """Close what was silent for ``connections.max.idle.ms``; look again when the next one may be due."""
        max_idle_s = self._limits.max_idle_ms / 1000
        if max_idle_s < 0:
            return
        now = self.loop.time()
        oldest = now
        for connection in list(self.connections):
            if now - connection.last_active >= max_idle_s:
                self.logger.debug("Closing %s: idle for connections.max.idle.ms", connection)
                connection.close()
            else:
                oldest = min(oldest, connection.last_active)
        self._idle_timer = self.loop.call_later(max(oldest + max_idle_s - now, 0.1), self._expire_idle)


def _max_sockets() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft * 3 // 4
