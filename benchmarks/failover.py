"""How long producing stops when the leader of a partition is killed, is killed while it is the controller, or
shuts down cleanly.

Three brokers, three replicas, and the ZooKeeper of Kafka 3.9, all at defaults. After a kill, ZooKeeper first
has to expire the broker's session (``zookeeper.session.timeout.ms``, 18 s for all contestants). The figure is
the time from that expiry to the producer's next acknowledgement.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from foreign.broker_process import BrokerProcess
from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent

from benchmarks import failover_probe
from benchmarks.contestants import BROKERS, cluster
from benchmarks.failover_probe import BOUND_S, Probe
from benchmarks.figures import Figures
from tidelog.client import Admin, NewTopic, TopicPartition
from tidelog.client.metadata import PartitionMetadata

NAME = "failover"
TOPIC = "failover"


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with cluster(contestant, root) as running, ExitStack() as stack:
        addresses = running.addresses
        zookeeper = KazooClient(running.zookeeper)
        zookeeper.start(BOUND_S)
        stack.callback(zookeeper.close)
        stack.callback(zookeeper.stop)
        admin = stack.enter_context(Admin(bootstrap_servers=addresses))
        _create_topic(admin)
        probes = [
            stack.enter_context(failover_probe.librdkafka(addresses, TOPIC)),
            stack.enter_context(failover_probe.ours(addresses, TOPIC)),
            stack.enter_context(failover_probe.impatient(addresses, TOPIC)),
        ]
        race = _Race(contestant, list(running.brokers), admin, zookeeper, probes, figures)
        race.leader_killed()
        if not quick:
            race.controller_killed()
        race.leader_stopped()
        refused = sum(probe.refused for probe in probes)
        figures.add(NAME, contestant, "records given up by the producers", refused, "records", "lower")


class _Race:
    """One cluster, its producers, and what is done to it. Broker n leads partition n - 1 by preference."""

    def __init__(
        self, contestant: str, brokers: list[BrokerProcess], admin: Admin, zookeeper: KazooClient,
        probes: list[Probe], figures: Figures,
    ) -> None:  # fmt: skip
        self._contestant = contestant
        self._brokers = brokers
        self._admin = admin
        self._zookeeper = zookeeper
        self._probes = probes
        self._figures = figures

    def leader_killed(self) -> None:
        controller = self._controller()
        self._kill("leader killed", next(each for each in self._brokers if each is not controller))

    def controller_killed(self) -> None:
        self._kill("leader killed, the controller", self._controller())

    def _kill(self, what: str, victim: BrokerProcess) -> None:
        self._produce_to(victim)
        expired = threading.Event()
        moments: list[float] = []

        def gone(event: WatchedEvent) -> None:
            moments.append(time.monotonic())
            expired.set()

        self._zookeeper.exists(f"/brokers/ids/{victim.node_id}", watch=gone)
        victim.kill()
        if not expired.wait(BOUND_S):
            raise TimeoutError(f"the session of broker {victim.node_id} did not expire within {BOUND_S} s")
        for probe in self._probes:
            seconds = probe.first_after(moments[0]) - moments[0]
            self._add(f"{what}: detection to acknowledgement, {probe.label}", seconds)
        victim.start()

    def leader_stopped(self) -> None:
        victim = self._controller()
        self._produce_to(victim)
        started_at = time.monotonic()
        victim.stop()
        stopped_at = time.monotonic()
        for probe in self._probes:
            probe.first_after(stopped_at)
            self._add(
                f"leader stopped: longest time without acknowledgement, {probe.label}",
                probe.longest_gap(started_at),
            )

    def _add(self, name: str, seconds: float) -> None:
        self._figures.add(NAME, self._contestant, name, seconds, "s", "lower")

    def _controller(self) -> BrokerProcess:
        _wait(lambda: self._admin.describe_cluster().controller is not None, "a controller")
        node = self._admin.describe_cluster().controller
        assert node is not None
        return self._brokers[node.id - 1]

    def _produce_to(self, victim: BrokerProcess) -> None:
        """Let the broker lead its partition, all replicas in sync, and the producers write there."""
        partition = TopicPartition(TOPIC, victim.node_id - 1)
        _wait(lambda: _in_sync(self._admin), "all replicas in sync")

        def leads() -> bool:
            self._admin.elect_leaders([partition])
            return _partitions(self._admin)[partition.partition].leader == victim.node_id

        _wait(leads, f"broker {victim.node_id} leading {partition}")
        for probe in self._probes:
            probe.partition = partition.partition
            probe.first_after(time.monotonic())


def _create_topic(admin: Admin) -> None:
    order = list(range(1, BROKERS + 1))
    topic = NewTopic(
        TOPIC,
        assignments={index: order[index:] + order[:index] for index in range(BROKERS)},
        configs={"min.insync.replicas": "2"},
    )
    _wait(lambda: len(admin.describe_cluster().nodes) == BROKERS, f"{BROKERS} brokers")
    for result in admin.create_topics([topic]):
        if result.error is not None:
            raise result.error
    _wait(lambda: _in_sync(admin), "all replicas in sync")


def _in_sync(admin: Admin) -> bool:
    partitions = _partitions(admin)
    return len(partitions) == BROKERS and all(len(each.isr) == BROKERS for each in partitions)


def _partitions(admin: Admin) -> tuple[PartitionMetadata, ...]:
    """None while the broker that was asked has not heard of the topic."""
    return admin.describe_topics([TOPIC])[TOPIC].partitions


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the cluster has not reached in {BOUND_S} s: {what}")
        time.sleep(0.1)
