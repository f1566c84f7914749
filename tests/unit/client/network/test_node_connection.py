from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client._address import Address
from tidelog.client._network.node_connection import NodeConnection
from tidelog.client._network.ongoing_errors import ConnectionFailures
from tidelog.client._network.retry import Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.client._network.traffic import Traffic
from tidelog.client.errors import BrokerUnreachableError, is_retriable
from tidelog.wire.api import ApiKey

Action = Callable[[NodeConnection], Awaitable[None]]


def run_silent(broker: Any, action: Action) -> None:
    """Against a broker that accepts connections and does not greet."""
    broker.handlers[ApiKey.API_VERSIONS] = lambda request, version: None

    async def main() -> None:
        async with broker:
            await action(NodeConnection(Address("127.0.0.1", broker.port), NetworkSettings(), Traffic()))

    asyncio.run(main())


@pytest.mark.parametrize("begun", [True, False], ids=["under way", "before its first step"])
def test_whoever_waits_for_a_connection_that_is_given_up_gets_an_error_that_passes(
    scripted_broker: Any, begun: bool
) -> None:
    async def action(peer: NodeConnection) -> None:
        waiting = [asyncio.create_task(peer.connected(Deadline(30_000))) for _ in range(2)]
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while begun and not scripted_broker.seen:  # noqa: ASYNC110 (nothing tells of it)
                await asyncio.sleep(0.001)
        await peer.close()
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, BrokerUnreachableError)
            assert is_retriable(error)

    run_silent(scripted_broker, action)


def test_whoever_is_cancelled_while_waiting_is_cancelled_and_the_others_wait_on(scripted_broker: Any) -> None:
    async def action(peer: NodeConnection) -> None:
        first, second = (asyncio.create_task(peer.connected(Deadline(30_000))) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert peer.is_opening
        # Both at once: the one that was cancelled itself is.
        second.cancel()
        await peer.close()
        with pytest.raises(asyncio.CancelledError):
            await second

    run_silent(scripted_broker, action)


def test_an_advertised_address_that_was_never_reached_points_to_the_option_of_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            address = Address("127.0.0.1", held.getsockname()[1])
            peer = NodeConnection(
                address, NetworkSettings(), Traffic(), ConnectionFailures(), is_advertised=True
            )
            with pytest.raises(BrokerUnreachableError):
                await peer.connected(Deadline(30_000))
            await peer.close()
            (warning,) = (each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)
            assert warning.startswith(f"cannot connect to {address}: connection refused")
            assert warning.endswith("(a broker advertises this address: check its advertised.listeners)")

    asyncio.run(main())
