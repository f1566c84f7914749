"""A small HTTP server for machines that watch a broker: GET and HEAD of a few paths, nothing else.

It runs on the broker's loop and gives way to requests: a page is made in pieces, and after a millisecond
others have their turn, one address after the other. It trusts no peer: a request is read up to a few thousand
bytes and for a few seconds, a body is not read at all, and whatever is not a plain request is answered with
400 and the end of the connection.

Connections are bounded, in all and for each address, in two groups: those that have asked for a page, and
those that have not, which are new or ask for the probes ``/live`` and ``/ready`` only. A new connection is
always admitted. Where its group is full, one leaves from the address that has most connections there: the one
that has kept the server waiting longest, for its TLS handshake, its request or to take its answer; if none
does, the oldest. So peers that are slow or ask without end, on purpose or not, lock out neither other
addresses nor probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import NamedTuple, cast

from tidelog.errors import ConfigError

logger = logging.getLogger(__name__)

_HEADER_BYTES = 8 * 1024
_HEADER_S = 5.0
_RECEIVED_BYTES = 16 * 1024
_IDLE_S = 120.0
_ANSWER_S = 60.0
_CONNECTIONS = 32
"""In each of the two groups."""
_OF_ONE_ADDRESS = 16
_PAGES_AT_ONCE = 2
_PROBES_AT_ONCE = 1
_PROBES = frozenset({"/live", "/ready"})
_BACKLOG = 100
_PAUSE_S = 0.1
_NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_STEP_S = 0.001
_PIECE_BYTES = 64 * 1024
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class HttpRequest(NamedTuple):
    """What was asked for."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By names in lower case; of several of one name the last."""


class HttpAnswer(NamedTuple):
    """What is answered; the body comes in pieces, for as long as it takes."""

    status: int
    content_type: str
    body: Iterator[str]


class BadRequestError(Exception):
    """What was sent is no request that is served here."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


Serve = Callable[[HttpRequest], HttpAnswer]


class _Peer:
    """One connection."""

    __slots__ = ("admitted_s", "has_begun", "host", "task", "waits_since_s")

    def __init__(self, host: str) -> None:
        self.host = host
        self.has_begun = False
        """Whether its socket belongs to a transport, which closes it."""
        self.task: asyncio.Task[None] | None = None
        self.admitted_s = time.monotonic()
        self.waits_since_s: float | None = self.admitted_s
        """Since when the server waits for it; None while it works for it."""

    def leave(self) -> None:
        """End the connection."""
        if self.task is not None:
            self.task.cancel()


class _Slots:
    """A bounded number of connections, shared between the addresses that they come from."""

    def __init__(self) -> None:
        self.peers: set[_Peer] = set()

    def admit(self, peer: _Peer) -> _Peer | None:
        """Take a connection in; returns the one that has to leave for it, if there was no room."""
        leaving = self._slowest(peer.host)
        if leaving is not None:
            self.peers.discard(leaving)
        self.peers.add(peer)
        return leaving

    def _slowest(self, host: str) -> _Peer | None:
        crowd = [each for each in self.peers if each.host == host]
        if len(crowd) < _OF_ONE_ADDRESS:
            if len(self.peers) < _CONNECTIONS:
                return None
            counts = Counter(each.host for each in self.peers)
            most = max(counts.values())
            crowd = [each for each in self.peers if counts[each.host] == most]
        waiting = [each for each in crowd if each.waits_since_s is not None]
        if waiting:
            return min(waiting, key=lambda each: each.waits_since_s or 0.0)
        return min(crowd, key=lambda each: each.admitted_s)


class _Turns:
    """Lets a few connections at a time use the loop, one address after the other."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def take(self, host: str) -> AsyncIterator[None]:
        """Wait for a turn, which ends with the block."""
        if self._free:
            self._free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(host, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            host, line = next(iter(self._waiting.items()))
            turn = line.popleft()
            if line:
                self._waiting.move_to_end(host)
            else:
                del self._waiting[host]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class HttpServer:
    """Listens on some addresses and lets ``serve`` answer."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        # Those that have asked for a page, and those that are new or ask for probes only.
        self._readers = _Slots()
        self._others = _Slots()
        self._page_turns = _Turns(_PAGES_AT_ONCE)
        self._probe_turns = _Turns(_PROBES_AT_ONCE)
        self.refused = 0
        """How many connections had to make room for others."""

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._readers.peers) + len(self._others.peers)

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen there, with TLS where there is a context for it; gives the port. Raises ``OSError``."""
        opened = await _listen(host, port)
        self._listening += opened
        # Not ``asyncio.start_server``: it reports a peer after its handshake, which may never end.
        loop = asyncio.get_running_loop()
        self._accepting += [loop.create_task(self._accept(each, tls)) for each in opened]
        return int(opened[0].getsockname()[1])

    async def close(self) -> None:
        """Listen no more and end every connection."""
        peers = self._readers.peers | self._others.peers
        talking = [peer.task for peer in peers if peer.task is not None]
        tasks = [*self._accepting, *talking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._listening:
            each.close()

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:
                # The peer has gone, or there are no file descriptors left, which takes a moment.
                logger.debug("A connection for metrics cannot be accepted: %s", error)
                await asyncio.sleep(_PAUSE_S)
            else:
                self._begin(sock, str(address[0]), tls)

    def _begin(self, sock: socket.socket, host: str, tls: ssl.SSLContext | None) -> None:
        peer = _Peer(host)

        def forget(_: object) -> None:
            self._others.peers.discard(peer)
            self._readers.peers.discard(peer)
            if not peer.has_begun:
                sock.close()

        self._admit(self._others, peer)
        peer.task = asyncio.get_running_loop().create_task(self._welcome(peer, sock, tls))
        peer.task.add_done_callback(forget)

    def _admit(self, slots: _Slots, peer: _Peer) -> None:
        leaving = slots.admit(peer)
        if leaving is not None:
            self.refused += 1
            leaving.leave()

    async def _welcome(self, peer: _Peer, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        peer.has_begun = True
        try:
            reader, writer = await _streams(sock, tls)
        except OSError as error:
            logger.debug("A connection for metrics of %s has ended in its handshake: %s", peer.host, error)
            return
        await self._talk(peer, reader, writer)

    async def _talk(self, peer: _Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        patience_s = _HEADER_S
        try:
            while await self._serve_one(peer, reader, writer, patience_s):
                patience_s = _IDLE_S
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            # The peer has gone, or does not take its answer.
            writer.transport.abort()
        except Exception:
            logger.exception("A request for metrics failed")
            writer.transport.abort()
        finally:
            writer.close()
            try:
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_HEADER_S):
                        await writer.wait_closed()
            finally:
                # A peer that does not take the rest of its answer, or goes on to send, would keep it open.
                writer.transport.abort()

    async def _serve_one(
        self, peer: _Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience_s: float
    ) -> bool:
        """Answer the next request; whether there may be another."""
        peer.waits_since_s = time.monotonic()
        try:
            async with asyncio.timeout(patience_s):
                head = await reader.readuntil(b"\r\n\r\n")
            request, keep_alive = parse(head)
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                return False
            refused = BadRequestError(400, "the request ends in its headers")
        except asyncio.LimitOverrunError:
            refused = BadRequestError(431, "the headers are too long")
        except BadRequestError as error:
            refused = error
        else:
            if request.path not in _PROBES and peer not in self._readers.peers:
                self._others.peers.discard(peer)
                self._admit(self._readers, peer)
            async with asyncio.timeout(_ANSWER_S):
                await self._answer(peer, writer, request, self._serve, keep_alive)
            return keep_alive
        text = f"{refused}\n"
        answer = HttpAnswer(refused.status, "text/plain; charset=utf-8", iter((text,)))
        async with asyncio.timeout(_HEADER_S):
            await self._answer(peer, writer, HttpRequest("GET", "", {}), lambda _: answer, keep_alive=False)
        return False

    async def _answer(
        self,
        peer: _Peer,
        writer: asyncio.StreamWriter,
        request: HttpRequest,
        serve: Serve,
        keep_alive: bool,
    ) -> None:
        turns = self._page_turns if peer in self._readers.peers else self._probe_turns
        # A recipient that keeps the connection needs to know where the body ends.
        chunked = keep_alive and request.method != "HEAD"
        peer.waits_since_s = None
        async with turns.take(peer.host):
            answer = serve(request)
            self._write(writer, _head(answer, chunked=chunked, keep_alive=keep_alive))
            await asyncio.sleep(0)
        more = request.method != "HEAD"
        while more:
            # Of many that ask at once a few have a piece made in each turn of the loop, however long the
            # others take to read theirs.
            peer.waits_since_s = None
            async with turns.take(peer.host):
                text, more = _next_piece(answer.body)
                self._write(writer, _chunk(text) if chunked else text.encode())
                await asyncio.sleep(0)
            peer.waits_since_s = time.monotonic()
            await writer.drain()
        if chunked:
            self._write(writer, b"0\r\n\r\n")
        peer.waits_since_s = time.monotonic()
        await writer.drain()

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if writer.transport.is_closing():
            # uvloop's transport raises RuntimeError here, which is for bugs.
            raise ConnectionResetError("the peer has gone")
        if data:
            writer.write(data)


def _head(answer: HttpAnswer, *, chunked: bool, keep_alive: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    if answer.status == 405:
        lines.append("Allow: GET, HEAD")
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _chunk(text: str) -> bytes:
    data = text.encode()
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host, of every interface if there is none."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            sock = socket.create_server(address, family=family, backlog=_BACKLOG)
            # For accepted connections, too: with TLS a loop decrypts in one go what has arrived of one.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_BYTES)
        except OSError as error:
            failure = error
            if error.errno not in _NO_SUCH_FAMILY:
                break
        else:
            sock.setblocking(False)
            opened.append(sock)
    if failure is not None and (not opened or failure.errno not in _NO_SUCH_FAMILY):
        for each in opened:
            each.close()
        raise failure
    return opened


async def _streams(
    sock: socket.socket, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The streams of an accepted socket, after a handshake where there is TLS; raises ``OSError``."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_HEADER_BYTES)
    protocol = _StreamProtocol(reader)
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=None if tls is None else _HEADER_S
        )
    except asyncio.CancelledError:
        if protocol.transport is not None:
            protocol.transport.abort()
        raise
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class _StreamProtocol(asyncio.StreamReaderProtocol):
    """Has its transport before the connection is handed out.

    Loops only close the transport where that is cancelled. With TLS they then read all that the peer sends,
    for half a minute, until it closes, too.
    """

    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        self.transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)


def _next_piece(body: Iterator[str]) -> tuple[str, bool]:
    """What can be made of a page in a millisecond, and whether there may be more of it."""
    pieces: list[str] = []
    size = 0
    until_s = time.monotonic() + _STEP_S
    for piece in body:
        pieces.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES or time.monotonic() >= until_s:
            return "".join(pieces), True
    return "".join(pieces), False


def parse(head: bytes) -> tuple[HttpRequest, bool]:
    """The request in ``head``, and whether its connection is to be kept; raises ``BadRequestError``."""
    try:
        text = head.decode("ascii")
    except UnicodeDecodeError:
        raise BadRequestError(400, "the headers are not ASCII") from None
    line, *fields = text[:-4].split("\r\n")
    method, _, rest = line.partition(" ")
    target, _, version = rest.partition(" ")
    if not method.isalpha() or not target.startswith("/") or not version.startswith("HTTP/"):
        raise BadRequestError(400, "this is no HTTP request")
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequestError(505, "HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for field in fields:
        name, colon, value = field.partition(":")
        if not colon or not name or not name.isprintable() or name != name.strip() or "\n" in field:
            raise BadRequestError(400, "a header cannot be read")
        headers[name.lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(400, "requests with a body are not served")
    if method not in ("GET", "HEAD"):
        raise BadRequestError(405, "GET and HEAD are served")
    connection = headers.get("connection", "").lower()
    keep_alive = version == "HTTP/1.1" and connection != "close"
    return HttpRequest(method, target.partition("?")[0], headers), keep_alive


def wants_openmetrics(accept: str) -> bool:
    """Whether an ``Accept`` header asks for OpenMetrics before the older text."""
    best: dict[str, float] = {}
    for item in accept.split(","):
        kind, *parameters = (part.strip() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        best[kind.lower()] = max(quality, best.get(kind.lower(), 0.0))
    openmetrics = best.get("application/openmetrics-text", 0.0)
    return openmetrics > 0 and openmetrics >= best.get("text/plain", 0.0)


def address_of(text: str, option: str = "metrics.listeners") -> tuple[str, int]:
    """Host and port of an address that an option names; raises ``ConfigError``."""
    plain = text.strip().removeprefix("http://").removeprefix("https://")
    host, separator, port = plain.rstrip("/").rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(
            f"{option} has {text!r}, which is no address: write it as HOST:PORT, for example 127.0.0.1:9404"
        )
    return host.strip("[]"), int(port)
