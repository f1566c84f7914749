"""A consumer whose broker dies, freezes, trickles or loses connections loses and repeats nothing."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.consumer_faces import (
    DEADLINE_S,
    FACES,
    create_topic,
    end,
    numbered,
    produce,
    read,
    tp,
    values,
)
from tests.integration.fault_proxy import FaultProxy

from tidelog.client.consumer.errors import ConsumerTimeoutError
from tidelog.client.errors import ClientError
from tidelog.errors import TidelogError
from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.reserved_port import ReservedPort

IMPATIENT = {
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 10,
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 50,
}

Open = Callable[..., Any]


@pytest.fixture(params=FACES)
def consumer_of(request: pytest.FixtureRequest) -> Iterator[Open]:
    opened = []

    def open_one(bootstrap: str, **options: object) -> Any:
        consumer = FACES[request.param](bootstrap_servers=bootstrap, **{**IMPATIENT, **options})
        opened.append(consumer)
        return consumer

    yield open_one
    for consumer in opened:
        end(consumer)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that no other process gets meanwhile."""
    with ReservedPort() as reserved:
        yield reserved.port


@contextlib.contextmanager
def proxied_broker(tmp_path: Path, proxy: FaultProxy) -> Iterator[tuple[int, str]]:
    """A broker that sends clients to ``proxy``: the port behind that, and an address that avoids it."""
    with ReservedPort() as behind, ReservedPort() as direct, contextlib.closing(proxy):
        options = {
            "listeners": f"PLAINTEXT://127.0.0.1:{behind.port},DIRECT://127.0.0.1:{direct.port}",
            "advertised.listeners": f"PLAINTEXT://{proxy.address},DIRECT://127.0.0.1:{direct.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,DIRECT:PLAINTEXT",
        }
        with BrokerProcess(tmp_path / "data", options=options, port=behind.port):
            yield behind.port, f"127.0.0.1:{direct.port}"


def test_a_broker_that_is_killed_and_comes_back_is_read_on_where_it_was(
    consumer_of: Open, broker: BrokerProcess
) -> None:
    create_topic(broker.bootstrap, "t", 2)
    for partition in (0, 1):
        produce(broker.bootstrap, "t", numbered(1000), partition)
    consumer = consumer_of(broker.bootstrap, max_poll_records=100, max_partition_fetch_bytes=2000)
    consumer.assign([tp("t", 0), tp("t", 1)])
    records = read(consumer, 300)
    broker.kill()
    while consumer.metrics()["fetch-buffer-bytes"]:
        records += consumer.poll(0.05)
    records += consumer.poll(0.2)
    broker.restart()
    for partition in (0, 1):
        produce(broker.bootstrap, "t", numbered(1000, 1000), partition)
    records += read(consumer, 4000 - len(records))
    for partition in (0, 1):
        assert [each.value for each in records if each.partition == partition] == numbered(2000)
        assert consumer.position(tp("t", partition)) == 2000


def test_a_broker_that_freezes_is_waited_for(consumer_of: Open, broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, "t")
    produce(broker.bootstrap, "t", numbered(10))
    consumer = consumer_of(broker.bootstrap, request_timeout_ms=300, default_api_timeout_ms=1000)
    consumer.assign([tp("t")])
    assert values(read(consumer, 10)) == numbered(10)
    broker.send_signal(signal.SIGSTOP)
    try:
        assert consumer.poll(0.8) == []
        with pytest.raises(TidelogError, match=r"within|not answered|cannot|lost|timed out"):
            consumer.end_offsets([tp("t")], timeout=0.5)
    finally:
        broker.send_signal(signal.SIGCONT)
    produce(broker.bootstrap, "t", numbered(10, 10))
    assert values(read(consumer, 10)) == numbered(10, 10)


def test_connections_cut_at_any_byte_lose_and_repeat_nothing(consumer_of: Open, tmp_path: Path) -> None:
    sent = [b"%d %s" % (number, b"x" * (number % 50)) for number in range(1500)]
    proxy = FaultProxy(cuts=[*range(0, 1200, 13), *range(1200, 4000, 97)])
    with proxied_broker(tmp_path, proxy) as (port, direct):
        create_topic(direct, "t")
        for start in range(0, len(sent), 30):
            produce(direct, "t", sent[start : start + 30])
        proxy.start(port)
        consumer = consumer_of(proxy.address, max_partition_fetch_bytes=1000, max_poll_records=50)
        consumer.assign([tp("t")])
        records = read(consumer, len(sent))
        assert values(records) == sent
        assert [record.offset for record in records] == list(range(len(sent)))
        assert proxy.connections > 50


def test_a_broker_that_trickles_is_read_to_the_end(consumer_of: Open, tmp_path: Path) -> None:
    proxy = FaultProxy(trickle=512)
    with proxied_broker(tmp_path, proxy) as (port, direct):
        create_topic(direct, "t", 2)
        for partition in (0, 1):
            produce(direct, "t", numbered(2000), partition)
        proxy.start(port)
        consumer = consumer_of(proxy.address)
        consumer.assign([tp("t", 0), tp("t", 1)])
        records = read(consumer, 4000)
        for partition in (0, 1):
            assert [each.value for each in records if each.partition == partition] == numbered(2000)


def test_without_a_broker_every_wait_ends_and_says_what_for(consumer_of: Open, closed_port: int) -> None:
    port = closed_port
    consumer = consumer_of(f"127.0.0.1:{port}", default_api_timeout_ms=500, request_timeout_ms=300)
    consumer.assign([tp("t")])
    while consumer.ongoing_error() is None:
        assert consumer.poll(0.2) == []
    with pytest.raises(ConsumerTimeoutError, match=f"t-0.*{port}"):
        consumer.position(tp("t"), timeout=0.3)
    with pytest.raises(ClientError, match=str(port)):
        consumer.end_offsets([tp("t")])
    lasted_s, reason = consumer.ongoing_error()
    assert lasted_s >= 0
    assert f"cannot connect to 127.0.0.1:{port}" in reason


def test_a_consumer_closes_in_time_when_its_broker_is_gone(consumer_of: Open, broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, "t")
    produce(broker.bootstrap, "t", numbered(10))
    consumer = consumer_of(broker.bootstrap)
    consumer.assign([tp("t")])
    read(consumer, 10)
    broker.send_signal(signal.SIGSTOP)
    try:
        closing = threading.Thread(target=consumer.close, args=(1.0,))
        began = time.monotonic()
        closing.start()
        closing.join(DEADLINE_S)
        assert not closing.is_alive(), f"still closing after {time.monotonic() - began:.0f} s"
    finally:
        broker.send_signal(signal.SIGCONT)
