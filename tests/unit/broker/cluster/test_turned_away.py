"""A broker without metadata lets a request for it wait, and never answers that there is nothing."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.exchange.dispatch import Dispatcher
from tidelog.broker.network.inbox import KeptFrame
from tidelog.broker.quotas.client_quotas import UNLIMITED
from tidelog.broker.served import SERVED
from tidelog.clock import SystemClock
from tidelog.replication.append_group import AppendGroup
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import encode
from tidelog.wire.schema import Payload

ASKS = (ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS)


class Membership:
    """Gets its metadata when the test says so, or never."""

    def __init__(self, *, knows_cluster: bool) -> None:
        self.is_informed = knows_cluster
        self.heard = asyncio.Event()

    async def wait_until_informed(self) -> bool:
        await self.heard.wait()
        return self.is_informed


class Peer:
    """The connection of one client."""

    def __init__(self) -> None:
        self.closed = False
        self.session = None

    def keep(self, frame: memoryview) -> KeptFrame:
        return KeptFrame(frame, lambda: None)

    def close(self) -> None:
        self.closed = True


def dispatcher(membership: Membership) -> Dispatcher:
    services: Any = SimpleNamespace(
        served=SERVED, membership=membership, quotas=UNLIMITED, lane=SlowLane(SystemClock())
    )
    nobody: Any = SimpleNamespace(handle_frame=lambda *frame: pytest.fail("it is no record"))
    return Dispatcher(services, nobody, nobody, AppendGroup(lambda error: None), slots=1)


def serve(dispatcher: Dispatcher, key: ApiKey) -> list[object]:
    """Answer this API with nothing; gives the requests that came through."""
    handled: list[object] = []

    def handle(context: object, request: object) -> Payload:
        handled.append(request)
        return API_TABLE[key].response()

    dispatcher._routes[key] = SimpleNamespace(api=API_TABLE[key], check=None, handle=handle)  # type: ignore[assignment]
    return handled


def frame(key: ApiKey) -> memoryview:
    api = API_TABLE[key]
    version = api.max_version
    head = int(key).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    tags = b"\0" if version >= api.flexible_since else b""
    return memoryview(head + tags + encode(api.request(), version))


@pytest.mark.parametrize("key", ASKS)
def test_a_request_for_metadata_waits_until_there_are_some(key: ApiKey) -> None:
    async def scenario() -> None:
        membership = Membership(knows_cluster=False)
        early = dispatcher(membership)
        handled = serve(early, key)
        peer: Any = Peer()
        promise = early.handle(peer, frame(key))
        assert isinstance(promise, Promise)
        await asyncio.sleep(0)
        assert promise.cancellable
        assert not handled
        membership.is_informed = True
        membership.heard.set()
        answer = await promise
        assert isinstance(answer, bytes)
        assert len(handled) == 1
        assert not peer.closed

    asyncio.run(scenario())


def test_a_client_that_waits_in_vain_is_disconnected_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        membership = Membership(knows_cluster=False)
        early = dispatcher(membership)
        handled = serve(early, ApiKey.METADATA)
        peer: Any = Peer()
        early.handle(peer, frame(ApiKey.METADATA))
        membership.heard.set()
        while not peer.closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not handled

    asyncio.run(scenario())
    # Threads of other tests may log, too.
    logged = [each for each in caplog.records if each.name.startswith("tidelog.broker")]
    assert not [each for each in logged if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("key", ASKS)
def test_a_request_for_metadata_that_are_there_is_answered_at_once(key: ApiKey) -> None:
    ready = dispatcher(Membership(knows_cluster=True))
    handled = serve(ready, key)
    peer: Any = Peer()
    ready.handle(peer, frame(key))
    assert len(handled) == 1
