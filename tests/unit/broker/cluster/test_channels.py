"""What the controller sends a broker arrives, in order, wherever the broker listens by then."""

from __future__ import annotations

import asyncio

from tests.unit.client.conftest import ScriptedBroker

from tidelog.broker.cluster.channels import Channels
from tidelog.broker.cluster.peer_broker import PeerEndpoint
from tidelog.client._address import Address
from tidelog.client._network.settings import NetworkSettings
from tidelog.config.listeners import Listener
from tidelog.controller.cluster.context import LiveBroker
from tidelog.metadata.znodes.znodes import BrokerRegistration
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tidelog.wire.schema import Payload

BROKER = 7


class Scene:
    """A broker that closes the connection instead of answering, and one that answers."""

    def __init__(self) -> None:
        self.deaf, self.hearing = ScriptedBroker(), ScriptedBroker()
        self.reached = asyncio.Event()
        self.deaf.handlers[ApiKey.UPDATE_METADATA] = self._turned_away
        self.hearing.handlers[ApiKey.UPDATE_METADATA] = lambda request, version: UpdateMetadataResponse()
        self.channels = Channels(_endpoint_of, timeout_ms=30_000)

    def _turned_away(self, request: Payload, version: int) -> None:
        self.reached.set()
        raise ConnectionResetError

    def send(self, controller_epoch: int) -> asyncio.Future[Payload]:
        answered: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        request = UpdateMetadataRequest(controller_id=1, controller_epoch=controller_epoch, broker_epoch=1)
        self.channels.send(BROKER, request, answered.set_result)
        return answered

    def heard(self) -> list[int]:
        requests = self.hearing.requests(ApiKey.UPDATE_METADATA)
        return [each.controller_epoch for _, each in requests if isinstance(each, UpdateMetadataRequest)]


def registered(port: int, epoch: int) -> dict[int, LiveBroker]:
    endpoint = Listener("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")
    registration = BrokerRegistration(broker_id=BROKER, endpoints=(endpoint,), timestamp_ms=port)
    return {BROKER: LiveBroker(registration, epoch)}


def _endpoint_of(broker: LiveBroker) -> PeerEndpoint:
    found = broker.registration.endpoints[0]
    return PeerEndpoint(Address(found.host, found.port), NetworkSettings())


def test_a_registration_that_is_rewritten_drops_nothing() -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.deaf, scene.hearing, asyncio.timeout(60):
            scene.channels.set_brokers(registered(scene.deaf.port, epoch=1))
            first, second = scene.send(1), scene.send(2)
            await scene.reached.wait()
            scene.channels.set_brokers(registered(scene.hearing.port, epoch=1))
            third = scene.send(3)
            await asyncio.gather(first, second, third)
            assert scene.heard() == [1, 2, 3]
            scene.channels.close()

    asyncio.run(main())


def test_what_was_meant_for_an_earlier_life_of_a_broker_is_dropped() -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.deaf, scene.hearing, asyncio.timeout(60):
            scene.channels.set_brokers(registered(scene.deaf.port, epoch=1))
            scene.send(1)
            await scene.reached.wait()
            scene.channels.set_brokers(registered(scene.hearing.port, epoch=2))
            await scene.send(2)
            assert scene.heard() == [2]
            scene.channels.close()

    asyncio.run(main())
