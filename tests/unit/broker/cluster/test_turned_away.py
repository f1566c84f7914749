"""A broker that has not been told what there is turns those away who ask; it does not say that there is
nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.quotas.client_quotas import UNLIMITED
from tidelog.broker.served import SERVED
from tidelog.clock import SystemClock
from tidelog.errors import WireError
from tidelog.replication.append_group import AppendGroup
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import encode
from tidelog.wire.schema import Payload

ASKS = (ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS)


def dispatcher(*, knows_cluster: bool) -> Dispatcher:
    services: Any = SimpleNamespace(
        served=SERVED, membership=SimpleNamespace(is_informed=knows_cluster), quotas=UNLIMITED
    )
    nobody: Any = SimpleNamespace(handle_frame=lambda *frame: pytest.fail("it is no record"))
    return Dispatcher(services, nobody, nobody, AppendGroup(lambda error: None), SystemClock(), slots=1)


def frame(key: ApiKey) -> memoryview:
    api = API_TABLE[key]
    version = api.max_version
    head = int(key).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    tags = b"\0" if version >= api.flexible_since else b""
    return memoryview(head + tags + encode(api.request(), version))


@pytest.mark.parametrize("key", ASKS)
def test_who_asks_too_early_what_there_is_must_ask_another_broker(key: ApiKey) -> None:
    connection: Any = SimpleNamespace()
    with pytest.raises(WireError, match="before the controller has told"):
        dispatcher(knows_cluster=False).handle(connection, frame(key))


@pytest.mark.parametrize("key", ASKS)
def test_who_asks_when_the_controller_has_told_is_answered(key: ApiKey) -> None:
    handled: list[object] = []
    ready = dispatcher(knows_cluster=True)

    def handle(context: object, request: object) -> Payload:
        handled.append(request)
        return API_TABLE[key].response()

    ready._routes[key] = SimpleNamespace(api=API_TABLE[key], check=None, handle=handle)  # type: ignore[assignment]
    connection: Any = SimpleNamespace()
    ready.handle(connection, frame(key))
    assert len(handled) == 1
