from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinator.transaction.scene import Scene

from tidelog.broker.authorization import OPEN
from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.handlers import init_producer_id
from tidelog.broker.quotas.client_quotas import UNLIMITED
from tidelog.broker.served import SERVED
from tidelog.broker.services import bind
from tidelog.clock import SystemClock
from tidelog.promise import Promise
from tidelog.replication.append_group import AppendGroup
from tidelog.security.session import Session
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.headers import RequestHeader, encode_request
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest


def frame(key: ApiKey) -> memoryview:
    api = API_TABLE[key]
    return memoryview(encode_request(RequestHeader(int(key), api.max_version, 1, "me"), api.request()))[4:]


def dispatcher_with_one_slot() -> Dispatcher:
    services: Any = SimpleNamespace(
        served=SERVED, membership=SimpleNamespace(is_informed=True), quotas=UNLIMITED
    )
    nobody: Any = SimpleNamespace(handle_frame=lambda *frame: pytest.fail("it is no record"))
    return Dispatcher(services, nobody, nobody, AppendGroup(lambda error: None), SystemClock(), slots=1)


def ask(dispatcher: Dispatcher, key: ApiKey, handle: Callable[..., object]) -> Promise[Any]:
    """The answer to a request that ``handle`` serves, which must not come at once."""
    route: Any = SimpleNamespace(api=API_TABLE[key], check=None, handle=handle)
    dispatcher._routes[key] = route
    connection: Any = SimpleNamespace(closed=False, session=Session("127.0.0.1"), producer_ids=())
    answer = dispatcher.handle(connection, frame(key))
    assert isinstance(answer, Promise)
    return answer


def after(before: Awaitable[object], key: ApiKey) -> Callable[..., object]:
    """A handler that awaits ``before``."""

    async def handle(*_: object) -> object:
        await before
        return API_TABLE[key].response()

    return handle


def test_pushes_of_telemetry_that_wait_for_each_other_keep_nobody_else_waiting() -> None:
    async def body() -> None:
        dispatcher = dispatcher_with_one_slot()
        turn = asyncio.Event()
        key = ApiKey.DESCRIBE_CONFIGS
        pushed = ask(dispatcher, ApiKey.PUSH_TELEMETRY, after(turn.wait(), ApiKey.PUSH_TELEMETRY))
        async with asyncio.timeout(50):
            await ask(dispatcher, key, after(asyncio.sleep(0), key))
            assert not pushed.done
            turn.set()
            await pushed

    asyncio.run(body())


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_producers_that_wait_for_an_id_keep_nobody_else_waiting(transactional_id: str | None) -> None:
    async def body() -> None:
        dispatcher = dispatcher_with_one_slot()
        scene = Scene()
        scene.ids.dry = True
        scene.ids.gate = asyncio.Event()
        services: Any = SimpleNamespace(transactions=scene.coordinator, authorization=OPEN)
        handle = bind(init_producer_id.handle, services)

        def init(context: Any, _: object) -> object:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
            return handle(context, request)

        key = ApiKey.DESCRIBE_CONFIGS
        begun = ask(dispatcher, ApiKey.INIT_PRODUCER_ID, init)
        async with asyncio.timeout(50):
            await ask(dispatcher, key, after(asyncio.sleep(0), key))
            assert not begun.done
            scene.ids.gate.set()
            await begun

    asyncio.run(body())
