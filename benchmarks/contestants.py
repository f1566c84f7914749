"""The brokers in the race, each on a fresh directory, alone or as a cluster of three, and topics on them.

A contestant is known by a short name, which is the label of its processes: `tidelog`, `apache` (Apache Kafka
4.3, KRaft), `apache-3.9` (ZooKeeper; in clusters alone). All of them run with what they ship.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from foreign import toolchain
from foreign.broker_process import BrokerProcess, Tidelog

from benchmarks import apache, wire
from benchmarks.figures import OLD_PEER, OURS, PEER
from tidelog.processes.zookeeper import ZooKeeperEnsemble

BROKERS = 3
VERSIONS = {PEER: "Apache Kafka 4.3.1 (KRaft)", OLD_PEER: "Apache Kafka 3.9.2 (ZooKeeper)"}
READY_TIMEOUT_S = 60.0


def available() -> tuple[set[str], str]:
    """The contestants that can run here, and why others cannot."""
    try:
        toolchain.program("java")
        toolchain.classpath(apache.KRAFT_JARS)
        toolchain.classpath(apache.ZOOKEEPER_JARS)
    except toolchain.Missing as missing:
        return {OURS}, f"Apache Kafka stays out: {missing}"
    return {OURS, PEER, OLD_PEER}, ""


def make(name: str, directory: Path, options: Mapping[str, str] | None = None) -> BrokerProcess:
    """A lone broker, not started."""
    kinds: dict[str, type[BrokerProcess]] = {OURS: Tidelog, PEER: apache.KRaftKafka}
    return kinds[name](directory, options)


@contextmanager
def scratch(root: Path) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def started(name: str, root: Path, options: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    """A running broker on an empty directory."""
    with scratch(root) as directory:
        broker = make(name, directory, options)
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()


class Cluster:
    """Three brokers that run, numbered from 1, and the ZooKeeper that coordinates them, if one does."""

    def __init__(self, name: str, brokers: Sequence[BrokerProcess], zookeeper: str) -> None:
        self.name = name
        self.brokers = brokers
        self.zookeeper = zookeeper

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def cpu_seconds(self) -> float:
        """CPU of all brokers together."""
        return sum(broker.cpu_seconds() for broker in self.brokers)


@contextmanager
def cluster(name: str, root: Path) -> Iterator[Cluster]:
    """Three brokers on empty directories, everything at its default."""
    with scratch(root) as directory, ExitStack() as stack:
        zookeeper = "" if name == PEER else stack.enter_context(_zookeeper(directory / "zookeeper"))
        brokers = _make_brokers(name, directory, zookeeper)
        for broker in brokers:
            stack.callback(broker.kill)
        # At once, for controllers of KRaft do not serve before there is a quorum of them.
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(lambda broker: broker.start(), brokers))
        running = Cluster(name, brokers, zookeeper)
        _wait_for_brokers(running)
        yield running


def _make_brokers(name: str, directory: Path, zookeeper: str) -> list[BrokerProcess]:
    brokers: list[BrokerProcess] = []
    for number in range(1, BROKERS + 1):
        place = directory / f"broker-{number}"
        options = {"zookeeper.connect": zookeeper, "broker.id": str(number)}
        if name == OURS:
            brokers.append(Tidelog(place, options))
        elif name == OLD_PEER:
            brokers.append(apache.ZooKeeperKafka(place, options))
        else:
            brokers.append(apache.KRaftKafka(place))
        brokers[-1].node_id = number
    voters = [broker for broker in brokers if isinstance(broker, apache.KRaftKafka)]
    for voter in voters:
        voter.voters, voter.cluster_id = voters, voters[0].cluster_id
    return brokers


@contextmanager
def _zookeeper(directory: Path) -> Iterator[str]:
    """Kafka's own for every contestant; where Kafka's jars are missing the one that Tidelog's tests have."""
    try:
        toolchain.classpath(apache.ZOOKEEPER_JARS)
    except toolchain.Missing:
        with ZooKeeperEnsemble(directory) as ensemble:
            yield ensemble.connect
        return
    server = apache.ZooKeeper(directory)
    server.start()
    try:
        yield server.address
    finally:
        server.kill()


def _wait_for_brokers(running: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": running.addresses})
    deadline = time.monotonic() + READY_TIMEOUT_S
    while len(admin.list_topics(timeout=READY_TIMEOUT_S).brokers) < BROKERS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{running.name} has not {BROKERS} brokers after {READY_TIMEOUT_S} s")
        time.sleep(0.1)


def create_topic(
    broker: BrokerProcess, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> bytes:
    """Make a topic with one replica and wait until it serves; returns its id."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = NewTopic(topic, partitions, 1, config=dict(configs or {}))
    admin.create_topics([wanted])[topic].result(60)
    deadline = time.monotonic() + READY_TIMEOUT_S
    topic_id = _topic_id(admin, topic, deadline)
    with wire.connect(broker.port) as connection:
        for partition in range(partitions):
            request = wire.fetch_request(topic_id, partition, 0, 1)
            while _error(wire.ask(connection, request)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{broker.label} does not serve {topic}-{partition}")
    return topic_id


def create_replicated_topic(
    running: Cluster, topic: str, assignment: list[list[int]], configs: Mapping[str, str]
) -> None:
    """Make a topic with the replicas of each partition, the leader first; wait until all are in sync."""
    admin = AdminClient({"bootstrap.servers": running.addresses})
    wanted = NewTopic(topic, len(assignment), replica_assignment=assignment, config=dict(configs))
    admin.create_topics([wanted])[topic].result(60)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        found = admin.list_topics(topic, timeout=READY_TIMEOUT_S).topics[topic].partitions
        if [sorted(found[index].isrs) for index in sorted(found)] == [sorted(each) for each in assignment]:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{running.name} has not all replicas of {topic} in sync")
        time.sleep(0.05)


def topic_id(address: str, topic: str) -> bytes:
    """The id of a topic that is there."""
    admin = AdminClient({"bootstrap.servers": address})
    return _topic_id(admin, topic, time.monotonic() + READY_TIMEOUT_S)


def _topic_id(admin: AdminClient, topic: str, deadline: float) -> bytes:
    """Kafka may answer the creation of a topic before it knows the topic."""
    while True:
        try:
            found = admin.describe_topics(TopicCollection([topic]))[topic].result(60).topic_id
            return wire.topic_id_bytes(str(found).translate(str.maketrans("+/", "-_", "=")))
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _error(answer: bytes) -> int:
    if len(answer) < wire.FETCH_ERROR_AT + 2:
        return -1
    return int.from_bytes(answer[wire.FETCH_ERROR_AT : wire.FETCH_ERROR_AT + 2], "big")
