"""The brokers in the race, each on a fresh directory, and what is read off their processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat import toolchain
from tests.compat.apache_kafka import ApacheKafka
from tests.compat.broker_process import BrokerProcess, Tidelog
from tests.compat.mixed_cluster import ZooKeeperModeKafka

from benchmarks import wire

# Apache Kafka with the heap its own start script gives it; everything else as either broker ships.
APACHE_HEAP = "1g"


def available() -> tuple[list[str], str]:
    """The contestants that can run here, and why one cannot."""
    try:
        toolchain.classpath("kafka-4")
        toolchain.program("java")
    except toolchain.Missing as missing:
        return ["tidelog"], f"Apache Kafka stays out: {missing}"
    return ["tidelog", "apache"], ""


def make(name: str, directory: Path, options: Mapping[str, str] | None = None) -> BrokerProcess:
    if name == "tidelog":
        return Tidelog(directory, options)
    return ApacheKafka(directory, options, heap=APACHE_HEAP)


def make_cluster(name: str, directory: Path, zookeeper: str, brokers: int) -> list[BrokerProcess]:
    """Brokers 1, 2, … that coordinate through ZooKeeper; none is started."""
    kind = Tidelog if name == "tidelog" else ZooKeeperModeKafka
    made: list[BrokerProcess] = []
    for number in range(1, brokers + 1):
        options = {"zookeeper.connect": zookeeper, "broker.id": str(number)}
        broker = kind(directory / f"broker-{number}", options)
        broker.node_id = number
        made.append(broker)
    return made


@contextmanager
def scratch(root: Path) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def started(name: str, root: Path) -> Iterator[BrokerProcess]:
    """A running broker on an empty directory."""
    with scratch(root) as directory:
        broker = make(name, directory)
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()


def create_topic(broker: BrokerProcess, topic: str, partitions: int = 1) -> bytes:
    """Make a topic and wait until it serves; returns its id."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    deadline = time.monotonic() + 60
    topic_id = _topic_id(admin, topic, deadline)
    with wire.connect(broker.port) as connection:
        for partition in range(partitions):
            request = wire.fetch_request(topic_id, partition, 0, 1)
            while _error(wire.ask(connection, request)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{broker.label} does not serve {topic}-{partition}")
    return topic_id


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
