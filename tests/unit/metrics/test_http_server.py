from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from tests.rigs.tls_files import TlsFiles

from tidelog.metrics.http_server import (
    BadRequestError,
    HttpAnswer,
    HttpRequest,
    HttpServer,
    parse,
    wants_openmetrics,
)


def serve(request: HttpRequest) -> HttpAnswer:
    if request.path == "/long":
        return HttpAnswer(200, "text/plain", iter(["x" * 60_000] * 200))
    if request.path in ("/live", "/ready"):
        return HttpAnswer(200, "text/plain", iter(("yes\n",)))
    if request.path == "/endless":
        return HttpAnswer(200, "text/plain", itertools.repeat("x" * 60_000))
    if request.path != "/metrics":
        return HttpAnswer(404, "text/plain", iter(("no\n",)))
    return HttpAnswer(200, "text/plain", iter(["a" * 70_000, "", "b\n"]))


def run(
    test: Callable[[HttpServer, int], Awaitable[None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    async def main() -> None:
        server = HttpServer(serve)
        port = await server.open("127.0.0.1", 0)
        try:
            async with asyncio.timeout(50):
                await test(server, port)
        finally:
            await server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


async def ask(port: int, data: bytes, *, address: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


def test_a_page_comes_in_chunks_and_the_connection_is_kept() -> None:
    async def test(_: HttpServer, port: int) -> None:
        get = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"
        last = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answer = await ask(port, get + last)
        first, second = answer.split(b"0\r\n\r\n")
        assert first.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Transfer-Encoding: chunked" in first
        assert second.partition(b"\r\n\r\n")[2] == b"a" * 70_000 + b"b\n"

    run(test)


def test_head_has_no_body() -> None:
    async def test(_: HttpServer, port: int) -> None:
        answer = await ask(port, b"HEAD /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert answer.endswith(b"\r\n\r\n")

    run(test)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 505),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET /\xc3\xa4 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000, 431),
        (b"GET /nothing HTTP/1.0\r\n\r\n", 404),
    ],
)
def test_what_is_no_plain_request_is_refused_and_ends_the_connection(sent: bytes, status: int) -> None:
    async def test(_: HttpServer, port: int) -> None:
        answer = await ask(port, sent)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())

    run(test)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET /metrics HTTP/1.0\r\n\r\n"


async def crowd(port: int, addresses: int, sent: bytes) -> list[Streams]:
    """Twenty connections from each of some addresses, which have sent something and read nothing."""
    found: list[Streams] = []
    for number in range(20 * addresses):
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.bind((f"127.0.0.{2 + number % addresses}", 0))
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        streams = await asyncio.open_connection(sock=sock, limit=1)
        streams[1].write(sent)
        found.append(streams)
    return found


async def is_served(port: int, address: str) -> bool:
    try:
        return (await ask(port, GET, address=address)).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT", b"GET /long HTTP/1.1\r\n\r\n"])
@pytest.mark.parametrize("addresses", [1, 3])
def test_a_crowd_of_slow_peers_keeps_nobody_out(sent: bytes, addresses: int) -> None:
    async def test(server: HttpServer, port: int) -> None:
        held = await crowd(port, addresses, sent)
        least = 4 if addresses == 1 else 28
        while server.refused < least:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        # Others find room, also those of the same address: as soon as the server waits for one of the crowd,
        # which is long before its time is over.
        for address in ("127.0.0.1", "127.0.0.2"):
            while not await is_served(port, address):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        for _, writer in held:
            writer.transport.abort()

    run(test)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_never_shakes_hands_counts_and_keeps_nobody_out(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    files = TlsFiles(tmp_path)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(files.server)
    client_side = ssl.create_default_context(cafile=str(files.trust))

    async def main() -> None:
        server = HttpServer(serve)
        port = await server.open("127.0.0.1", 0, server_side)
        try:
            async with asyncio.timeout(50):
                held = await crowd(port, 3, b"")
                while server.refused < 28:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                assert len(server._others.peers) <= 32
                for _ in range(5):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_side)
                    writer.write(GET)
                    assert (await reader.read()).startswith(b"HTTP/1.1 200")
                    writer.close()
        finally:
            await server.close()
        for _, writer in held:
            writer.transport.abort()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def sends_until_closed(port: int, client_side: ssl.SSLContext, request: bytes) -> bool:
    """Send over TLS without reading; whether the server ends it before it would by itself (30 s)."""
    until_s = time.monotonic() + 20
    with socket.create_connection(("127.0.0.1", port), 20) as plain:
        try:
            with client_side.wrap_socket(plain, server_hostname="localhost") as sock:
                sock.sendall(request)
                while time.monotonic() < until_s:
                    sock.sendall(bytes(10_000))
        except OSError:
            return time.monotonic() < until_s
    return False


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("leaves", ["after its handshake", "with its answer"])
def test_a_peer_that_goes_on_to_send_over_tls_is_cut_off(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    leaves: str,
) -> None:
    files = TlsFiles(tmp_path)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(files.server)
    client_side = ssl.create_default_context(cafile=str(files.trust))
    client_side.check_hostname = False

    async def main() -> None:
        server = HttpServer(serve)
        port = await server.open("127.0.0.1", 0, server_side)
        begin = asyncio.StreamReaderProtocol.connection_made

        def make_room(protocol: asyncio.StreamReaderProtocol, transport: asyncio.BaseTransport) -> None:
            begin(protocol, transport)
            for peer in list(server._others.peers):
                peer.leave()

        if leaves == "after its handshake":
            monkeypatch.setattr(asyncio.StreamReaderProtocol, "connection_made", make_room)
        try:
            assert await asyncio.get_running_loop().run_in_executor(
                None, sends_until_closed, port, client_side, GET
            )
        finally:
            await server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def test_who_is_being_served_is_not_sent_away() -> None:
    async def test(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=("127.0.0.9", 0), limit=1024 * 1024
        )
        held: list[Streams] = []
        for number in range(1, 4):
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
            # Sixteen more who only wait: they make room for one another.
            held += await crowd(port, 1, b"")
            assert server.refused >= 4 * number
        for _, each in held:
            each.transport.abort()
        writer.close()

    run(test)


class Pipeliners:
    """Peers that ask for pages without end and read all of them: they never keep the server waiting."""

    def __init__(self, port: int, addresses: list[str], request: bytes) -> None:
        self._port = port
        self._request = request
        self._tasks = [
            asyncio.ensure_future(self._flood(address)) for address in addresses for _ in range(16)
        ]
        self.served: Counter[str] = Counter()

    async def _flood(self, address: str) -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(address, 0)
                )
                try:
                    writer.write(self._request * 400)
                    while await reader.read(1 << 18):
                        self.served[address] += 1
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


NEW_LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


@NEW_LOOPS
@pytest.mark.parametrize("path", ["/long", "/endless", "/live", "/nothing"])
def test_addresses_that_pipeline_without_end_lock_out_no_other_address(
    new_loop: Callable[[], asyncio.AbstractEventLoop], path: str
) -> None:
    async def test(server: HttpServer, port: int) -> None:
        flood = Pipeliners(port, ["127.0.0.2", "127.0.0.3"], f"GET {path} HTTP/1.1\r\n\r\n".encode())
        while flood.served.keys() != {"127.0.0.2", "127.0.0.3"}:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        for request in (b"GET /metrics", b"GET /live", b"GET /ready"):
            for _ in range(10):
                answer = await ask(port, request + b" HTTP/1.0\r\n\r\n", address="127.0.0.4")
                assert answer.startswith(b"HTTP/1.1 200")
        await flood.stop()

    run(test, new_loop)


@NEW_LOOPS
def test_probes_are_answered_though_their_own_address_takes_all_pages(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def test(server: HttpServer, port: int) -> None:
        held = await crowd(port, 2, b"GET /endless HTTP/1.1\r\n\r\n")
        while server.refused < 8:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        refused = server.refused
        for path in (b"/live", b"/ready"):
            for _ in range(20):
                answer = await ask(port, b"GET %b HTTP/1.0\r\n\r\n" % path, address="127.0.0.2")
                assert answer.startswith(b"HTTP/1.1 200")
        assert server.refused == refused, "probes have slots of their own"
        for _, writer in held:
            writer.transport.abort()

    run(test, new_loop)


@NEW_LOOPS
def test_a_peer_that_goes_in_the_middle_of_a_page_is_no_error(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: HttpServer, port: int) -> None:
        async def leave_early(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /endless HTTP/1.1\r\n\r\n")
            await reader.readexactly(100_000 + number * 10_000)
            writer.transport.abort()

        # Several at once, so that some go while the server makes pages for others.
        for _ in range(4):
            await asyncio.gather(*map(leave_early, range(12)))
        while server.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    run(test, new_loop)
    # Threads of other tests may log, too.
    logged = [each for each in caplog.records if each.name.startswith(("tidelog.metrics", "asyncio"))]
    assert [each.getMessage() for each in logged if each.levelno >= logging.WARNING] == []


@NEW_LOOPS
def test_pipelined_requests_give_way_to_others(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    turns_of: list[int] = []
    turns = 0

    def count(request: HttpRequest) -> HttpAnswer:
        turns_of.append(turns)
        return HttpAnswer(200, "text/plain", iter(("yes\n",)))

    async def main() -> None:
        nonlocal turns
        server = HttpServer(count)
        port = await server.open("127.0.0.1", 0)
        asking = asyncio.ensure_future(ask(port, b"HEAD /ready HTTP/1.1\r\n\r\n" * 200 + b"x\r\n\r\n"))
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        await server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert len(turns_of) == 200
    assert len(set(turns_of)) == 200, "no two requests of one peer are answered in one turn of the loop"


def test_others_have_their_turn_while_a_long_page_is_made() -> None:
    turns = 0

    def long_page(_: HttpRequest) -> HttpAnswer:
        def body() -> Iterator[str]:
            for _ in range(50):
                yield "x" * 70_000

        return HttpAnswer(200, "text/plain", body())

    async def main() -> None:
        nonlocal turns
        server = HttpServer(long_page)
        port = await server.open("127.0.0.1", 0)
        asking = asyncio.ensure_future(ask(port, b"GET / HTTP/1.0\r\n\r\n"))
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        assert len(asking.result()) > 50 * 70_000
        await server.close()

    asyncio.run(main())
    assert turns > 50


def test_a_header_keeps_the_last_of_several_values() -> None:
    request, keep = parse(b"GET /a HTTP/1.1\r\nAccept: x\r\nACCEPT: y\r\n\r\n")
    assert request.headers == {"accept": "y"}
    assert keep
    with pytest.raises(BadRequestError):
        parse(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("application/openmetrics-text; version=1.0.0", True),
        ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("text/plain;q=1,application/openmetrics-text;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
    ],
)
def test_openmetrics_is_given_to_who_wants_it_most(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted
