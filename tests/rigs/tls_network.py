"""A network with a TLS listener and one without, in a thread of its own, and clients that block."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import uvloop
from tests.rigs.tls_files import TlsFiles

from tidelog.broker.network.answer import HandlerResult, PromisedAnswer
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.network import Network, NetworkLimits
from tidelog.broker.network.tls_listeners import TlsListeners
from tidelog.config.broker_config import BrokerConfig
from tidelog.scheduling.promise import Promise
from tidelog.security.session import Session
from tidelog.storage.disk import REAL_DISK, LogFile
from tidelog.wire.fetch import FileRange

DEADLINE_S = 30.0
_T = TypeVar("_T")


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Echo:
    """Answers ``f`` with a file, ``w`` never, everything else with itself."""

    def __init__(self) -> None:
        self.seen = 0
        self.cancelled = 0
        self.sessions: list[Session] = []
        self.file = FileRange(-1, 0, 0)

    def handle(self, connection: Connection, request: memoryview) -> HandlerResult:
        self.seen += 1
        if not any(each is connection.session for each in self.sessions):
            self.sessions.append(connection.session)
        body = bytes(request)
        if body[:1] == b"f":
            return [struct.pack(">i", self.file.length), self.file]
        if body[:1] == b"w":
            waiting: PromisedAnswer = Promise(self._cancel)
            return waiting
        return frame(body)

    def commit(self) -> None:
        return

    def _cancel(self) -> None:
        self.cancelled += 1


class TlsNetwork:
    """``with TlsNetwork(files) as served``: listeners SSL and PLAINTEXT on ports of their own."""

    def __init__(
        self, files: TlsFiles, options: dict[str, str] | None = None, limits: NetworkLimits | None = None
    ) -> None:
        self.files = files
        self.handler = Echo()
        self.ports: dict[str, int] = {}
        self._limits = limits
        self._options = {
            "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.location": str(files.server),
            "ssl.truststore.location": str(files.trust),
            **(options or {}),
        }
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TlsNetwork:
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self._done.set)
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        # The port of every listener is one that the system gives.
        config = BrokerConfig(self._options)
        self.listeners = TlsListeners(config, config.listeners)
        self.network = Network(self.handler, self.loop, self._limits, tls=self.listeners.by_name)
        self.ports = self.network.open(config.listeners)
        self.network.start()
        self.listeners.start()
        self._ready.set()
        await self._done.wait()
        self.network.close()
        await self.listeners.close()

    @property
    def handshake_failures(self) -> int:
        """How many handshakes have failed."""
        assert self.network.handshakes is not None
        return self.network.handshakes.failures

    def call(self, function: Callable[[], _T]) -> _T:
        """What ``function`` returns, on the loop."""

        async def run() -> _T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE_S)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self.call(condition):
            assert time.monotonic() < deadline, "it did not come to be"
            time.sleep(0.005)

    def serve_file(self, path: Path) -> None:
        file = LogFile(os.open(path, os.O_RDONLY), REAL_DISK)
        self.handler.file = FileRange(file.fd, 0, path.stat().st_size, file)

    def raw(self, listener: str = "SSL") -> socket.socket:
        """A connected socket that has said nothing."""
        return socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=DEADLINE_S)

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """What a client trusts and shows."""
        context = ssl.create_default_context(cafile=str(self.files.trust))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def client(
        self,
        context: ssl.SSLContext | None = None,
        *,
        certificate: Path | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """A client that has shaken hands."""
        context = context or self.context(certificate)
        return context.wrap_socket(
            self.raw(), server_hostname="localhost", session=session, suppress_ragged_eofs=False
        )


def receive(sock: socket.socket) -> bytes:
    """The next frame."""
    (size,) = struct.unpack(">i", exactly(sock, 4))
    return exactly(sock, size)


def exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = sock.recv_into(view)
        assert count, "the broker closed the connection"
        view = view[count:]
    return bytes(data)


def ask(sock: socket.socket, body: bytes) -> bytes:
    sock.sendall(frame(body))
    return receive(sock)


def exchange(
    sock: ssl.SSLSocket, outgoing: bytes, answers: int, pause: Callable[[], float] = lambda: 0
) -> list[bytes]:
    """Send all of ``outgoing`` and receive frames meanwhile, in one thread: OpenSSL is not made for two."""
    sock.setblocking(False)
    view, incoming, found = memoryview(outgoing), bytearray(), list[bytes]()
    end_s = time.monotonic() + DEADLINE_S
    while len(found) < answers or view:
        assert time.monotonic() < end_s, f"{len(found)} of {answers} answers have come"
        time.sleep(pause())
        idle = True
        with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if view:
                view = view[sock.send(view[:100_000]) :]
                idle = False
        with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            piece = sock.recv(1_000_000)
            assert piece, "the broker closed the connection"
            incoming += piece
            idle = False
        while len(incoming) >= 4 and len(incoming) >= 4 + (size := int.from_bytes(incoming[:4], "big")):
            found.append(bytes(incoming[4 : 4 + size]))
            del incoming[: 4 + size]
        if idle:
            select.select([sock], [sock] if view else [], [], 0.1)
    sock.settimeout(DEADLINE_S)
    return found
