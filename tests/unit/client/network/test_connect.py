"""Host names with several addresses, of which some are of no use."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest
from tests.rigs.certificates import Certificates

from tidelog.client._address import Address, canonical_addresses
from tidelog.client._network.connect import open_connection
from tidelog.client._network.from_options import network_settings
from tidelog.client._network.retry import Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.client.errors import BrokerUnreachableError
from tidelog.client.options import ADMIN, ClientConfig

NAME = "elsewhere.test"
BAD, GOOD = "127.0.0.2", "127.0.0.1"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def name_has(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let the name have these addresses, on the running loop."""

    async def getaddrinfo(host: str, port: int, **kwargs: object) -> list[Any]:
        found = hosts if host == NAME else (host,)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def test_a_silent_address_leaves_time_for_the_next_one_and_the_certificate_is_the_names(
    scripted_broker: Any, pem: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem.foreign_broker)
    scripted_broker.tls = context
    config = ClientConfig.parse(
        ADMIN,
        None,
        bootstrap_servers="unused:1",
        security_protocol="SSL",
        ssl_truststore_location=pem.authority,
    )

    async def main() -> None:
        async with scripted_broker, await asyncio.start_server(say_nothing, BAD, scripted_broker.port):
            name_has(monkeypatch, BAD, GOOD)
            address = Address(NAME, scripted_broker.port)
            connection = await open_connection(address, network_settings(config), Deadline(2000))
            await connection.close()

    asyncio.run(main())


def test_an_address_where_nobody_listens_is_passed_over(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with scripted_broker:
            name_has(monkeypatch, BAD, GOOD)
            address = Address(NAME, scripted_broker.port)
            connection = await open_connection(address, NetworkSettings(), Deadline(5000))
            await connection.close()

    asyncio.run(main())


def test_where_no_address_is_of_use_the_name_is_told(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with scripted_broker:
            name_has(monkeypatch, BAD, "127.0.0.3")
            address = Address(NAME, scripted_broker.port)
            with pytest.raises(
                BrokerUnreachableError, match=f"cannot connect to {NAME}:.*connection refused"
            ):
                await open_connection(address, NetworkSettings(), Deadline(5000))

    asyncio.run(main())


@pytest.mark.parametrize("host", [".foo", "a..b", "a" * 70])
def test_what_cannot_be_the_name_of_a_host_is_told(host: str) -> None:
    async def main() -> None:
        with pytest.raises(BrokerUnreachableError, match="there is no host"):
            await open_connection(Address(host, 9092), NetworkSettings(), Deadline(5000))
        assert await canonical_addresses([Address(host, 9092)]) == [Address(host, 9092)]

    asyncio.run(main())
