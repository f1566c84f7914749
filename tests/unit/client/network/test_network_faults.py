"""Whatever a broker does to a connection, every request ends with its answer or an error that names both."""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from tidelog.client._address import Address
from tidelog.client._network.connect import open_connection
from tidelog.client._network.connection import Connection
from tidelog.client._network.receiver import MAX_RESPONSE_BYTES
from tidelog.client._network.retry import Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.client.errors import BrokerUnreachableError, ConnectionLostError, RequestTimeoutError
from tidelog.errors import WireError
from tidelog.records.batch import Buffer
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.headers import encode_response, parse_request_header
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]
VERSION = API_TABLE[ApiKey.METADATA].max_version


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both event loops hand bytes over in ways of their own."""
    if request.param == "uvloop":
        if uvloop is None:
            pytest.skip("uvloop is not installed")
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    yield request.param
    asyncio.set_event_loop_policy(None)


@functools.cache
def _frame(topics: int) -> bytes:
    response = MetadataResponse(topics=[MetadataResponseTopic(name=f"topic-{i}") for i in range(topics)])
    return encode_response(ApiKey.METADATA, VERSION, 0, response)


def frame(correlation_id: int, topics: int = 2) -> bytes:
    whole = _frame(topics)
    return whole[:4] + struct.pack(">i", correlation_id) + whole[8:]


@asynccontextmanager
async def connected(answer: Answer) -> AsyncIterator[Connection]:
    """A connection to a server that greets as a broker does, and then answers as told."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                header, _ = parse_request_header(await reader.readexactly(size))
                if header.api_key == ApiKey.API_VERSIONS:
                    writer.write(greeting(header.api_version, header.correlation_id))
                else:
                    await answer(header.correlation_id, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    connection = await open_connection(address, NetworkSettings(), Deadline(10_000))
    try:
        yield connection
    finally:
        await connection.close()
        server.close()
        await server.wait_closed()


def greeting(version: int, correlation_id: int) -> bytes:
    keys = [
        ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
        for key, api in API_TABLE.items()
    ]
    return encode_response(ApiKey.API_VERSIONS, version, correlation_id, ApiVersionsResponse(api_keys=keys))


async def ask(connection: Connection, timeout_ms: int = 10_000) -> MetadataResponse:
    return await connection.request(MetadataRequest(topics=[]), MetadataResponse, Deadline(timeout_ms))


def run(answer: Answer, action: Callable[[Connection], Awaitable[None]]) -> None:
    async def main() -> None:
        async with connected(answer) as connection:
            await action(connection)

    asyncio.run(main())


@pytest.mark.parametrize("topics", [2, 2200], ids=["short", "long"])
def test_a_connection_cut_at_any_byte_of_a_response_names_the_broker_and_the_request(topics: int) -> None:
    size = len(frame(1, topics))
    cuts = {*range(min(size, 100)), 16_384, 65_535, 65_536, 65_540, size - 1}

    async def main() -> None:
        for cut in sorted(cut for cut in cuts if cut < size):

            async def answer(correlation_id: int, writer: asyncio.StreamWriter, cut: int = cut) -> None:
                writer.write(frame(correlation_id, topics)[:cut])
                writer.close()

            async with connected(answer) as connection:
                with pytest.raises(ConnectionLostError) as lost:
                    await ask(connection)
                text = str(lost.value)
                assert str(connection.address) in text, cut
                assert "METADATA waited for its answer: the broker closed it" in text, cut
                assert not connection.is_open

    asyncio.run(main())


@pytest.mark.parametrize("topics", [2, 2200], ids=["short", "long"])
def test_a_response_in_pieces_is_put_together_wherever_it_is_cut(topics: int) -> None:
    whole = frame(0, topics)
    cuts = {*range(1, 40), *range(len(whole) - 10, len(whole)), 16_383, 16_388, 65_535, 65_536, 65_540}
    todo = sorted(cut for cut in cuts if 0 < cut < len(whole))
    left = list(todo)

    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        cut = left.pop()
        data = frame(correlation_id, topics)
        writer.write(data[:cut])
        await writer.drain()
        await asyncio.sleep(0)
        # What follows comes with the beginning of the next answer, where there is one.
        writer.write(data[cut:])

    async def action(connection: Connection) -> None:
        for _ in todo:
            assert len((await ask(connection)).topics) == topics

    run(answer, action)


def test_answers_that_come_together_go_each_to_its_request() -> None:
    held: list[int] = []

    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        held.append(correlation_id)
        if len(held) == 5:
            # The third one is long: it begins in the shared buffer and ends in memory of its own.
            sizes = (1, 2, 3000, 4, 5)
            writer.write(b"".join(frame(each, size) for each, size in zip(held, sizes, strict=True)))

    async def action(connection: Connection) -> None:
        answers = await asyncio.gather(*(ask(connection) for _ in range(5)))
        assert [len(each.topics) for each in answers] == [1, 2, 3000, 4, 5]

    run(answer, action)


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_RESPONSE_BYTES + 1, 2**31 - 1])
def test_a_size_that_no_response_has_ends_the_connection_without_memory_for_it(size: int) -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">ii", size, correlation_id))

    async def action(connection: Connection) -> None:
        with pytest.raises(ConnectionLostError, match=f"METADATA.*announces a response of {size} bytes"):
            await ask(connection)

    run(answer, action)


def test_a_large_size_without_the_bytes_takes_little_memory_and_times_out() -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">ii", MAX_RESPONSE_BYTES, correlation_id))

    async def action(connection: Connection) -> None:
        with pytest.raises(RequestTimeoutError, match="has not answered METADATA"):
            await ask(connection, 200)

    run(answer, action)


def test_an_answer_to_another_request_fails_all_in_flight() -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(correlation_id + 7))

    async def action(connection: Connection) -> None:
        results = await asyncio.gather(ask(connection), ask(connection), return_exceptions=True)
        assert all(isinstance(each, ConnectionLostError) for each in results)
        assert "an answer to another request" in str(results[0])

    run(answer, action)


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(correlation_id) + frame(correlation_id + 1))

    async def action(connection: Connection) -> None:
        assert len((await ask(connection)).topics) == 2
        with pytest.raises(ConnectionLostError, match=str(connection.address)):
            await ask(connection)

    run(answer, action)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x01\x05"], ids=["nothing", "half an id", "half a header"])
def test_an_answer_shorter_than_its_header_ends_the_connection(body: bytes) -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        content = struct.pack(">i", correlation_id) + body if len(body) == 2 else body
        writer.write(struct.pack(">i", len(content)) + content)

    async def action(connection: Connection) -> None:
        with pytest.raises(ConnectionLostError, match="METADATA"):
            await ask(connection)

    run(answer, action)


def test_garbage_in_an_answer_is_an_error_of_that_request_alone() -> None:
    answers = iter([True, False])

    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        if next(answers):
            writer.write(struct.pack(">iib", 15, correlation_id, 0) + b"\xff" * 10)
        else:
            writer.write(frame(correlation_id))

    async def action(connection: Connection) -> None:
        with pytest.raises(
            WireError, match=f"{connection.address} answered METADATA v{VERSION} with garbage"
        ):
            await ask(connection)
        assert len((await ask(connection)).topics) == 2

    run(answer, action)


def test_when_one_request_is_overdue_those_behind_it_fail_too_and_say_why() -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        return None

    async def action(connection: Connection) -> None:
        patient = asyncio.create_task(ask(connection, 60_000))
        await asyncio.sleep(0)
        with pytest.raises(RequestTimeoutError, match=r"has not answered METADATA within 0\.0\d+ s"):
            await ask(connection, 30)
        with pytest.raises(ConnectionLostError, match="has not answered METADATA"):
            await patient

    run(answer, action)


def test_the_limit_of_a_later_request_holds_when_it_is_the_shorter_one() -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        if correlation_id == 1:
            writer.write(frame(correlation_id))

    async def action(connection: Connection) -> None:
        assert len((await ask(connection, 60_000)).topics) == 2
        with pytest.raises(RequestTimeoutError):
            await ask(connection, 30)

    run(answer, action)


def test_raw_requests_go_out_whole_and_come_back_without_their_headers() -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">iib", 5 + 40_000, correlation_id, 0) + b"x" * 40_000)

    async def action(connection: Connection) -> None:
        pieces: list[Buffer] = [b"a" * 20_000, memoryview(b"b" * 20_000), bytearray(b"c")]
        body = await connection.send(ApiKey.METADATA, VERSION, pieces, 10)
        assert bytes(body) == b"x" * 40_000
        assert connection.traffic.bytes_sent > 40_001

    run(answer, action)


def test_a_host_that_nobody_knows_is_told_apart_from_a_name_service_that_is_down(
    monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    if loop == "uvloop":
        pytest.skip("it resolves names by itself")
    codes = iter([socket.EAI_NONAME, socket.EAI_AGAIN])

    def fails(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(next(codes), "no")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    for words in ("there is no host 'broker.test'", "name service does not answer for 'broker.test'"):
        with pytest.raises(BrokerUnreachableError, match=words):
            asyncio.run(open_connection(Address("broker.test", 9092), NetworkSettings(), Deadline(5000)))


def test_tls_spoken_by_the_other_side_is_no_broker_and_takes_no_memory() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(bytes.fromhex("15030300020246"))

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
            with pytest.raises(BrokerUnreachableError, match=r"is a TLS listener; set security\.protocol="):
                await open_connection(address, NetworkSettings(), Deadline(10_000))

    asyncio.run(main())
