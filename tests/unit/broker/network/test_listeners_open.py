"""When listeners open: their ports are taken at once, and clients are refused until they are served."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tidelog.broker.network.answer import HandlerResult
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.network import Network
from tidelog.config.listeners import Listener
from tidelog.errors import ConfigError

LISTENERS = (
    Listener("BROKERS", "127.0.0.1", 0, "PLAINTEXT"),
    Listener("CLIENTS", "127.0.0.1", 0, "PLAINTEXT"),
)


class Silent:
    """Is asked nothing."""

    def handle(self, connection: Connection, request: memoryview) -> HandlerResult:
        raise AssertionError("no request was sent")

    def commit(self) -> None:
        """Nothing is staged."""


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except ConnectionRefusedError:
        return True
    return False


def test_each_listener_refuses_clients_until_it_is_started() -> None:
    async def scenario() -> None:
        network = Network(Silent(), asyncio.get_running_loop())
        ports = network.open(LISTENERS)
        network.quotas_changed()
        assert all(map(is_refused, ports.values()))
        network.start(("BROKERS",))
        assert not is_refused(ports["BROKERS"])
        assert is_refused(ports["CLIENTS"])
        network.start()
        network.start(("BROKERS",))
        assert not any(map(is_refused, ports.values()))
        network.close()
        assert all(map(is_refused, ports.values()))

    asyncio.run(scenario())


def test_a_port_that_is_in_use_is_found_before_listeners_are_started() -> None:
    async def scenario() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            taken = LISTENERS[0]._replace(port=other.getsockname()[1])
            network = Network(Silent(), asyncio.get_running_loop())
            with pytest.raises(ConfigError, match="already in use"):
                network.open([taken])
            network.close()

    asyncio.run(scenario())


def test_of_two_brokers_that_take_one_port_at_the_same_time_the_second_cannot_start() -> None:
    async def scenario() -> None:
        first, second = (Network(Silent(), asyncio.get_running_loop()) for _ in range(2))
        port = first.open(LISTENERS[:1])["BROKERS"]
        second.open([LISTENERS[0]._replace(port=port)])
        first.start()
        with pytest.raises(ConfigError, match="already in use"):
            second.start()
        second.close()
        first.close()

    asyncio.run(scenario())
