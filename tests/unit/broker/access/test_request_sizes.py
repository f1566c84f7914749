"""Requests that are too long for their API or their client: refused before they are received."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.waiting import wait_until

from tidelog.broker.app import Broker
from tidelog.errors import ErrorCode
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tidelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

MB = 1024 * 1024
AUTHORIZED = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path) as broker:
        yield broker


def announced(key: ApiKey, size: int) -> bytes:
    """The first bytes of a request: its size and its header."""
    return struct.pack(">ihhih", size, key, API_TABLE[key].max_version, 1, -1)


def taken_bytes(broker: Broker, port: int) -> int:
    """How much the broker has received of a client's unfinished request."""
    return sum(each.buffered_bytes for each in broker.network.connections if each.peer[1] == port)


def is_received(broker: BrokerThread, key: ApiKey, size: int, *, first_bytes: int = 14) -> bool:
    """Whether the broker waits for the rest of a request; it closes the connection if it does not."""

    def reserved_bytes() -> int:
        return broker.call(lambda each: each.network.memory.reserved_bytes)

    def is_closed() -> bool:
        try:
            return not peer.recv(1)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    with socket.create_connection(("127.0.0.1", broker.port)) as peer:
        data = announced(key, size)
        peer.sendall(data[:first_bytes])
        peer.setblocking(False)
        if first_bytes < len(data):
            # The broker takes these before the others come.
            port = peer.getsockname()[1]
            wait_until(lambda: broker.call(lambda each: taken_bytes(each, port)) == first_bytes)
            with contextlib.suppress(ConnectionError):
                peer.sendall(data[first_bytes:])
        wait_until(lambda: is_closed() or reserved_bytes() == size)
        found = reserved_bytes() == size
    wait_until(lambda: not reserved_bytes())
    return found


def test_a_push_of_telemetry_is_not_received_beyond_twice_its_limit(
    broker: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_received(broker, ApiKey.PUSH_TELEMETRY, 2 * MB)
    assert not is_received(broker, ApiKey.PUSH_TELEMETRY, 3 * MB)
    assert "telemetry.max.bytes allows 2162688" in caplog.text


@pytest.mark.parametrize("first_bytes", range(1, 6))
def test_the_api_is_known_however_the_first_bytes_come(broker: BrokerThread, first_bytes: int) -> None:
    assert not is_received(broker, ApiKey.PUSH_TELEMETRY, 100 * MB, first_bytes=first_bytes)
    assert is_received(broker, ApiKey.PRODUCE, 100 * MB, first_bytes=first_bytes)


def test_a_push_that_is_a_little_too_long_is_answered(broker: BrokerThread) -> None:
    with RawClient("127.0.0.1", broker.port) as client:
        asked = client.ask(0, GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse)
        push = PushTelemetryRequest(
            client_instance_id=asked.client_instance_id,
            subscription_id=asked.subscription_id,
            metrics=bytes(asked.telemetry_max_bytes + 1),
        )
        assert client.ask(0, push, PushTelemetryResponse).error_code == ErrorCode.TELEMETRY_TOO_LARGE


@pytest.mark.parametrize("key", sorted(set(API_TABLE)), ids=lambda key: key.name)
def test_only_produce_and_what_brokers_send_may_have_the_size_of_any_request(
    broker: BrokerThread, key: ApiKey
) -> None:
    of_brokers = {
        ApiKey.PRODUCE,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.WRITE_TXN_MARKERS,
    }
    assert is_received(broker, key, 17 * MB) == (key in of_brokers)
    assert is_received(broker, key, 2 * MB)


def test_a_client_without_the_right_may_not_send_what_it_would_be_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerThread(tmp_path, options=AUTHORIZED) as broker:
        for key in (ApiKey.UPDATE_METADATA, ApiKey.LEADER_AND_ISR, ApiKey.CREATE_ACLS):
            assert not is_received(broker, key, 300_000)
        assert is_received(broker, ApiKey.PRODUCE, 17 * MB)
        assert is_received(broker, ApiKey.METADATA, 2 * MB)
    assert "a client without CLUSTER_ACTION on the cluster may send 65536" in caplog.text
    with BrokerThread(tmp_path, options={**AUTHORIZED, "super.users": "User:ANONYMOUS"}) as broker:
        assert is_received(broker, ApiKey.UPDATE_METADATA, 17 * MB)
        assert is_received(broker, ApiKey.CREATE_ACLS, 300_000)
        assert not is_received(broker, ApiKey.CREATE_ACLS, 17 * MB)


def test_the_limit_of_all_requests_stands_over_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with BrokerThread(tmp_path, options={"socket.request.max.bytes": str(MB)}) as broker:
        assert not is_received(broker, ApiKey.PUSH_TELEMETRY, MB + 1)
        assert not is_received(broker, ApiKey.METADATA, MB + 1)
        assert is_received(broker, ApiKey.METADATA, MB)
