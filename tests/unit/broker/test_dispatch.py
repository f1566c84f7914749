from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.quotas.client_quotas import UNLIMITED
from tidelog.broker.served import SERVED
from tidelog.clock import SystemClock
from tidelog.promise import Promise
from tidelog.replication.append_group import AppendGroup
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.headers import RequestHeader, encode_request


def frame(key: ApiKey) -> memoryview:
    api = API_TABLE[key]
    return memoryview(encode_request(RequestHeader(int(key), api.max_version, 1, "me"), api.request()))[4:]


def test_pushes_of_telemetry_that_wait_for_each_other_keep_nobody_else_waiting() -> None:
    async def body() -> None:
        services: Any = SimpleNamespace(
            served=SERVED, membership=SimpleNamespace(is_informed=True), quotas=UNLIMITED
        )
        nobody: Any = SimpleNamespace(handle_frame=lambda *frame: pytest.fail("it is no record"))
        group = AppendGroup(lambda error: None)
        dispatcher = Dispatcher(services, nobody, nobody, group, SystemClock(), slots=1)
        turn = asyncio.Event()

        def serve(key: ApiKey, before: Awaitable[object]) -> Promise[Any]:
            async def handle() -> object:
                await before
                return API_TABLE[key].response()

            route: Any = SimpleNamespace(api=API_TABLE[key], check=None, handle=lambda *_: handle())
            dispatcher._routes[key] = route
            answer = dispatcher.handle(SimpleNamespace(closed=False), frame(key))  # type: ignore[arg-type]
            assert isinstance(answer, Promise)
            return answer

        pushed = serve(ApiKey.PUSH_TELEMETRY, turn.wait())
        async with asyncio.timeout(50):
            await serve(ApiKey.DESCRIBE_CONFIGS, asyncio.sleep(0))
            assert not pushed.done
            turn.set()
            await pushed

    asyncio.run(body())
