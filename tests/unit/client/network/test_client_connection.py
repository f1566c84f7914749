from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client._address import Address
from tidelog.client._network.connect import open_connection
from tidelog.client._network.connection import Connection
from tidelog.client._network.retry import Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.client.errors import BrokerUnreachableError, ConnectionLostError, RequestTimeoutError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def connect(port: int, timeout_ms: int = 5000) -> Connection:
    return await open_connection(
        Address("127.0.0.1", port), NetworkSettings(client_id="test"), Deadline(timeout_ms)
    )


async def open_to(serve: Serve, timeout_ms: int = 5000) -> Connection:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        return await connect(server.sockets[0].getsockname()[1], timeout_ms)


def test_the_newest_common_version_is_used(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.METADATA] = (0, 8)

    async def main() -> None:
        async with scripted_broker:
            connection = await connect(scripted_broker.port)
            assert connection.version_for(MetadataResponse) == 8
            assert connection.version_for(MetadataResponse, max_version=5) == 5
            await connection.request(MetadataRequest(topics=[]), MetadataResponse, Deadline(5000))
            await connection.close()

    asyncio.run(main())
    assert [version for version, _ in scripted_broker.requests(ApiKey.METADATA)] == [8]


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_a_broker_with_older_api_versions_is_asked_again_in_its_own_version(
    scripted_broker: Any, newest: int
) -> None:
    scripted_broker.versions[ApiKey.API_VERSIONS] = (0, newest)

    async def main() -> None:
        async with scripted_broker:
            await (await connect(scripted_broker.port)).close()

    asyncio.run(main())
    assert [version for version, _ in scripted_broker.requests(ApiKey.API_VERSIONS)] == [newest]


def test_an_api_that_the_broker_lacks_is_refused_without_asking(scripted_broker: Any) -> None:
    del scripted_broker.versions[ApiKey.DESCRIBE_CLUSTER]

    async def main() -> None:
        async with scripted_broker:
            connection = await connect(scripted_broker.port)
            with pytest.raises(KafkaError, match="DESCRIBE_CLUSTER") as refused:
                await connection.request(DescribeClusterRequest(), DescribeClusterResponse, Deadline(5000))
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
            assert connection.is_open
            await connection.close()

    asyncio.run(main())


def test_nobody_listening_is_a_sentence_with_the_mend() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(BrokerUnreachableError) as refused:
            await connect(port)
        assert str(refused.value) == (
            f"cannot connect to 127.0.0.1:{port}: connection refused; is the broker running? "
            "try `tidelog start`"
        )

    asyncio.run(main())


def test_something_that_is_no_kafka_broker_is_told_apart() -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    with pytest.raises(BrokerUnreachableError, match="does not answer as a Kafka broker"):
        asyncio.run(open_to(http))


def test_a_broker_that_never_answers_times_out() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    with pytest.raises(RequestTimeoutError, match="has not answered API_VERSIONS"):
        asyncio.run(open_to(silent, timeout_ms=50))


def test_a_lost_connection_fails_every_request_in_flight(scripted_broker: Any) -> None:
    async def main() -> None:
        async with scripted_broker:
            connection = await connect(scripted_broker.port)
            scripted_broker.handlers[ApiKey.METADATA] = lambda request, version: None
            scripted_broker.versions[ApiKey.DESCRIBE_CLUSTER] = (9, 9)
            requests = [
                connection.request(MetadataRequest(topics=[]), MetadataResponse, Deadline(5000))
                for _ in range(3)
            ]
            # This version is one the broker has not announced: it closes the connection.
            closing = connection.request(DescribeClusterRequest(), DescribeClusterResponse, Deadline(5000))
            results = await asyncio.gather(*requests, closing, return_exceptions=True)
            assert [type(result) for result in results] == [ConnectionLostError] * 4
            assert not connection.is_open
            with pytest.raises(ConnectionLostError, match="is closed"):
                await connection.request(MetadataRequest(topics=[]), MetadataResponse, Deadline(5000))
            await connection.close()

    asyncio.run(main())


def test_a_timed_out_request_closes_the_connection_so_that_answers_cannot_be_mixed_up(
    scripted_broker: Any,
) -> None:
    async def main() -> None:
        async with scripted_broker:
            connection = await connect(scripted_broker.port)
            scripted_broker.handlers[ApiKey.METADATA] = lambda request, version: None
            with pytest.raises(RequestTimeoutError, match="METADATA"):
                await connection.request(MetadataRequest(topics=[]), MetadataResponse, Deadline(30))
            assert not connection.is_open
            await connection.close()

    asyncio.run(main())


def test_a_cancelled_request_leaves_later_answers_with_their_requests(scripted_broker: Any) -> None:
    async def main() -> None:
        async with scripted_broker:
            connection = await connect(scripted_broker.port)
            first = asyncio.create_task(
                connection.request(MetadataRequest(topics=[]), MetadataResponse, Deadline(5000))
            )
            await asyncio.sleep(0)
            first.cancel()
            answer = await connection.request(
                DescribeClusterRequest(), DescribeClusterResponse, Deadline(5000)
            )
            assert answer.cluster_id == "described"
            await connection.close()

    scripted_broker.handlers[ApiKey.DESCRIBE_CLUSTER] = lambda request, version: DescribeClusterResponse(
        cluster_id="described"
    )
    asyncio.run(main())


@pytest.mark.parametrize("answered", [0, 1])
def test_a_connection_that_is_closed_at_its_first_request_points_to_the_login(
    scripted_broker: Any, answered: int
) -> None:
    async def main() -> None:
        async with scripted_broker:
            connection = await connect(scripted_broker.port)
            request = MetadataRequest(topics=[])
            for _ in range(answered):
                await connection.request(request, MetadataResponse, Deadline(30_000))
            # As Kafka's brokers do where they expect a login.
            scripted_broker.versions.pop(ApiKey.METADATA)
            with pytest.raises(ConnectionLostError) as lost:
                await connection.request(request, MetadataResponse, Deadline(30_000))
            hint = "if its listener requires a login, set security.protocol"
            assert (hint in str(lost.value)) is not bool(answered)
            await connection.close()

    asyncio.run(main())
