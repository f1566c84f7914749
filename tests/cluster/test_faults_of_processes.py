"""Real brokers and a real ZooKeeper: a disk that goes, a session that expires, a ZooKeeper that is away.

The tests of the same subjects with brokers in one process say more of the details; these show that signals,
kazoo and exit codes do their part.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.command_line import CommandLine
from tests.rigs.raw_client import RawClient

from tidelog import Producer
from tidelog.processes.zookeeper import ZooKeeperEnsemble
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

WAIT_S = 60.0
SESSION_MS = 2000
PARTITIONS = 6


class Cluster:
    """ZooKeeper and three brokers with two log directories each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.asleep: set[int] = set()
        self.ensemble = ZooKeeperEnsemble(directory / "zookeeper").start()
        options = {
            "zookeeper.connect": self.ensemble.connect,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "controlled.shutdown.retry.backoff.ms": "500",
            "replica.fetch.backoff.ms": "100",
        }
        self.brokers = {
            number: BrokerProcess(
                directory / str(number),
                options={**options, "broker.id": str(number)},
                log_dirs=[self.disk(number, "a"), self.disk(number, "b")],
            )
            for number in (1, 2, 3)
        }
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            self._wait_ready(broker)

    @staticmethod
    def _wait_ready(broker: BrokerProcess) -> None:
        deadline = time.monotonic() + WAIT_S
        while "Tidelog is ready on " not in broker.log:
            assert broker.alive, broker.log
            assert time.monotonic() < deadline, broker.log
            time.sleep(0.02)
        broker.port = int(broker.log.split("Tidelog is ready on ")[1].split()[0].rsplit(":")[-1])

    def disk(self, broker: int, name: str) -> Path:
        return self.directory / f"disk-{broker}{name}"

    @property
    def bootstrap(self) -> str:
        return ",".join(
            each.bootstrap
            for number, each in self.brokers.items()
            if each.alive and number not in self.asleep
        )

    def wait_for(self, topic: str, holds: Callable[[list[MetadataResponsePartition]], bool]) -> None:
        """Wait until a broker that is awake shows the partitions as they should be."""
        awake = next(
            each for number, each in self.brokers.items() if each.alive and number not in self.asleep
        )
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        deadline = time.monotonic() + WAIT_S
        with RawClient(awake.host, awake.port) as client:
            while True:
                (found,) = client.ask(9, request, MetadataResponse).topics
                if holds(found.partitions):
                    return
                assert time.monotonic() < deadline, found
                time.sleep(0.05)

    def wait_until_back(self) -> None:
        """Wait until every broker has its ZooKeeper again; until then metadata tell of what was before."""
        deadline = time.monotonic() + WAIT_S
        for broker in self.brokers.values():
            while " is connected" not in broker.log.rpartition(" is suspended")[2]:
                assert time.monotonic() < deadline, broker.log
                time.sleep(0.05)

    def write(self, topic: str, count: int, size: int = 10) -> None:
        with Producer(bootstrap_servers=self.bootstrap, acks="all") as producer:
            sent = [
                producer.send(topic, b"x" * size, partition=partition)
                for _ in range(count)
                for partition in range(PARTITIONS)
            ]
            for each in sent:
                each.result(timeout=WAIT_S)

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.alive:
                broker.kill()
        self.ensemble.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    try:
        yield running
    finally:
        running.close()


def in_sync(partitions: list[MetadataResponsePartition]) -> list[int]:
    """How many replicas are in sync, of each partition."""
    return sorted(len(each.isr_nodes) for each in partitions)


def test_a_broker_outlives_one_of_its_disks_a_long_sleep_and_a_zookeeper_that_is_away(
    cluster: Cluster,
) -> None:
    tidelog = CommandLine(cluster.bootstrap)
    create = (
        "topics",
        "create",
        "orders",
        "--partitions",
        str(PARTITIONS),
        "--config",
        "segment.bytes=1048576",
    )
    tidelog.ok(*create)
    cluster.write("orders", 1)

    # A sleep longer than the session: others lead meanwhile, and the broker comes back by itself.
    sleeper = cluster.brokers[2]
    sleeper.send_signal(signal.SIGSTOP)
    cluster.asleep = {2}
    cluster.wait_for("orders", lambda found: all(each.leader_id in (1, 3) for each in found))
    cluster.write("orders", 1)
    sleeper.send_signal(signal.SIGCONT)
    cluster.asleep = set()
    cluster.wait_for("orders", lambda found: in_sync(found) == [3] * PARTITIONS)
    assert "leads nothing until it is back" in sleeper.log
    assert tidelog("partitions", "elect", "--all-topics").returncode == 0

    # ZooKeeper is away: acknowledgements go on; it is back within the session, and nothing has changed.
    for server in cluster.ensemble.servers:
        server.kill()
    cluster.write("orders", 1)
    for server in cluster.ensemble.servers:
        server.launch()
        server.wait_until_serving()
    cluster.wait_until_back()
    # On a slow machine a session may end all the same: its broker has to be back before a disk goes.
    deadline = time.monotonic() + WAIT_S
    while (elected := tidelog("partitions", "elect", "--all-topics")).returncode != 0:
        assert time.monotonic() < deadline, elected
    cluster.wait_for("orders", lambda found: in_sync(found) == [3] * PARTITIONS)

    # A disk goes, and with it what the broker had there; the other disk's partitions stay where they are.
    cluster.disk(1, "a").rename(cluster.directory / "gone-a")
    cluster.write("orders", 150, size=10_000)
    cluster.wait_for("orders", lambda found: in_sync(found) == [2, 2, 2, 3, 3, 3])
    assert "is offline with 3 partitions" in cluster.brokers[1].log

    # The other one goes, too: the broker ends, and says why.
    cluster.disk(1, "b").rename(cluster.directory / "gone-b")
    cluster.write("orders", 150, size=10_000)
    assert cluster.brokers[1].wait(WAIT_S) == 1
    cluster.wait_for("orders", lambda found: in_sync(found) == [2] * PARTITIONS)
    cluster.write("orders", 1)

    # Without ZooKeeper a broker stops all the same, cleanly.
    for server in cluster.ensemble.servers:
        server.kill()
    cluster.brokers[3].send_signal(signal.SIGTERM)
    assert cluster.brokers[3].wait(WAIT_S) == 0
