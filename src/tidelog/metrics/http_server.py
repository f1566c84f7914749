"""A small HTTP server for machines that watch a broker: GET and HEAD of a few paths, nothing else.

It runs on the broker's loop and gives way to requests: a page is made in pieces, and after a millisecond
others have their turn. It trusts nobody: a request is read up to a few thousand bytes and for a few seconds,
a body is not read at all, and whatever is not a plain request is answered with 400 and the end of the
connection. There are only so many connections, in all and of one address: when there is no room, the one
that has kept the server waiting longest goes, be it for its TLS handshake, for its request or to take its
answer. So peers that are slow, on purpose or not, do not keep others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tidelog.errors import ConfigError

logger = logging.getLogger(__name__)

_HEADER_BYTES = 8 * 1024
_HEADER_S = 5.0
_IDLE_S = 120.0
_ANSWER_S = 60.0
_CONNECTIONS = 32
_OF_ONE_ADDRESS = 16
_PAGES_AT_ONCE = 2
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

    __slots__ = ("has_begun", "host", "task", "waits_since_s")

    def __init__(self, host: str) -> None:
        self.host = host
        self.has_begun = False
        """Whether its socket belongs to a transport, which closes it."""
        self.task: asyncio.Task[None] | None = None
        self.waits_since_s: float | None = time.monotonic()
        """Since when the server waits for it; None while it works for it."""


class HttpServer:
    """Listens on some addresses and lets ``serve`` answer."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._peers: set[_Peer] = set()
        self._pages = asyncio.Semaphore(_PAGES_AT_ONCE)
        self.refused = 0
        """How many connections found no room, or had to make room for others."""

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen there, with TLS where there is a context for it; gives the port. Raises ``OSError``."""
        opened = await _listen(host, port)
        self._listening += opened
        # Not ``asyncio.start_server``: it tells of a peer after its handshake, which may never end.
        loop = asyncio.get_running_loop()
        self._accepting += [loop.create_task(self._accept(each, tls)) for each in opened]
        return int(opened[0].getsockname()[1])

    async def close(self) -> None:
        """Listen no more and end every connection."""
        talking = [peer.task for peer in self._peers if peer.task is not None]
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
        if not self._make_room(host):
            sock.close()
            return

        def forget(_: object) -> None:
            self._peers.discard(peer)
            if not peer.has_begun:
                sock.close()

        peer.task = asyncio.get_running_loop().create_task(self._welcome(peer, sock, tls))
        self._peers.add(peer)
        peer.task.add_done_callback(forget)

    def _make_room(self, host: str) -> bool:
        """Whether there is room for another of this address; it may cost the slowest one its place."""
        crowd = [peer for peer in self._peers if peer.host == host]
        if len(crowd) < _OF_ONE_ADDRESS:
            if len(self._peers) < _CONNECTIONS:
                return True
            crowd = list(self._peers)
        self.refused += 1
        waited_for = [(peer.waits_since_s, peer) for peer in crowd if peer.waits_since_s is not None]
        if not waited_for:
            return False
        _, slowest = min(waited_for, key=lambda each: each[0])
        self._peers.discard(slowest)
        if slowest.task is not None:
            slowest.task.cancel()
        return True

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
            # The other side has gone, or does not take what it asked for.
            writer.transport.abort()
        except Exception:
            logger.exception("A request for metrics failed")
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_HEADER_S):
                    await writer.wait_closed()

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
            async with asyncio.timeout(_ANSWER_S):
                await self._answer(peer, writer, request, self._serve(request), keep_alive)
            return keep_alive
        answer = HttpAnswer(refused.status, "text/plain; charset=utf-8", iter((f"{refused}\n",)))
        async with asyncio.timeout(_HEADER_S):
            await self._answer(peer, writer, HttpRequest("GET", "", {}), answer, keep_alive=False)
        return False

    async def _answer(
        self,
        peer: _Peer,
        writer: asyncio.StreamWriter,
        request: HttpRequest,
        answer: HttpAnswer,
        keep_alive: bool,
    ) -> None:
        status, content_type, body = answer
        head = [
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {content_type}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
        ]
        if status == 405:
            head.append("Allow: GET, HEAD")
        # Who wants to hear more on this connection has to be told where the body ends.
        chunked = keep_alive and request.method != "HEAD"
        if chunked:
            head.append("Transfer-Encoding: chunked")
        writer.write("\r\n".join((*head, "", "")).encode("latin-1"))
        if request.method != "HEAD":
            more = True
            while more:
                # Of many who ask at once two have a piece made in each turn of the loop, however long the
                # others take to read theirs.
                peer.waits_since_s = None
                async with self._pages:
                    text, more = _next_piece(body)
                    self._write(writer, text, chunked)
                    await asyncio.sleep(0)
                peer.waits_since_s = time.monotonic()
                await writer.drain()
            if chunked:
                writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _write(self, writer: asyncio.StreamWriter, text: str, chunked: bool) -> None:
        if not text:
            return
        data = text.encode()
        if chunked:
            writer.write(b"%x\r\n" % len(data))
        writer.write(data)
        if chunked:
            writer.write(b"\r\n")


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
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=tls, ssl_handshake_timeout=None if tls is None else _HEADER_S
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


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
