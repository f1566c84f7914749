from __future__ import annotations

import asyncio
import socket

import pytest

from tidelog.client._address import Address, canonical_addresses, parse_addresses
from tidelog.errors import ConfigError


def test_several_servers_and_the_default_port() -> None:
    assert parse_addresses("a:1, b ,[::1]:3,[::1]") == [
        Address("a", 1),
        Address("b", 9092),
        Address("::1", 3),
        Address("::1", 9092),
    ]


def test_an_address_prints_as_it_is_written() -> None:
    assert [str(each) for each in parse_addresses(["h:1", "[::1]:2"])] == ["h:1", "[::1]:2"]


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("", "HOST:PORT"),
        (" , ", "HOST:PORT"),
        ("host:port", "number from 1 to 65535"),
        ("host:0", "number from 1 to 65535"),
        ("host:65536", "number from 1 to 65535"),
        (":9092", "host is missing"),
        ("::1:9092", "[::1]:9092"),
        ("[::1", "[::1]:9092"),
        ("[::1]9092", "[::1]:9092"),
    ],
)
def test_what_is_no_address_is_refused_with_the_mend(text: str, mend: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_addresses(text)
    assert mend in str(refused.value)


def test_canonical_names_replace_those_that_can_be_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[Address]:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(host: str, port: int, **kwargs: object) -> list[object]:
            if host == "gone.test":
                raise socket.gaierror(socket.EAI_NONAME, "no")
            return [(0, 0, 0, "", ("127.0.0.1", port)), (0, 0, 0, "", ("127.0.0.2", port))]

        async def getnameinfo(where: tuple[str, int]) -> tuple[str, str]:
            return f"{where[0]}.canonical.test", "service"

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        monkeypatch.setattr(loop, "getnameinfo", getnameinfo)
        return await canonical_addresses([Address("alias.test", 9092), Address("gone.test", 9093)])

    assert asyncio.run(main()) == [
        Address("127.0.0.1.canonical.test", 9092),
        Address("127.0.0.2.canonical.test", 9092),
        Address("gone.test", 9093),
    ]
