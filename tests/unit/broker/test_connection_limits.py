"""Limits on connections, request memory and log lines."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from tidelog.broker.connection import Connection
from tidelog.broker.connection_quotas import ConnectionQuotas, resolve_ip_overrides
from tidelog.broker.memory_pool import FrameBuffers, RequestMemory
from tidelog.broker.network import Network, NetworkLimits
from tidelog.broker.rate_limited_log import RateLimitedLog
from tidelog.broker.state import BrokerState, LifeCycle
from tidelog.errors import ConfigError
from tidelog.metadata.listeners import Listener
from tidelog.testing.clock import ManualClock

DEADLINE_S = 10.0


class Echo:
    def handle(self, connection: Connection, frame: memoryview) -> bytes:
        return len(frame).to_bytes(4, "big") + bytes(frame)

    def commit(self) -> None:
        pass


class Client:
    """A peer on a real TCP connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def is_served(self) -> bool:
        """Whether an echo comes back; ``False`` if the connection is closed instead."""
        self.writer.write(b"\0\0\0\x02hi")
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.readexactly(6) == b"\0\0\0\x02hi"
            except (asyncio.IncompleteReadError, ConnectionError):
                return False

    def is_waiting(self) -> bool:
        """Whether nothing has come, neither an answer nor an end."""
        return not self.reader.at_eof() and not self.reader._buffer  # type: ignore[attr-defined]

    async def close(self) -> None:
        self.writer.close()


def serve(quotas: ConnectionQuotas, test: Callable[[int, Network], Awaitable[None]]) -> None:
    async def run() -> None:
        network = Network(Echo(), asyncio.get_running_loop(), NetworkLimits(quotas=quotas))
        ports = network.open([Listener("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT")])
        network.start()
        try:
            await test(ports["PLAINTEXT"], network)
        finally:
            network.close()

    asyncio.run(run())


def test_connections_beyond_the_limit_of_an_address_are_closed_on_arrival() -> None:
    async def test(port: int, network: Network) -> None:
        first, second = await Client(port).connect(), await Client(port).connect()
        third = await Client(port).connect()
        assert await first.is_served()
        assert await second.is_served()
        assert not await third.is_served()
        await first.close()
        while network.quotas.total > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert await (await Client(port).connect()).is_served()

    serve(ConnectionQuotas(max_per_ip=2), test)


def test_an_address_may_have_a_limit_of_its_own() -> None:
    async def test(port: int, network: Network) -> None:
        clients = [await Client(port).connect() for _ in range(3)]
        assert [await client.is_served() for client in clients] == [True, True, False]

    serve(ConnectionQuotas(max_per_ip=1, per_ip_overrides={"127.0.0.1": 2}), test)


@pytest.mark.parametrize(
    "quotas", [ConnectionQuotas(max_connections=2), ConnectionQuotas(max_per_listener={"PLAINTEXT": 2})]
)
def test_a_full_broker_or_listener_lets_newcomers_wait_for_a_slot(quotas: ConnectionQuotas) -> None:
    async def test(port: int, network: Network) -> None:
        first, second = await Client(port).connect(), await Client(port).connect()
        assert await first.is_served()
        assert await second.is_served()
        third = await Client(port).connect()
        served = asyncio.create_task(third.is_served())
        assert await first.is_served()
        assert third.is_waiting()
        await second.close()
        assert await served

    serve(quotas, test)


def test_raising_a_limit_lets_those_in_who_wait() -> None:
    async def test(port: int, network: Network) -> None:
        first = await Client(port).connect()
        assert await first.is_served()
        second = await Client(port).connect()
        served = asyncio.create_task(second.is_served())
        assert await first.is_served()
        assert second.is_waiting()
        network.quotas.max_connections = 2
        network.quotas_changed()
        assert await served

    serve(ConnectionQuotas(max_connections=1), test)


def test_the_creation_rate_leaves_the_rest_of_a_second_to_others() -> None:
    quotas = ConnectionQuotas(max_creation_rate=2)
    assert quotas.rate_delay_s(10.25) == 0
    quotas.count_creation()
    quotas.count_creation()
    assert quotas.rate_delay_s(10.25) == 0.75
    assert quotas.rate_delay_s(11.0) == 0


def test_overrides_may_name_hosts() -> None:
    assert resolve_ip_overrides({"localhost": 7})["127.0.0.1"] == 7
    with pytest.raises(ConfigError, match="no-such-host"):
        resolve_ip_overrides({"no-such-host.invalid": 1})


def test_a_port_in_use_is_told_in_one_sentence() -> None:
    async def run(port: int) -> None:
        network = Network(Echo(), asyncio.get_running_loop())
        with pytest.raises(ConfigError, match=f"port {port} .*already in use.*--listen"):
            network.open([Listener("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")])

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(run(taken.getsockname()[1]))


def test_request_memory_may_be_overdrawn_once_and_then_makes_others_wait() -> None:
    memory = RequestMemory(100)
    assert memory.reserve(60)
    assert memory.reserve(60)
    assert not memory.reserve(1)
    resumed: list[str] = []

    def take(name: str) -> Callable[[], None]:
        return lambda: resumed.append(name) if memory.reserve(60) else None

    memory.wait("first", take("first"))
    memory.wait("second", take("second"))
    memory.wait("gone", take("gone"))
    memory.forget("gone")
    memory.release(60)
    assert resumed == ["first"]
    memory.release(60)
    memory.release(60)
    assert resumed == ["first", "second"]
    assert memory.waiting == 0


def test_frame_buffers_are_used_again_and_few_are_kept() -> None:
    buffers = FrameBuffers(kept_bytes=2 * 1024 * 1024)
    first, second, third = (buffers.take(1_000_000, 500_000) for _ in range(3))
    assert len(first) == 1024 * 1024
    for buffer in (first, second, third):
        buffers.give_back(buffer)
    assert buffers.take(600_000, 500_000) is second
    assert buffers.take(600_000, 500_000) is first
    assert buffers.take(600_000, 500_000) is not third


def test_frame_buffers_are_small_once_many_are_lent() -> None:
    buffers = FrameBuffers(kept_bytes=2 * 1024 * 1024)
    assert len(buffers.take(90_000_000, 70_000)) == 1024 * 1024
    assert len(buffers.take(90_000_000, 1_000_000)) == 4_000_000
    assert buffers.are_many
    assert len(buffers.take(90_000_000, 80_000)) == 90_000
    assert len(buffers.take(80_000, 75_000)) == 80_000
    large = buffers.take(90_000_000, 40_000_000)
    assert len(large) == 80_000_000
    buffers.give_back(large)


def test_a_flood_of_complaints_is_cut_short_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    rate_limited_log = RateLimitedLog(logging.getLogger("flood"), clock)
    for number in range(1000):
        rate_limited_log.warn("garbage", "bad peer %d", number)
    rate_limited_log.warn("other", "another matter")
    assert len(caplog.records) < 20
    assert caplog.records[-1].message == "another matter"
    clock.advance(1000)
    rate_limited_log.warn("garbage", "bad peer %d", 1000)
    assert "990 more" in caplog.records[-1].message


def test_broker_states_follow_each_other_in_order_only() -> None:
    life = LifeCycle()
    with pytest.raises(RuntimeError, match="NOT_RUNNING cannot become RUNNING_AS_BROKER"):
        life.enter(BrokerState.RUNNING_AS_BROKER)
    for state in (
        BrokerState.STARTING,
        BrokerState.RECOVERING_FROM_UNCLEAN_SHUTDOWN,
        BrokerState.RUNNING_AS_BROKER,
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.BROKER_SHUTTING_DOWN,
        BrokerState.NOT_RUNNING,
    ):
        life.enter(state)
    assert life.state == 0
