"""The parts of the chaos itself: replicas that differ are found, torn tails are what a crash leaves, the
network cuts one way and slows, and standstills are measured."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.cluster.faults import Fault, tear_tails
from tests.chaos.cluster.history import OK, SEND, Event
from tests.chaos.cluster.network import CLIENT, Network
from tests.chaos.cluster.replicas import CHECKPOINT, batches, differences
from tests.chaos.cluster.report import standstill_ms

from tidelog.records.record import Record, encode_batch

PARTITION = "orders-0"
QUIET_S = 0.2


def batch(offset: int, value: bytes) -> bytes:
    encoded = bytearray(encode_batch([Record(0, 0, None, value, ())]))
    encoded[0:8] = offset.to_bytes(8, "big")
    return bytes(encoded)


def replica(path: Path, *values: bytes, high_watermark: int) -> Path:
    (path / PARTITION).mkdir(parents=True)
    data = b"".join(batch(offset, value) for offset, value in enumerate(values))
    (path / PARTITION / "00000000000000000000.log").write_bytes(data)
    (path / CHECKPOINT).write_text(f"0\n1\norders 0 {high_watermark}\n")
    return path


def test_replicas_must_agree_below_the_high_watermark_and_nowhere_else(tmp_path: Path) -> None:
    one = replica(tmp_path / "1", b"a", b"b", b"c", high_watermark=2)
    two = replica(tmp_path / "2", b"a", b"b", b"x", high_watermark=3)
    assert differences({1: one, 2: two}) == []
    other = replica(tmp_path / "3", b"a", b"x", b"c", high_watermark=2)
    (found,) = differences({1: one, 3: other})
    assert "orders-0 on brokers 1 and 3, below 2: the batches at 1" in found
    short = replica(tmp_path / "4", b"a", high_watermark=2)
    (found,) = differences({1: one, 4: short})
    assert "one has no batch at 1" in found


def test_a_torn_tail_keeps_what_was_synced(tmp_path: Path) -> None:
    lost = 0
    for seed in range(20):
        path = replica(tmp_path / str(seed), *(b"%d" % n for n in range(50)), high_watermark=50)
        (path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 30\n")
        tear_tails(path, random.Random(seed))
        kept = batches(path / PARTITION)
        assert [each[0] for each in kept] == list(range(len(kept)))
        assert len(kept) >= 30
        lost += len(kept) < 50
    assert lost > 0


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.close()


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that answers what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(connection: socket.socket) -> None:
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)


def asked(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(65536)


@pytest.mark.parametrize("way", [(CLIENT, "broker-1"), ("broker-1", CLIENT)])
def test_nothing_passes_a_cut_until_it_is_healed(network: Network, echo: int, way: tuple[str, str]) -> None:
    port = network.proxy(echo, "broker-1", CLIENT)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        assert asked(connection, b"one") == b"one"
        network.cut([way])
        connection.sendall(b"two")
        connection.settimeout(QUIET_S)
        with pytest.raises(TimeoutError):
            connection.recv(10)
        connection.settimeout(30)
        network.heal([way])
        assert connection.recv(10) == b"two"
        network.cut([way])
        network.heal([way], reset=True)
        with contextlib.suppress(ConnectionError):
            while asked(connection, b"three"):
                continue


def test_only_the_broker_that_is_named_is_cut_off(network: Network, echo: int) -> None:
    port = network.proxy(echo, "broker-1")
    hello = {name: b"\0\0\0\x20\0\x12\0\3\0\0\0\1\0\x08" + name.encode() for name in ("broker-2", "broker-3")}
    network.cut([("broker-2", "broker-1")])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as cut,
        socket.create_connection(("127.0.0.1", port), timeout=30) as well,
    ):
        cut.sendall(hello["broker-2"])
        assert asked(well, hello["broker-3"]) == hello["broker-3"]
        cut.settimeout(QUIET_S)
        with pytest.raises(TimeoutError):
            cut.recv(10)


def test_a_slow_way_takes_its_time(network: Network, echo: int) -> None:
    port = network.proxy(echo, "broker-1", CLIENT)
    network.degrade([(CLIENT, "broker-1")], 0.2, None)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        begun_s = time.monotonic()
        assert asked(connection, b"one") == b"one"
        assert time.monotonic() - begun_s >= 0.2


def test_a_standstill_is_the_longest_silence_of_a_partition_around_a_fault() -> None:
    def acknowledged(time_ms: float, partition: int) -> Event:
        return Event(time_ms, "p", OK, SEND, "v", [("orders", partition, 0, "v")])

    events = [acknowledged(time_ms, 0) for time_ms in (0, 10, 900, 910, 5000)]
    events += [acknowledged(time_ms, 1) for time_ms in range(0, 5000, 100)]
    faults = [
        Fault("cut", "broker-1", 0, 5, 9),
        Fault("kill", "broker-1", 20, 100, 500),
        Fault("bounce", "broker-1", 600, 610, 620),
        Fault("pause", "broker-1", 950, 960, 970),
    ]
    assert standstill_ms(events, faults) == {"cut": 10, "kill": 890, "bounce": 100, "pause": 4090}
