"""Limits on connections, request memory and log lines."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.network.connection import Connection
from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.broker.network.inbox import RECEIVE_BUFFER_BYTES, FrameLimits, Inbox
from tidelog.broker.network.ip_overrides import OPTION as IP_OVERRIDES
from tidelog.broker.network.ip_overrides import IpOverrides
from tidelog.broker.network.memory_pool import FrameBuffers, RequestMemory
from tidelog.broker.network.network import Network, NetworkLimits
from tidelog.broker.network.network_settings import apply_quotas, is_quota, network_limits
from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.broker.state import BrokerState, LifeCycle
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.errors import ConfigError
from tidelog.security.session import Session

DEADLINE_S = 60.0


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


def test_the_creation_rate_makes_the_acceptor_wait_a_window_at_most() -> None:
    quotas = ConnectionQuotas(max_creation_rate=2)
    quotas.add_listener("OUTSIDE")
    assert [quotas.count_creation("OUTSIDE", 10.0) for _ in range(20)] == [0.0] * 20
    assert quotas.count_creation("OUTSIDE", 10.0) == 0.5
    assert [quotas.count_creation("OUTSIDE", 10.0) for _ in range(20)][-1] == 1.0
    assert quotas.count_creation("OUTSIDE", 25.0) == 0.0


def test_a_listener_has_a_creation_rate_of_its_own_and_the_brokers_listener_no_other() -> None:
    quotas = ConnectionQuotas(inter_broker_listener="INSIDE")
    quotas.limit_rates(1, {"INSIDE": 2})
    for listener in ("OUTSIDE", "INSIDE"):
        quotas.add_listener(listener)
    waits = {name: [quotas.count_creation(name, 10.0) for _ in range(20)] for name in ("OUTSIDE", "INSIDE")}
    assert waits["OUTSIDE"][9] == 0.0 < waits["OUTSIDE"][10]
    assert waits["INSIDE"] == [0.0] * 20
    assert quotas.count_creation("INSIDE", 10.0) > 0


def test_an_address_that_makes_connections_too_fast_is_too_early_and_others_are_not() -> None:
    quotas = ConnectionQuotas()
    quotas.limit_ips({"192.0.2.1": 1.0, "::ffff:192.0.2.2": 2.0}, None)
    one = [quotas.too_early_s("OUTSIDE", "192.0.2.1", 10.0) for _ in range(12)]
    assert one == [0.0] * 10 + [1.0, 1.0], "what is turned away does not count"
    assert quotas.too_early_s("OUTSIDE", "192.0.2.3", 10.0) == 0.0
    assert [quotas.too_early_s("OUTSIDE", "192.0.2.2", 10.0) for _ in range(21)][-1] > 0
    quotas.limit_ips({}, 3.0)
    assert [quotas.too_early_s("OUTSIDE", "192.0.2.3", 10.0) for _ in range(31)][-1] > 0
    quotas.limit_ips({}, None)
    assert quotas.too_early_s("OUTSIDE", "192.0.2.1", 10.0) == 0.0


def test_a_connection_that_is_too_early_is_left_alone_and_then_closed() -> None:
    quotas = ConnectionQuotas(windows=51, window_ms=200)
    quotas.limit_ips({}, 0.1)

    async def test(port: int, network: Network) -> None:
        first = await Client(port).connect()
        assert await first.is_served()
        early = await Client(port).connect()
        assert not await early.is_served()
        assert network.quotas.total == 1

    serve(quotas, test)


def test_a_connection_that_closes_does_not_end_the_pause_of_who_accepts_too_fast() -> None:
    # None may come: whoever comes after the first has to wait for a window, which is longer than this test.
    quotas = ConnectionQuotas(max_creation_rate=0, windows=2, window_ms=3_600_000)

    async def test(port: int, network: Network) -> None:
        first = await Client(port).connect()
        assert await first.is_served()
        await first.close()
        while network.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)
        network.quotas_changed()
        second = await Client(port).connect()
        (acceptor,) = network._acceptors
        # What is in the kernel's queue would be accepted in the next turns of the loop.
        for _ in range(20):
            await asyncio.sleep(0)
        assert not acceptor._accepting
        assert not network.connections
        assert second.is_waiting()

    serve(quotas, test)


def test_one_pause_does_not_end_the_next_one_early() -> None:
    async def test(port: int, network: Network) -> None:
        (acceptor,) = network._acceptors
        acceptor._pause_for(0.0)
        acceptor._pause_for(3600.0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not acceptor._accepting
        acceptor._pause_for(0.0)
        assert await (await Client(port).connect()).is_served()

    serve(ConnectionQuotas(), test)


def test_limits_of_one_listener_come_from_the_options_also_when_these_change() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "listener.name.outside.max.connections": "3",
            "listener.name.outside.max.connection.creation.rate": "1",
        }
    )
    quotas = network_limits(config).quotas
    assert quotas.max_per_listener == {"OUTSIDE": 3}
    assert [quotas.count_creation("OUTSIDE", 1.0) for _ in range(11)][-1] == 1.0
    assert quotas.count_creation("INSIDE", 1.0) == 0.0
    changed = config.apply_dynamic({}, {"listener.name.outside.max.connection.creation.rate": "100"})
    assert any(map(is_quota, changed))
    apply_quotas(config, quotas)
    assert quotas.count_creation("OUTSIDE", 1.0) == 0.0


def test_overrides_may_name_hosts() -> None:
    quotas = ConnectionQuotas()
    IpOverrides(quotas).start(BrokerConfig({IP_OVERRIDES: "localhost:7,::1:5,10.0.0.7:3"}))
    assert quotas.per_ip_overrides == {"127.0.0.1": 7, "::1": 5, "10.0.0.7": 3}


@pytest.mark.parametrize("host", ["no-such-host.invalid", "no-such-host..a"])
def test_a_host_that_cannot_be_resolved_keeps_a_broker_from_starting_if_its_file_names_it(host: str) -> None:
    config = BrokerConfig({IP_OVERRIDES: f"{host}:1"})
    with pytest.raises(ConfigError, match="no-such-host"):
        IpOverrides(ConnectionQuotas()).start(config)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "no-such-host..a"])
def test_a_host_that_was_set_while_brokers_ran_and_cannot_be_resolved_keeps_none_from_starting(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig({IP_OVERRIDES: "10.0.0.7:3"})
    config.apply_dynamic({IP_OVERRIDES: f"{host}:1,10.0.0.8:4"}, {})
    quotas = ConnectionQuotas()
    IpOverrides(quotas).start(config)
    assert quotas.per_ip_overrides == {"10.0.0.8": 4}
    (told,) = caplog.messages
    assert f"of host {host} does not hold" in told


def test_hosts_are_looked_up_beside_the_loop_and_keep_their_addresses_when_they_cannot_be(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = {"here.test": "10.0.0.1", "there.test": "10.0.0.2"}
    answer = asyncio.Event()

    async def getaddrinfo(host: str, port: None) -> list[Any]:
        await answer.wait()
        if host not in addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (addresses[host], 0))]

    async def main() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("that blocks the loop"))
        quotas = ConnectionQuotas()
        overrides = IpOverrides(quotas)
        config = BrokerConfig()

        async def change(text: str) -> None:
            config.apply_dynamic({IP_OVERRIDES: text}, {})
            overrides.apply(config)
            assert overrides._looking_up is not None
            if answer.is_set():
                await overrides._looking_up

        await change("here.test:1,10.0.0.2:5,there.test:2")
        assert quotas.per_ip_overrides == {"10.0.0.2": 5}, "what needs no look holds at once"
        answer.set()
        await change("here.test:1,10.0.0.2:5,there.test:2")
        assert quotas.per_ip_overrides == {"10.0.0.1": 1, "10.0.0.2": 5}
        assert caplog.messages == []
        del addresses["here.test"]
        await change("nowhere.test:4,here.test:3")
        assert quotas.per_ip_overrides == {"10.0.0.1": 3}
        assert [text.partition(", as")[0] for text in caplog.messages] == [
            f"{IP_OVERRIDES} of host nowhere.test does not hold",
            f"{IP_OVERRIDES} of host here.test holds for its former addresses",
        ]
        config.apply_dynamic({}, {})
        overrides.apply(config)
        assert quotas.per_ip_overrides == {}
        assert overrides._looking_up is None

    asyncio.run(main())


def test_a_port_in_use_is_told_in_one_sentence() -> None:
    async def run(port: int) -> None:
        network = Network(Echo(), asyncio.get_running_loop())
        with pytest.raises(ConfigError, match=f"port {port} .*already in use.*--listen"):
            network.open([Listener("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")])

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(run(taken.getsockname()[1]))


def test_what_cannot_be_the_name_of_a_host_is_told_in_one_sentence() -> None:
    async def run() -> None:
        network = Network(Echo(), asyncio.get_running_loop())
        with pytest.raises(ConfigError, match=r"a\.\.b:0 cannot be resolved"):
            network.open([Listener("PLAINTEXT", "a..b", 0, "PLAINTEXT")])

    asyncio.run(run())


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
    assert len(buffers.take(90_000_000, 1_000_000)) == 1024 * 1024
    assert not buffers.are_many
    assert len(buffers.take(300_000, 200_000)) == 1024 * 1024
    assert buffers.are_many
    assert len(buffers.take(90_000_000, 80_000)) == 160_000
    assert len(buffers.take(80_000, 75_000)) == 80_000


def test_of_a_large_frame_the_whole_is_mapped_and_takes_no_memory_before_it_is_used() -> None:
    buffers = FrameBuffers()
    page_bytes = resource.getpagesize()

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page_bytes

    before = resident_bytes()
    large = [buffers.take(100_000_000, 1024 * 1024) for _ in range(20)]
    assert {len(buffer) for buffer in large} == {100_000_000}
    large[0][99_999_999] = 7
    assert resident_bytes() - before < 5_000_000
    for buffer in large:
        buffers.give_back(buffer)
    assert not buffers.are_many
    kept = buffers.take(3_000_000, 1024 * 1024)
    buffers.give_back(kept)
    assert buffers.take(2_000_000, 1024 * 1024) is kept


def test_a_peer_that_sends_as_fast_as_we_receive_has_a_megabyte_at_once() -> None:
    class EndlessSocket:
        """Fills whatever it is given, as the kernel does while a peer on the same machine goes on sending."""

        def recv_into(self, buffer: memoryview) -> int:
            asked.append(len(buffer))
            if len(asked) == 1:
                buffer[:4] = (80_000_000).to_bytes(4, "big")
            return len(buffer)

    class Shared:
        receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        frame_buffers = FrameBuffers()
        memory = RequestMemory()
        max_request_bytes = 100_000_000
        put_back_bytes = 0
        frame_limits: FrameLimits | None = None

    asked: list[int] = []
    inbox = Inbox(cast("socket.socket", EndlessSocket()), Shared(), Session("127.0.0.1"))
    frames: list[memoryview] | None = []
    while frames == []:
        frames = inbox.receive()
        if not frames:
            assert inbox.buffered_bytes <= max(inbox.arrived_bytes, 1024 * 1024)
    assert frames is not None
    assert [len(frame) for frame in frames] == [80_000_000]
    assert max(asked) <= 1024 * 1024
    assert sum(asked) == 80_000_004


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
