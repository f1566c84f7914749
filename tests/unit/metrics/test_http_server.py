from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from tests.tls_files import TlsFiles

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
    if request.path != "/metrics":
        return HttpAnswer(404, "text/plain", iter(("no\n",)))
    return HttpAnswer(200, "text/plain", iter(["a" * 70_000, "", "b\n"]))


def run(test: Callable[[HttpServer, int], Awaitable[None]]) -> None:
    async def main() -> None:
        server = HttpServer(serve)
        port = await server.open("127.0.0.1", 0)
        try:
            async with asyncio.timeout(50):
                await test(server, port)
        finally:
            await server.close()

    asyncio.run(main())


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
                assert len(server._peers) <= 32
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
