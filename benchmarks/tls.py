"""The same load over TLS: throughput, broker CPU per GB, end-to-end latency, handshakes.

The load is that of *throughput* and *latency*. Brokers use the same ECDSA certificate (P-256) and choose
version and cipher; clients have no certificate. For handshakes, four Python clients connect without resuming
a session, request the API versions and disconnect. Clients need about as much CPU per handshake as brokers,
so both limit the rate; the CPU per handshake is the broker's.
"""

from __future__ import annotations

import socket
import ssl
import statistics
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from foreign.broker_process import BrokerProcess, free_port

from benchmarks import apache, latency, rdkafka_load, wire
from benchmarks.contestants import create_topic, make, scratch
from benchmarks.figures import Figures
from benchmarks.request_cost import warm_up
from tidelog.cli.certs.authority import Authority

NAME = "TLS"
PARTITIONS = 2
SIZES = (100, 1000)
HANDSHAKERS = 4
_API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
_TIMEOUT_S = 60


class TlsBroker(NamedTuple):
    """A broker that runs, and its listener with TLS."""

    process: BrokerProcess
    port: int
    authority: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def security(self) -> Mapping[str, str]:
        """What librdkafka is told."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.authority)}


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with started(contestant, root) as broker:
        warm_up(broker.process)
        total = (60 if quick else 600) * 1_000_000
        for size in SIZES:
            _throughput(broker, figures, size, total // size)
        _latency(broker, figures, 500 if quick else 5000)
        _handshakes(broker, figures, 200 if quick else 2000)
        rss = broker.process.rss_bytes() / 1e6
        figures.add(NAME, contestant, "RSS after this load", rss, "MB", "lower")


@contextmanager
def started(name: str, root: Path) -> Iterator[TlsBroker]:
    """A running broker on an empty directory, with a listener for TLS beside the plain one."""
    with scratch(root) as directory:
        authority = Authority.create("benchmarks")
        issued = authority.issue("broker", ("localhost", "127.0.0.1"))
        pair, trust = directory / "broker.pem", directory / "authority.pem"
        pair.write_text(issued.key_pem + issued.certificate_pem)
        trust.write_text(authority.own.certificate_pem)
        process = make(name, directory / "broker")
        port = free_port()
        process.options |= _options(process, port, pair)
        process.start()
        try:
            yield TlsBroker(process, port, trust)
        finally:
            process.kill()


def _options(process: BrokerProcess, port: int, pair: Path) -> dict[str, str]:
    """What a broker cannot speak TLS without."""
    clients = f"PLAINTEXT://{process.address},SSL://127.0.0.1:{port}"
    options = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pair)}
    if isinstance(process, apache.KRaftKafka):
        return {
            **options,
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{process.controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        }
    return {**options, "listeners": clients}


def _throughput(broker: TlsBroker, figures: Figures, size: int, count: int) -> None:
    process, topic = broker.process, f"records-{size}"
    create_topic(process, topic, PARTITIONS)
    security = broker.security
    rdkafka_load.produce(broker.address, topic, PARTITIONS, size, count // 10, security=security)
    before = process.cpu_seconds()
    sent, seconds = rdkafka_load.produce(broker.address, topic, PARTITIONS, size, count, security=security)
    _report(process, figures, f"produce {size} B", size, sent, seconds, before)
    before = process.cpu_seconds()
    received, seconds = rdkafka_load.consume(broker.address, topic, PARTITIONS, count, security)
    _report(process, figures, f"consume {size} B", size, received, seconds, before)


def _report(
    process: BrokerProcess, figures: Figures, name: str, size: int, count: int, seconds: float, before: float
) -> None:
    used = process.cpu_seconds() - before
    figures.add(NAME, process.label, f"{name}, data", count * size / seconds / 1e6, "MB/s", "higher")
    figures.add(NAME, process.label, f"{name}, broker CPU", used / (count * size / 1e9), "s/GB", "lower")


def _latency(broker: TlsBroker, figures: Figures, count: int) -> None:
    samples = latency.librdkafka(broker.process, count, broker.address, broker.security)
    cuts = statistics.quantiles(samples, n=100)
    label = broker.process.label
    figures.add(NAME, label, "end to end, p50", cuts[49] * 1e3, "ms", "lower")
    figures.add(NAME, label, "end to end, p99", cuts[98] * 1e3, "ms", "lower")


def _handshakes(broker: TlsBroker, figures: Figures, count: int) -> None:
    context = ssl.create_default_context(cafile=str(broker.authority))

    def connect(_: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", broker.port), _TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(_API_VERSIONS)
            size = int.from_bytes(wire.read_exactly(client, 4), "big")
            wire.read_exactly(client, size)

    with ThreadPoolExecutor(HANDSHAKERS) as pool:
        list(pool.map(connect, range(count // 5)))
        before, began_s = broker.process.cpu_seconds(), time.perf_counter()
        list(pool.map(connect, range(count)))
        seconds = time.perf_counter() - began_s
    used = broker.process.cpu_seconds() - before
    label = broker.process.label
    figures.add(NAME, label, "handshakes", count / seconds, "1/s", "higher")
    figures.add(NAME, label, "CPU per handshake", used / count * 1e3, "ms", "lower")
