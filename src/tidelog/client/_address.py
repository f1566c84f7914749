"""``HOST:PORT`` as people write it in ``bootstrap.servers``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import ConfigError

DEFAULT_PORT = 9092

_ZOOKEEPER = "zookeeper://"
_SERVER_SEPARATOR = ";"


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(servers: str | Sequence[str]) -> list[Address]:
    """The addresses in ``servers``: one string separated by commas, or several; the port may be left out."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    addresses = [_parse(text.strip()) for text in texts if text.strip()]
    if not addresses:
        raise ConfigError("no bootstrap server given: write HOST:PORT, several separated by commas")
    return addresses


def zookeeper_server(connect: str) -> str:
    """The bootstrap server that stands for the brokers registered in ZooKeeper.

    ``zk1:2181,zk2:2181/kafka`` becomes ``zookeeper://zk1:2181;zk2:2181/kafka``, one item of a list.
    """
    if not connect.strip():
        raise ConfigError("zookeeper.connect is empty: set bootstrap.servers to HOST:PORT of a broker")
    return _ZOOKEEPER + connect.strip().replace(" ", "").replace(",", _SERVER_SEPARATOR)


def zookeeper_connect(servers: str | Sequence[str]) -> str | None:
    """The ZooKeeper servers in which to find the brokers, where ``servers`` says so."""
    texts = servers.split(",") if isinstance(servers, str) else servers
    found = [text for text in texts if text.strip().startswith(_ZOOKEEPER)]
    if not found:
        return None
    if len(texts) > 1:
        raise ConfigError(f"bootstrap server {found[0]!r} cannot be combined with others: give it alone")
    return found[0].strip().removeprefix(_ZOOKEEPER).replace(_SERVER_SEPARATOR, ",")


def _parse(text: str) -> Address:
    if text.startswith("["):
        host, closing, rest = text[1:].partition("]")
        if not closing or not host or (rest and not rest.startswith(":")):
            raise ConfigError(f"bootstrap server {text!r}: write an IPv6 address as [::1]:9092")
        port = rest[1:]
    elif text.count(":") > 1:
        raise ConfigError(f"bootstrap server {text!r}: write HOST:PORT, and an IPv6 address as [::1]:9092")
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ConfigError(f"bootstrap server {text!r}: the host is missing, write HOST:PORT")
    if not port:
        return Address(host, DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"bootstrap server {text!r}: the port must be a number from 1 to 65535")
    return Address(host, int(port))


async def canonical_addresses(addresses: Sequence[Address]) -> list[Address]:
    """Each address under the canonical names of its hosts, for Kerberos-like setups.

    Names that cannot be resolved stay as they are: whoever connects gets the error.
    """
    loop = asyncio.get_running_loop()
    found: list[Address] = []
    for address in addresses:
        try:
            infos = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            for *_, where in infos:
                host, _service = await loop.getnameinfo((str(where[0]), address.port))
                found.append(Address(host, address.port))
        except (socket.gaierror, UnicodeError):
            found.append(address)
    return list(dict.fromkeys(found))
