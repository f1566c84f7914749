"""Quotas of hosts that are given by their names hold without a gap."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.broker.quotas.address_quotas import AddressQuotas
from tidelog.config.client_quotas import CONNECTION_CREATION_RATE, IP

NOW_S = 1000.0


class Names:
    """What the system finds for names, once it answers."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.answer = asyncio.Event()
        self.answer.set()

    async def getaddrinfo(self, host: str, port: None) -> list[Any]:
        await self.answer.wait()
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.addresses[host], 0))]


class Scene:
    def __init__(self) -> None:
        self.names = Names()
        self.connections = ConnectionQuotas(windows=11, window_ms=1000.0)
        self.quotas = AddressQuotas(self.connections)

    async def set(self, limits: dict[str | None, float]) -> None:
        """These are set, and are found if the system answers."""
        self.quotas.apply(
            {((IP, host),): {CONNECTION_CREATION_RATE: limit} for host, limit in limits.items()}
        )
        if self.quotas._looking_up is not None and self.names.answer.is_set():
            await self.quotas._looking_up

    def may_connect(self, ip: str) -> bool:
        """Counts a connection where there is a quota."""
        return not self.connections.too_early_s("L", ip, NOW_S)

    def use_up(self, ip: str) -> None:
        """Connect until the quota of the address is used up."""
        assert any(not self.may_connect(ip) for _ in range(100)), f"{ip} has no quota"


def run(monkeypatch: pytest.MonkeyPatch, test: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", scene.names.getaddrinfo)
        await test(scene)

    asyncio.run(main())


def test_the_quota_of_a_host_holds_while_it_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        scene.names.addresses = {"here.test": "10.0.0.1"}
        await scene.set({"here.test": 1.0})
        scene.use_up("10.0.0.1")
        scene.names.answer.clear()
        await scene.set({"here.test": 1.0, "10.0.0.2": 1.0})
        assert not scene.may_connect("10.0.0.1"), "what it has used is not forgotten"
        scene.use_up("10.0.0.2")

        scene.names.addresses["here.test"] = "10.0.0.3"
        scene.names.answer.set()
        await scene.set({"here.test": 1.0, "10.0.0.2": 1.0})
        scene.use_up("10.0.0.3")
        assert scene.may_connect("10.0.0.1"), "it is another's address now"
        assert not scene.may_connect("10.0.0.2")

    run(monkeypatch, test)


def test_a_host_that_cannot_be_found_keeps_its_addresses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(scene: Scene) -> None:
        scene.names.addresses = {"here.test": "10.0.0.1"}
        await scene.set({"here.test": 1.0})
        scene.use_up("10.0.0.1")
        assert caplog.messages == []
        scene.names.addresses.clear()
        await scene.set({"here.test": 1.0, "nowhere.test": 1.0})
        assert not scene.may_connect("10.0.0.1")
        former, none = caplog.messages
        assert "of host here.test holds for its former addresses" in former
        assert "of host nowhere.test does not hold" in none

        await scene.set({})
        assert scene.may_connect("10.0.0.1"), "its quota was removed"
        await scene.set({"here.test": 1.0})
        assert all(scene.may_connect("10.0.0.1") for _ in range(100)), "forgotten with its quota"

    run(monkeypatch, test)


def test_what_is_set_for_an_address_itself_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        scene.names.addresses = {"here.test": "10.0.0.1"}
        for _ in range(2):
            await scene.set({"here.test": 1.0, "::ffff:10.0.0.1": 1000.0, None: 1.0})
            assert all(scene.may_connect("10.0.0.1") for _ in range(100))
            scene.use_up("10.0.0.9")

    run(monkeypatch, test)
