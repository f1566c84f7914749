"""Peers that stop, vanish, dawdle or come in crowds: they cost bounded memory and nobody else's service."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.chaos.clients import WAIT_S, Admin, Writer, assert_kept, wait_until
from tests.chaos.conftest import StartBroker
from tests.chaos.crew import Crew, numbered, wait_for_more
from tests.rigs.raw_client import RawClient

from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import RequestHeader, encode_request, parse_response_header
from tidelog.wire.messages import api_versions, fetch, metadata, produce

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MB = 1024 * 1024
# What the allocator and the kernel may keep after the rush: far less than what was sent at the broker.
SLACK_BYTES = 40 * MB


@pytest.fixture
def broker(broker_at: StartBroker) -> BrokerProcess:
    broker = broker_at().start()
    Admin(broker.bootstrap).create_topic("busy", 2)
    # The handlers that are loaded after the start, and the first request's buffers, are not what is measured.
    wait_until("the broker to answer", lambda: Admin(broker.bootstrap).topics())
    return broker


def fetch_frame(topic: str, partition: int, offset: int, max_wait_ms: int = 0) -> bytes:
    wanted = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=32 * MB)
    request = fetch.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])]
    )
    return encode_request(RequestHeader(ApiKey.FETCH, 12, 7, "peer"), request)


def reset(sock: socket.socket) -> None:
    """Close with a reset in the place of a goodbye."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def fill(writer: Writer, total: int) -> None:
    size = 200_000
    for _ in range(total // size):
        writer.write([b"%d" % len(writer.written) + b"v" * size])


_READER = """
import socket, sys
sock = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30)
sock.sendall(bytes.fromhex(sys.argv[3]))
sock.recv(1000)
print("reading", flush=True)
while sock.recv(100_000):
    pass
"""


def test_a_consumer_that_is_stopped_in_the_middle_of_an_answer_harms_nobody(broker: BrokerProcess) -> None:
    writer = Writer(broker.bootstrap, "busy")
    fill(writer, 20 * MB)
    frame = fetch_frame("busy", 0, 0)
    before = broker.rss_bytes
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", _READER, broker.host, str(broker.port), frame.hex()],
            stdout=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"reading\n"
            reader.send_signal(signal.SIGSTOP)
        other = Writer(broker.bootstrap, "busy", 1)
        fill(other, 10 * MB)
        assert_kept(broker.bootstrap, other)
        assert_kept(broker.bootstrap, writer)
        assert broker.rss_bytes < before + SLACK_BYTES
    finally:
        for reader in readers:
            reader.kill()
            reader.wait(10)
            assert reader.stdout is not None
            reader.stdout.close()
    assert_kept(broker.bootstrap, writer)


def test_a_broker_stops_within_bounds_while_a_consumer_does_not_read(broker: BrokerProcess) -> None:
    fill(Writer(broker.bootstrap, "busy"), 20 * MB)
    with RawClient(broker.host, broker.port) as client:
        client.send(fetch_frame("busy", 0, 0))
        client.sock.recv(1000)
        assert broker.stop() == 0  # which waits for a minute, and the consumer never reads


def test_segments_deleted_under_a_slow_consumer_still_reach_it_whole(broker_at: StartBroker) -> None:
    """Its answer has begun; retention, and the files that come after, must not change its bytes."""
    broker = broker_at(log_retention_check_interval_ms="20", log_segment_delete_delay_ms="0").start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("short", 1, segment_bytes="16777216")
    writer = Writer(broker.bootstrap, "short")
    fill(writer, 14 * MB)
    first = list(writer.written)
    clients = [RawClient(broker.host, broker.port) for _ in range(3)]
    for client in clients:
        client.send(fetch_frame("short", 0, 0))
        assert client.sock.recv(1, socket.MSG_PEEK)
    fill(writer, 18 * MB)
    admin.set_topic_configs("short", {"retention.bytes": "1"})
    wait_until("the first segment to go", lambda: admin.offset("short", 0, -2) > 0)
    fill(writer, 4 * MB)
    for client in clients:
        frame = client.receive()
        client.close()
        _, pos = parse_response_header(ApiKey.FETCH, 12, frame)
        answer, _ = decode(fetch.FetchResponse, 12, frame, pos)
        records = memoryview(answer.responses[0].partitions[0].records or b"")
        read = [record.value for at, _ in iter_batches(records) for record in decode_batch(records, at)]
        assert read == first
    assert "Traceback" not in broker.log


def test_answers_that_pile_up_behind_one_that_waits_cost_the_memory_of_one(broker_at: StartBroker) -> None:
    """A produce request that waits for the disk holds back the answers to fetches that are read already."""
    broker = broker_at().start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("busy")
    admin.create_topic("synced", 1, flush_messages="1")
    fill(Writer(broker.bootstrap, "busy"), 20 * MB)
    batch = encode_batch([Record(0, int(time.time() * 1000), None, b"x")])
    data = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name="synced", partition_data=[data])
    request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    first = encode_request(RequestHeader(ApiKey.PRODUCE, 11, 1, "peer"), request)
    before = broker.peak_rss_bytes
    with RawClient(broker.host, broker.port) as client:
        client.send(first + fetch_frame("busy", 0, 0) * 20)
        sizes = [len(client.receive()) for _ in range(21)]
    assert sizes[0] < 100
    assert set(sizes[1:]) == {sizes[1]}
    assert sizes[1] > 19 * MB
    assert broker.peak_rss_bytes < before + 100 * MB


def test_peers_that_reset_anywhere_in_a_request_or_an_answer_leave_nothing_behind(
    broker: BrokerProcess, chance: random.Random
) -> None:
    writer = Writer(broker.bootstrap, "busy")
    fill(writer, 4 * MB)
    frames = [
        encode_request(RequestHeader(ApiKey.METADATA, 12, 1, "peer"), metadata.MetadataRequest(topics=None)),
        fetch_frame("busy", 0, 0),
        fetch_frame("busy", 0, len(writer.written), max_wait_ms=30_000),
        struct.pack(">i", 50 * MB) + bytes(300_000),
    ]
    files, memory = broker.open_files, broker.rss_bytes
    for _ in range(600):
        sock = socket.create_connection((broker.host, broker.port), timeout=60)
        frame = chance.choice(frames)
        sock.sendall(frame[: chance.randrange(len(frame) + 1)])
        if chance.random() < 0.3:
            sock.settimeout(0.002)
            with contextlib.suppress(TimeoutError):
                sock.recv(chance.randrange(1, 100_000))
        if chance.random() < 0.7:
            reset(sock)
        else:
            sock.close()
    wait_until("their descriptors to be closed", lambda: broker.open_files <= files + 2)
    assert broker.rss_bytes < memory + SLACK_BYTES
    assert_kept(broker.bootstrap, writer)
    assert "Traceback" not in broker.log


def test_thousands_of_connections_opened_and_dropped_leave_nothing_behind(broker: BrokerProcess) -> None:
    files, memory = broker.open_files, broker.rss_bytes
    writer = Writer(broker.bootstrap, "busy")
    with Crew([numbered(writer)]) as crew:
        held: list[socket.socket] = []
        for number in range(2000):
            held.append(socket.create_connection((broker.host, broker.port), timeout=60))
            if len(held) == 500:
                for sock in held:
                    (reset if number % 2 else socket.socket.close)(sock)
                held.clear()
        wait_for_more(crew, [writer], 10)
    writer.close()
    wait_until("their descriptors to be closed", lambda: broker.open_files <= files + 4)
    assert broker.rss_bytes < memory + SLACK_BYTES
    assert_kept(broker.bootstrap, writer)


def test_a_crowd_of_connections_leaves_enough_file_descriptors_for_the_logs(tmp_path: Path) -> None:
    """Out of descriptors, a broker could not roll a segment, and would take its disk for broken."""
    options = {"log.index.size.max.bytes": "240", "log.index.interval.bytes": "64"}
    with FewDescriptors(tmp_path / "data", options=options) as broker:
        Admin(broker.bootstrap).create_topic("busy")
        writer = Writer(broker.bootstrap, "busy")
        writer.write([b"before"])
        crowd = [socket.create_connection((broker.host, broker.port), timeout=60) for _ in range(300)]
        wait_until("the crowd to be too large", lambda: "accepts no connections until" in broker.log)
        for number in range(200):
            writer.write([b"%d" % number] * 3)
        for sock in crowd:
            sock.close()
        assert_kept(broker.bootstrap, writer)
        assert len(list((tmp_path / "data" / "busy-0").glob("*.log"))) > 3


class FewDescriptors(BrokerProcess):
    """A broker that may not open many files."""

    def _command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh", *super()._command()]


def test_half_open_connections_are_closed_when_idle(broker_at: StartBroker) -> None:
    broker = broker_at(connections_max_idle_ms="400").start()
    files = broker.open_files
    frame = encode_request(
        RequestHeader(ApiKey.API_VERSIONS, 0, 1, "peer"), api_versions.ApiVersionsRequest()
    )
    peers = [socket.create_connection((broker.host, broker.port), timeout=60) for _ in range(50)]
    for number, peer in enumerate(peers):
        peer.sendall(frame[: number % len(frame)])
    for peer in peers:
        assert peer.recv(1) == b""
        peer.close()
    wait_until("their descriptors to be closed", lambda: broker.open_files <= files + 2)


def test_connection_limits_turn_newcomers_away_and_recover(broker_at: StartBroker) -> None:
    broker = broker_at(max_connections_per_ip="20").start()
    peers = [RawClient(broker.host, broker.port) for _ in range(20)]
    for peer in peers:
        peer.request(ApiKey.API_VERSIONS, 0, api_versions.ApiVersionsRequest())
    for _ in range(50):
        with RawClient(broker.host, broker.port) as refused:
            assert refused.is_closed()
    for peer in peers[:10]:
        peer.close()
    wait_until("there to be room again", lambda: answers(broker))
    for peer in peers[10:]:
        peer.request(ApiKey.API_VERSIONS, 0, api_versions.ApiVersionsRequest())
        peer.close()


def answers(broker: BrokerProcess) -> bool:
    try:
        with RawClient(broker.host, broker.port) as client:
            client.request(ApiKey.API_VERSIONS, 0, api_versions.ApiVersionsRequest())
    except OSError:
        return False
    return True


def test_a_peer_that_sends_one_byte_at_a_time_is_served_and_holds_nobody_up(broker: BrokerProcess) -> None:
    frame = encode_request(
        RequestHeader(ApiKey.METADATA, 12, 1, "x" * 60), metadata.MetadataRequest(topics=None)
    )
    writer = Writer(broker.bootstrap, "busy")
    with Crew([numbered(writer)]) as crew, RawClient(broker.host, broker.port) as dawdler:
        for index in range(len(frame)):
            dawdler.send(frame[index : index + 1])
            time.sleep(0.01)  # the dawdling is the scenario
        assert len(dawdler.receive()) > 10
        wait_for_more(crew, [writer], 10)
    assert_kept(broker.bootstrap, writer)


def test_clients_go_on_after_the_broker_was_suspended(broker: BrokerProcess) -> None:
    writers = [Writer(broker.bootstrap, "busy", partition) for partition in (0, 1)]
    with Crew([numbered(writer) for writer in writers]) as crew:
        for _ in range(3):
            wait_for_more(crew, writers, 50)
            broker.send_signal(signal.SIGSTOP)
            time.sleep(0.7)  # the pause is the scenario
            broker.send_signal(signal.SIGCONT)
        wait_for_more(crew, writers, 50)
    for writer in writers:
        assert_kept(broker.bootstrap, writer)


def test_producers_with_short_timeouts_write_once_over_a_suspended_broker(broker: BrokerProcess) -> None:
    """Their requests lie in the broker's sockets when they give up and send again: the sequence tells."""
    writer = Writer(broker.bootstrap, "busy")
    with Crew([numbered(writer)]) as crew:
        for _ in range(3):
            wait_for_more(crew, [writer], 50)
            writer.limit(0.2)
            broker.send_signal(signal.SIGSTOP)
            time.sleep(0.7)  # the pause is the scenario
            # From here on every request must be answered, however busy the machine is.
            writer.limit(WAIT_S)
            broker.send_signal(signal.SIGCONT)
        wait_for_more(crew, [writer], 50)
    assert_kept(broker.bootstrap, writer)


def test_requests_too_large_for_the_request_memory_wait_their_turn(broker_at: StartBroker) -> None:
    limit = str(8 * MB)
    broker = broker_at(queued_max_request_bytes=limit, socket_request_max_bytes=limit).start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("large", 4, max_message_bytes=str(4 * MB))
    memory = broker.rss_bytes
    # Half-sent large requests hold the memory; they get nowhere and go.
    stuck = [socket.create_connection((broker.host, broker.port), timeout=60) for _ in range(20)]
    for sock in stuck:
        sock.sendall(struct.pack(">i", 7 * MB) + bytes(100_000))
    for sock in stuck:
        reset(sock)
    writers = [Writer(broker.bootstrap, "large", partition) for partition in range(4)]
    with Crew([numbered(writer, 3, MB) for writer in writers]) as crew:
        wait_for_more(crew, writers, 120)
    for writer in writers:
        assert_kept(broker.bootstrap, writer)
    assert broker.rss_bytes < memory + SLACK_BYTES
