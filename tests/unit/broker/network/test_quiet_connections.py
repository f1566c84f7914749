"""Peers that reset right behind their last bytes: uvloop tells of it once only, and they are found still."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
import uvloop
from tests.rigs.waiting import until

from tidelog.broker.network.answer import HandlerResult
from tidelog.broker.network.connection import Connection
from tidelog.broker.network.network import Network
from tidelog.config.listeners import Listener
from tidelog.scheduling.promise import Promise

DEADLINE_S = 20.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Waiting:
    """Lets every request wait for ever."""

    def __init__(self) -> None:
        self.cancelled = 0

    def handle(self, connection: Connection, frame: memoryview) -> HandlerResult:
        return Promise(self._cancel)

    def commit(self) -> None:
        return

    def _cancel(self) -> None:
        self.cancelled += 1


class Counting(Network):
    """Knows how many connections there have been."""

    adopted = 0

    def adopt(self, sock: socket.socket, peer: tuple[str, int], listener: str) -> Connection:
        self.adopted += 1
        return super().adopt(sock, peer, listener)

    def listen(self) -> int:
        port = self.open([Listener("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT")])["PLAINTEXT"]
        self.start()
        return port


def send_and_reset(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as peer:
        peer.sendall(data)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "data",
    [b"\x00\x00", struct.pack(">i", 1 << 20) + bytes(200_000), struct.pack(">i", 4) + b"poll"],
    ids=["the beginning of a size", "the beginning of a large request", "a request that waits"],
)
def test_a_reset_behind_the_last_bytes_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, loop: str, data: bytes
) -> None:
    monkeypatch.setattr("tidelog.broker.network.network._QUIET_S", 0.02)

    async def scenario() -> None:
        handler = Waiting()
        network = Counting(handler, asyncio.get_running_loop())
        port = network.listen()
        for _ in range(5):
            send_and_reset(port, data)
        await until(lambda: network.adopted == 5 and not network.connections)
        assert handler.cancelled == (5 if data.endswith(b"poll") else 0)
        network.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())


def test_a_quiet_peer_that_is_there_is_left_alone() -> None:
    async def scenario() -> None:
        network = Counting(Waiting(), asyncio.get_running_loop())
        with socket.create_connection(("127.0.0.1", network.listen()), timeout=DEADLINE_S) as peer:
            await until(lambda: bool(network.connections))
            (connection,) = network.connections
            active = connection.last_active
            connection.look_for_end()
            assert not connection.closed
            assert connection.last_active == active
            peer.sendall(b"\x00")
            await until(lambda: connection.last_active > active)
        await until(lambda: connection.closed)
        network.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
