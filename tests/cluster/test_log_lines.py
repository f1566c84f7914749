"""What operators do to a cluster every week is at most one warning in the log of each broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.cluster_process import ForegroundCommand, local_cluster
from tests.cluster.test_cluster_life import WAIT_S
from tests.integration.command_line import CommandLine
from tests.rigs.raw_client import RawClient

from tidelog import Consumer, Producer
from tidelog.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tidelog.processes.zookeeper import ZooKeeperEnsemble, ZooKeeperProcess
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

PARTITIONS = 100
# Says something of the machine, which others use too, and not of what was done to the cluster.
_HELD_UP = "The event loop was held up"


def warnings(directory: Path) -> dict[str, list[str]]:
    """The lines at WARNING and above, by broker."""
    return {
        log.stem: [
            line
            for line in log.read_text().splitlines()
            if re.match(r"\S+ \S+ (WARNING|ERROR|CRITICAL)", line) and _HELD_UP not in line
        ]
        for log in sorted((directory / "data" / "logs").glob("broker-*.log"))
    }


def repeated_lines(directory: Path) -> dict[str, dict[str, int]]:
    """Lines that come for one partition or attempt after the other, without their numbers, by broker.

    A log is made for each new partition, which is logged as by Kafka.
    """
    found: dict[str, dict[str, int]] = {}
    for log in sorted((directory / "data" / "logs").glob("broker-*.log")):
        kinds = Counter(
            re.sub(r"\d+", "N", line.partition("] ")[2])
            for line in log.read_text().splitlines()
            if " made the log of " not in line
        )
        found[log.stem] = {line: count for line, count in kinds.items() if count > PARTITIONS // 4}
    return found


@contextlib.contextmanager
def clients(bootstrap: str) -> Iterator[None]:
    """Clients that come again and again, as those of a busy cluster do, whatever they find."""
    ended = threading.Event()

    def come(port: int) -> None:
        while not ended.wait(0.01):
            # They are refused, or disconnected, while the broker stops or starts.
            with contextlib.suppress(OSError), RawClient("127.0.0.1", port) as client:
                client.ask(12, MetadataRequest(topics=None), MetadataResponse)

    ports = [int(each.rpartition(":")[2]) for each in bootstrap.split(",")]
    threads = [threading.Thread(target=come, args=(port,)) for port in ports]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def wait_until_well(tidelog: CommandLine) -> None:
    tidelog.wait_for(
        lambda state: state["partitions"] >= PARTITIONS and not state["troubled"], "cluster", "describe"
    )


@pytest.mark.slow
def test_killed_brokers_are_recovered_by_the_same_command_and_expected_events_are_one_line(
    tmp_path: Path,
) -> None:
    with local_cluster(tmp_path) as cluster:
        bootstrap = cluster.value("bootstrap.servers")
        tidelog = CommandLine(bootstrap)
        tidelog.ok("topics", "create", "orders", "--partitions", str(PARTITIONS))
        with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
            for sent in [producer.send("orders", b"%d" % number) for number in range(200)]:
                sent.result(timeout=WAIT_S)
        wait_until_well(tidelog)
        for broker in cluster.members(".properties"):
            broker.signal(signal.SIGKILL)
        deadline = time.monotonic() + WAIT_S
        while "no broker is running" not in cluster.complaints:
            assert time.monotonic() < deadline, cluster.complaints
            time.sleep(0.05)
        assert "run the same `tidelog cluster start` command again" in cluster.complaints
        # Their ZooKeeper ends with the command: no broker could start by itself.
        assert "tidelog start " not in cluster.complaints, cluster.complaints

    with local_cluster(tmp_path) as cluster:
        bootstrap = cluster.value("bootstrap.servers")
        tidelog = CommandLine(bootstrap)
        wait_until_well(tidelog)
        with Consumer(bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            read: set[bytes | None] = set()
            while len(read) < 200:
                read |= {record.value for record in consumer.poll(timeout=WAIT_S)}
        assert all(len(lines) <= 1 for lines in warnings(tmp_path).values()), warnings(tmp_path)
        before = warnings(tmp_path)
        with clients(bootstrap):
            assert cluster.stop() == 0
    for name, lines in warnings(tmp_path).items():
        assert len(lines) <= len(before[name]) + 1, lines


@pytest.mark.slow
def test_a_broker_that_is_killed_and_restarted_at_once_logs_no_warning_for_each_client(
    tmp_path: Path,
) -> None:
    with local_cluster(tmp_path) as cluster:
        bootstrap = cluster.value("bootstrap.servers")
        tidelog = CommandLine(bootstrap)
        tidelog.ok("topics", "create", "orders", "--partitions", str(PARTITIONS))
        wait_until_well(tidelog)
        address = bootstrap.split(",")[1]
        (broker,) = cluster.members("broker-2.properties")
        with clients(address):
            broker.signal(signal.SIGKILL)
            properties = tmp_path / "data" / "config" / "broker-2.properties"
            again = ForegroundCommand(
                tmp_path / "again", "start", str(properties), "--listen", address, "--log-format", "text"
            )
            with restarted(again):
                wait_until_well(tidelog)
                lines = [
                    line
                    for line in again.complaints.splitlines()
                    if re.match(r"\S+ \S+ (WARNING|ERROR|CRITICAL)", line) and _HELD_UP not in line
                ]
                assert len(lines) <= 1, lines
        for name, repeated in repeated_lines(tmp_path).items():
            assert repeated == {}, name


@contextlib.contextmanager
def restarted(command: ForegroundCommand) -> Iterator[None]:
    """Run ``tidelog start``, which says that it is ready in other words than ``cluster start``."""
    command.start(ready="Tidelog is ready on ")
    try:
        yield
    finally:
        command.stop()


def test_a_zookeeper_that_is_away_for_many_attempts_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_attempts(server: ZooKeeperProcess) -> None:
        with socket.create_server(("127.0.0.1", server.port)) as refusing:
            refusing.settimeout(WAIT_S)
            for _ in range(3):
                attempt, _ = refusing.accept()
                attempt.close()

    async def scenario(server: ZooKeeperProcess) -> None:
        store = await ZooKeeperStore.connect(server.address, session_timeout_ms=60_000)
        try:
            await store.create("/a")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(refuse_attempts, server)
            server.launch()
            await store.create("/b")
        finally:
            await store.close()

    with ZooKeeperEnsemble(tmp_path) as ensemble:
        (server,) = ensemble.servers
        asyncio.run(scenario(server))
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"The connection to ZooKeeper at {server.address} is lost")
