"""Bad input closes the connection it came by, costs bounded memory, and nobody else notices."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch
from tests.rigs.waiting import wait_until

from tidelog.broker.served import SERVED
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.headers import RequestHeader, encode_request
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.produce import ProduceRequest

MB = 1024 * 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("bad-input") / "data") as running:
        yield running


@pytest.fixture
def connect(broker: BrokerProcess) -> Iterator[Callable[[], RawClient]]:
    """Opens connections that are closed with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(RawClient(broker.host, broker.port))


@pytest.fixture(autouse=True)
def bystander(broker: BrokerProcess) -> Iterator[None]:
    """A client that is connected all the time and served before and after, on the same connection."""
    with RawClient(broker.host, broker.port) as client:
        assert_served(client)
        yield
        assert_served(client)
        assert "Unexpected error in" not in broker.log


def assert_served(client: RawClient) -> None:
    response = client.ask(12, MetadataRequest(topics=[]), MetadataResponse)
    assert len(response.brokers) == 1


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 1, 1) + b"x"


# -- one bad request ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 104_857_601),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
    ],
    ids=["http", "tls", "negative", "most negative", "largest", "above the limit", "empty", "too short"],
)
def test_what_is_no_request_closes_the_connection(
    broker: BrokerProcess, connect: Callable[[], RawClient], data: bytes
) -> None:
    before = broker.log.count("Closing the connection")
    client = connect()
    client.send(data)
    assert client.is_closed()
    wait_until(lambda: broker.log.count("Closing the connection") == before + 1, "one line in the log")


@pytest.mark.parametrize(
    ("key", "version"),
    [(-1, 0), (4, 0), (52, 0), (999, 0), (1, 3), (1, 19), (3, 14), (3, -1), (19, 1), (48, 2), (71, 1)],
)
def test_an_api_or_version_that_is_not_served_closes_the_connection(
    connect: Callable[[], RawClient], key: int, version: int
) -> None:
    client = connect()
    client.send_frame(header(key, version) + bytes(64))
    assert client.is_closed()


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_a_truncated_body_closes_the_connection(connect: Callable[[], RawClient], key: ApiKey) -> None:
    api = API_TABLE[key]
    for version in range(api.min_version, api.max_version + 1):
        whole = encode_request(RequestHeader(key, version, 1, "x"), api.request())[4:]
        body_at = 11 + (version >= api.flexible_since)
        if len(whole) <= body_at + 1:
            continue
        client = connect()
        client.send_frame(whole[: body_at + (len(whole) - body_at) // 2])
        assert client.is_closed(), f"{key.name} version {version}"


def test_a_request_with_records_that_claim_more_than_there_is_closes_the_connection(
    connect: Callable[[], RawClient],
) -> None:
    client = connect()
    body = (
        struct.pack(">hhih", -1, 1, 1000, 1)[:-2]
        + struct.pack(">ih", 1, 1)
        + b"t"
        + struct.pack(">iii", 1, 0, 2**31 - 1)
    )
    client.send_frame(header(ApiKey.PRODUCE, 3) + body)
    assert client.is_closed()


def test_huge_counts_in_small_requests_cost_nothing(
    broker: BrokerProcess, connect: Callable[[], RawClient]
) -> None:
    before = broker.rss_bytes
    for key, version in (
        (ApiKey.METADATA, 1),
        (ApiKey.METADATA, 9),
        (ApiKey.LIST_OFFSETS, 1),
        (ApiKey.FETCH, 4),
    ):
        client = connect()
        client.send_frame(header(key, version) + b"\x00" + b"\x7f\xff\xff\xff" * 8)
        assert client.is_closed()
    assert broker.rss_bytes - before < 20 * MB


def test_answers_to_earlier_requests_are_sent_before_the_connection_is_closed(
    connect: Callable[[], RawClient],
) -> None:
    client = connect()
    request = encode_request(RequestHeader(ApiKey.METADATA, 12, 1, "x"), MetadataRequest(topics=[]))
    client.send(request + request + struct.pack(">i", -1))
    client.receive()
    client.receive()
    assert client.is_closed()


def test_mutated_requests_never_harm_the_broker(broker: BrokerProcess) -> None:
    asked = os.environ.get("TIDELOG_SEED", "6006")
    seed = random.randrange(1 << 32) if asked == "random" else int(asked)
    print(f"seed {seed} (another: TIDELOG_SEED=<number>, or random)")
    chance = random.Random(seed)
    with RawClient(broker.host, broker.port) as client:
        topic = RawTopic(client, f"mutated-{seed}")
    pool = [
        bytearray(encode_request(RequestHeader(key, version, 1, "mutant"), API_TABLE[key].request()))
        for key in SERVED
        if key not in (ApiKey.CREATE_TOPICS, ApiKey.UPDATE_FEATURES)
        for version in range(API_TABLE[key].min_version, API_TABLE[key].max_version + 1)
    ]
    produce = topic.produce_request(batch(b"value"))
    pool += [bytearray(encode_request(RequestHeader(ApiKey.PRODUCE, 9, 1, "mutant"), produce))] * 20
    for _ in range(600):
        mutant = bytearray(chance.choice(pool))
        for _ in range(chance.randrange(1, 8)):
            mutant[chance.randrange(8, len(mutant))] = chance.randrange(256)
        with socket.create_connection((broker.host, broker.port), timeout=30) as sock:
            sock.sendall(mutant)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
    assert broker.alive


# -- floods -------------------------------------------------------------------------------------------


def test_half_frames_cost_what_has_arrived_and_not_what_was_announced(
    broker: BrokerProcess, connect: Callable[[], RawClient]
) -> None:
    before = broker.rss_bytes
    for _ in range(40):
        connect().send(struct.pack(">i", 100_000_000) + bytes(1000))
    with RawClient(broker.host, broker.port) as client:
        assert_served(client)
    assert broker.rss_bytes - before < 40 * MB


def test_a_trickle_of_bytes_is_put_together_while_others_are_served(
    broker: BrokerProcess, connect: Callable[[], RawClient]
) -> None:
    slow, other = connect(), connect()
    request = encode_request(RequestHeader(ApiKey.METADATA, 12, 1, "slow"), MetadataRequest(topics=[]))
    for byte in request:
        slow.send(bytes([byte]))
        assert_served(other)
    slow.receive()


def test_a_flood_of_connections_is_served_and_forgotten(broker: BrokerProcess) -> None:
    def descriptors() -> int:
        return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))

    before, memory = descriptors(), broker.rss_bytes
    sockets = [socket.create_connection((broker.host, broker.port)) for _ in range(400)]
    wait_until(lambda: descriptors() >= before + 400, "all are accepted")
    with RawClient(broker.host, broker.port) as client:
        assert_served(client)
    for each in sockets:
        each.close()
    wait_until(lambda: descriptors() <= before, "all are closed")
    assert broker.rss_bytes - memory < 30 * MB


def test_a_flood_of_garbage_is_logged_with_restraint(broker: BrokerProcess) -> None:
    before = len(broker.log.splitlines())
    for _ in range(500):
        with socket.create_connection((broker.host, broker.port)) as sock:
            sock.sendall(b"\xff\xff\xff\xffgarbage")
    with RawClient(broker.host, broker.port) as client:
        assert_served(client)
    assert len(broker.log.splitlines()) - before < 250


def test_a_peer_that_never_reads_is_not_buffered_for(broker: BrokerProcess) -> None:
    with RawClient(broker.host, broker.port) as client:
        for number in range(10):
            RawTopic(client, f"never-read-{number}", partitions=50)
        whole = client.ask(12, MetadataRequest(topics=None), MetadataResponse)
        assert sum(len(topic.partitions) for topic in whole.topics) >= 500
    before = broker.rss_bytes
    request = encode_request(RequestHeader(ApiKey.METADATA, 12, 1, "deaf"), MetadataRequest(topics=None))
    with socket.create_connection((broker.host, broker.port)) as deaf:
        deaf.setblocking(False)
        sent = quiet = 0
        while quiet < 20:
            try:
                sent += deaf.send(request * 100)
                quiet = 0
            except BlockingIOError:
                quiet += 1
                time.sleep(0.005)
            with RawClient(broker.host, broker.port) as client:
                assert_served(client)
        assert sent > 100 * len(request)
        assert broker.rss_bytes - before < 40 * MB


def test_a_peer_that_reads_slowly_gets_every_answer(broker: BrokerProcess) -> None:
    with RawClient(broker.host, broker.port) as client:
        name = "slow-reader"
        topic = RawTopic(client, name)
        records = batch(bytes(500_000))
        for _ in range(4):
            topic.produce(records)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        for offset in range(4):
            found = topic.fetch(offset=offset, partition_max_bytes=1)
            assert len(found.records or b"") == len(records)
        described = client.ask(
            12, MetadataRequest(topics=[MetadataRequestTopic(name=name)]), MetadataResponse
        )
        assert described.topics[0].error_code == 0


def test_requests_up_to_the_limit_are_taken_and_larger_ones_refused(tmp_path: Path) -> None:
    options = {"socket.request.max.bytes": "100000", "queued.max.request.bytes": "100000"}
    with BrokerProcess(tmp_path / "data", options=options) as broker:
        with RawClient(broker.host, broker.port) as client:
            topic = RawTopic(client, "limits")
            assert topic.produce(batch(bytes(90_000))).error_code == 0
            request: ProduceRequest = topic.produce_request(batch(bytes(100_000)))
            client.send_request(ApiKey.PRODUCE, 9, request)
            assert client.is_closed()
        assert "socket.request.max.bytes" in broker.log


def test_request_memory_is_shared_by_those_who_send_much(tmp_path: Path) -> None:
    options = {"queued.max.request.bytes": "1000000", "socket.request.max.bytes": "1000000"}
    with BrokerProcess(tmp_path / "data", options=options) as broker, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.host, broker.port)) for _ in range(8)]
        topic = RawTopic(clients[0], "shared-memory")
        request = encode_request(
            RequestHeader(ApiKey.PRODUCE, 9, 1, "x"), topic.produce_request(batch(bytes(800_000)))
        )
        for client in clients:
            client.send(request[:200_000])
        for client in clients:
            client.sock.setblocking(False)
        left = dict.fromkeys(clients, request[200000:])
        deadline = time.monotonic() + 30
        while left:
            assert time.monotonic() < deadline
            for client in list(left):
                try:
                    left[client] = left[client][client.sock.send(left[client]) :]
                except BlockingIOError:
                    continue
                if not left[client]:
                    del left[client]
                    client.sock.setblocking(True)
        for client in clients:
            client.receive()
