"""A listener that is kept apart: its requests wait neither for the limits nor for the crowd at the others."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable

import pytest
from tests.rigs.waiting import until

from tidelog.broker.network.answer import HandlerResult
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.broker.network.network import Network, NetworkLimits
from tidelog.config.listeners import Listener

CLIENTS = 20
EVENT_S = 0.003
LISTENERS = (
    Listener("CLIENTS", "127.0.0.1", 0, "PLAINTEXT"),
    Listener("CONTROL", "127.0.0.1", 0, "PLAINTEXT"),
)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Slow:
    """Takes its time for clients; ``on_request`` hears of each request first."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.on_request: Callable[[], None] = lambda: None

    def handle(self, connection: Connection, request: memoryview) -> HandlerResult:
        self.seen.append(connection.listener)
        self.on_request()
        if connection.listener == "CLIENTS":
            time.sleep(EVENT_S)
        return frame(bytes(request))

    def commit(self) -> None:
        """Nothing is staged."""


def control_is_served(network: Network) -> bool:
    return network._apart is not None and len(network._apart.connections) == 1


@pytest.mark.parametrize("others_before", [0, 1, 7])
def test_requests_at_it_are_served_after_one_event_of_another_connection(others_before: int) -> None:
    handler = Slow()

    async def scenario() -> None:
        network = Network(handler, asyncio.get_running_loop())
        ports = network.open(LISTENERS, "CONTROL")
        network.start()
        control = socket.create_connection(("127.0.0.1", ports["CONTROL"]))
        clients = [socket.create_connection(("127.0.0.1", ports["CLIENTS"])) for _ in range(CLIENTS)]
        await until(lambda: len(network.connections) == CLIENTS and control_is_served(network))

        def on_request() -> None:
            if len(handler.seen) == others_before + 1:
                control.sendall(frame(b"now"))

        handler.on_request = on_request
        for client in clients:
            client.sendall(frame(b"request"))
        await until(lambda: len(handler.seen) == CLIENTS + 1)
        network.close()
        for each in (control, *clients):
            each.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    assert handler.seen.index("CONTROL") <= others_before + 2


def test_it_has_room_when_the_others_are_full() -> None:
    async def scenario() -> None:
        limits = NetworkLimits(quotas=ConnectionQuotas(max_connections=1), queued_request_bytes=1)
        network = Network(Slow(), asyncio.get_running_loop(), limits)
        ports = network.open(LISTENERS, "CONTROL")
        network.start()
        streams = [await asyncio.open_connection("127.0.0.1", ports["CLIENTS"]) for _ in range(3)]
        # Of the memory for requests nothing is left.
        assert network.memory.reserve(10)
        large = frame(bytes(500_000))
        reader, writer = await asyncio.open_connection("127.0.0.1", ports["CONTROL"])
        writer.write(large)
        assert await reader.readexactly(len(large)) == large
        network.close()
        for _, stream in (*streams, (reader, writer)):
            stream.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_without_one_nothing_is_called_between_events() -> None:
    async def scenario() -> None:
        network = Network(Slow(), asyncio.get_running_loop())
        network.open(LISTENERS)
        assert network.after_event is None
        network.close()

    asyncio.run(scenario())
