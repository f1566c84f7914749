"""A cluster of Apache Kafka 3.9 brokers in ZooKeeper mode and of Tidelog brokers, for test_mixed_*.py.

    with MixedCluster(tmp_path) as cluster:
        cluster.kafka(1)
        cluster.tidelog(2)
        cluster.wait_in_sync({2}, [("topic", 0)])

Brokers are processes; what they agreed on is read from ZooKeeper. All waiting is for a condition, with one
bound.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from foreign import toolchain
from foreign.broker_process import BrokerProcess, Tidelog
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tidelog import Admin
from tidelog.client.admin.cluster_resources import FeatureUpdate, UpgradeType
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.processes.zookeeper import ZooKeeperEnsemble

WAIT_S = 60.0
JARS = "kafka-3.9"
TOOLS = "org.apache.kafka.tools."

Place = tuple[str, int]
ProcessT = TypeVar("ProcessT", bound=BrokerProcess)
OwnOptions = Mapping[str, str] | Callable[[str], Mapping[str, str]] | None
"""Options of one broker, or what makes them of its address."""

OPTIONS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "replica.lag.time.max.ms": "10000",
}

_JVM = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_LOGGING = ("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.showThreadName=false")


KAFKA, TIDELOG = 1, 2
"""The ids of the brokers of a :func:`pair`."""


class State(NamedTuple):
    """A partition's state node, and its version."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int
    version: int


class ZooKeeperModeKafka(BrokerProcess):
    """An Apache Kafka 3.9 broker that is coordinated by ZooKeeper."""

    label = "kafka"

    def __init__(self, directory: Path, options: Mapping[str, str], *, level: str = "warn") -> None:
        super().__init__(directory, options)
        self.level = level

    def prepare(self) -> None:
        settings = {
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data_dir),
            "num.network.threads": "2",
            "num.io.threads": "4",
            "background.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
            **self.options,
        }
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def command(self) -> list[str]:
        level = f"-Dorg.slf4j.simpleLogger.log.{{}}={self.level}"
        levels = [level.format(name) for name in ("kafka", "state.change.logger", "org.apache.kafka")]
        options = (*_JVM, *_LOGGING, *levels)
        return [*toolchain.java(JARS, *options), "kafka.Kafka", str(self.directory / "server.properties")]

    @property
    def complaints(self) -> list[str]:
        """Lines of its log that say WARN, ERROR or FATAL."""
        lines = self.output.read_text(errors="replace").splitlines()
        return [line for line in lines if re.search(r"\b(WARN|ERROR|FATAL)\b", line)]


class TidelogInPlace(Tidelog):
    """Tidelog with the server.properties of the Apache Kafka broker whose place it takes."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tidelog", "start", str(self.directory / "server.properties")]


class MixedCluster:
    """ZooKeeper and the brokers on it, by their ids."""

    def __init__(
        self,
        directory: Path,
        options: Mapping[str, str] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.directory = directory
        self.options = {**OPTIONS, **(options or {})}
        self.tls = tls
        self.brokers: dict[int, BrokerProcess] = {}
        self._ensemble = ZooKeeperEnsemble(directory / "zookeeper")

    def __enter__(self) -> MixedCluster:
        self._ensemble.start()
        self.store = KazooClient(self._ensemble.connect)
        self.store.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.store.stop()
        self.store.close()
        self._ensemble.stop()

    # Brokers

    def kafka(self, broker_id: int, options: OwnOptions = None) -> ZooKeeperModeKafka:
        """Start an Apache Kafka broker."""
        return self._start(broker_id, ZooKeeperModeKafka(*self._settings(broker_id)), options)

    def tidelog(self, broker_id: int, options: OwnOptions = None) -> Tidelog:
        """Start a Tidelog broker."""
        return self._start(broker_id, Tidelog(*self._settings(broker_id)), options)

    def _settings(self, broker_id: int) -> tuple[Path, dict[str, str]]:
        own = {"broker.id": str(broker_id), "zookeeper.connect": self._ensemble.connect}
        return self.directory / f"broker-{broker_id}", {**self.options, **own}

    def _start(self, broker_id: int, broker: ProcessT, options: OwnOptions = None) -> ProcessT:
        broker.node_id = broker_id
        broker.tls = self.tls
        broker.options.update((options(broker.address) if callable(options) else options) or {})
        self.brokers[broker_id] = broker
        broker.start()
        self.wait(lambda: self.store.exists(f"/brokers/ids/{broker_id}"), f"broker {broker_id} registers")
        return broker

    def replace(self, broker_id: int) -> Tidelog:
        """Stop an Apache Kafka broker in good order and start Tidelog with its file, on its directory."""
        old = self.brokers[broker_id]
        self.stop(broker_id)
        fresh = TidelogInPlace(old.directory, old.options)
        fresh.port = old.port
        return self._start(broker_id, fresh)

    @property
    def zookeeper(self) -> str:
        """The address of ZooKeeper."""
        return self._ensemble.connect

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers that run."""
        return ",".join(each.address for each in self.brokers.values() if each.process is not None)

    def stop(self, broker_id: int) -> None:
        """Stop a broker in good order; it has left the cluster when this returns."""
        code = self.brokers[broker_id].stop()
        assert code in (0, 143), self.brokers[broker_id].last_output()
        self.wait(
            lambda: not self.store.exists(f"/brokers/ids/{broker_id}"), f"broker {broker_id} leaves ZooKeeper"
        )

    # What ZooKeeper says

    def json(self, path: str) -> Any:
        """A node's content; None if there is no such node."""
        try:
            raw, _ = self.store.get(path)
        except NoNodeError:
            return None
        return json.loads(raw) if raw else None

    @property
    def controller(self) -> int | None:
        """The broker that is the controller."""
        node = self.json("/controller")
        return None if node is None else int(node["brokerid"])

    def state(self, place: Place) -> State:
        """Who leads a partition, and who is in sync."""
        raw, stat = self.store.get(f"/brokers/topics/{place[0]}/partitions/{place[1]}/state")
        node = json.loads(raw)
        return State(
            node["leader"], tuple(node["isr"]), node["leader_epoch"], node["controller_epoch"], stat.version
        )

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition of a topic."""
        node = self.json(f"/brokers/topics/{topic}")
        return {int(index): list(replicas) for index, replicas in sorted(node["partitions"].items())}

    def places(self, topics: Iterable[str] | None = None) -> list[Place]:
        """All partitions of some topics, or of all."""
        names = self.store.get_children("/brokers/topics") if topics is None else topics
        return [(topic, index) for topic in sorted(names) for index in self.replicas(topic)]

    # Waiting

    def wait(
        self, holds: Callable[[], object], what: str, explain: Callable[[], object] = lambda: ""
    ) -> None:
        """Wait until something is so; ``explain`` says how it is if that does not come about."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            for broker_id, broker in self.brokers.items():
                if broker.process is not None and broker.process.poll() is not None:
                    raise AssertionError(f"broker {broker_id} has ended:\n{broker.last_output()}")
            if time.monotonic() > deadline:
                outputs = "\n".join(f"-- {i}:\n{each.last_output()}" for i, each in self.brokers.items())
                raise AssertionError(f"not within {WAIT_S} s: {what} {explain()}\n{outputs}")
            time.sleep(0.1)

    def wait_in_sync(self, brokers: Collection[int], places: Iterable[Place]) -> None:
        """Wait until brokers are in sync with partitions."""
        wanted = list(places)
        self.wait(
            lambda: all(set(brokers) <= set(self.state(place).isr) for place in wanted),
            f"{brokers} in sync at {wanted}",
        )

    def wait_led_by(self, broker_id: int, places: Iterable[Place]) -> None:
        """Wait until a broker leads partitions."""
        wanted = list(places)
        self.wait(
            lambda: all(self.state(place).leader == broker_id for place in wanted),
            f"{broker_id} leads {wanted}",
        )

    def wait_all_in_sync(self, places: Iterable[Place] | None = None) -> None:
        """Wait until every replica of partitions is in sync."""
        wanted = list(self.places() if places is None else places)
        self.wait(
            lambda: all(
                set(self.replicas(topic)[index]) == set(self.state((topic, index)).isr)
                for topic, index in wanted
            ),
            f"all replicas in sync at {wanted}",
        )

    # Kafka's tools

    def tool(self, main: str, *arguments: str | Path) -> str:
        """Run one of Apache Kafka 3.9's tools against the cluster; it must end well."""
        command = toolchain.java(JARS, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        done = subprocess.run(
            [*command, main, "--bootstrap-server", self.bootstrap, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def reassign(self, replicas: Mapping[Place, list[int]], name: str = "reassignment") -> None:
        """kafka-reassign-partitions; the replicas are in place when this returns."""
        plan = self.directory / f"{name}.json"
        moves = [
            {"topic": topic, "partition": index, "replicas": wanted}
            for (topic, index), wanted in replicas.items()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        arguments = ("--reassignment-json-file", plan)
        self.tool(TOOLS + "reassign.ReassignPartitionsCommand", *arguments, "--execute")
        self.wait(lambda: self._is_reassigned(replicas), f"{name} is done")
        printed = self.tool(TOOLS + "reassign.ReassignPartitionsCommand", *arguments, "--verify")
        assert printed.count("is completed") == len(replicas), printed

    def _is_reassigned(self, replicas: Mapping[Place, list[int]]) -> bool:
        for (topic, index), wanted in replicas.items():
            node = self.json(f"/brokers/topics/{topic}")
            under_way = (node.get("adding_replicas"), node.get("removing_replicas"))
            if any(under_way) or node["partitions"][str(index)] != wanted:
                return False
        return True

    def elect(self, places: Iterable[Place], name: str = "election") -> None:
        """kafka-leader-election --election-type preferred."""
        plan = self.directory / f"{name}.json"
        partitions = [{"topic": topic, "partition": index} for topic, index in places]
        plan.write_text(json.dumps({"partitions": partitions}))
        self.tool(
            TOOLS + "LeaderElectionCommand",
            *("--election-type", "preferred", "--path-to-json-file", plan),
        )

    # Our client

    def lead(self, broker_id: int, places: Collection[Place]) -> None:
        """Have a broker lead partitions, as their preferred replica."""
        names = [TopicPartition(*place) for place in places]
        wanted = {
            (topic, index): sorted(self.replicas(topic)[index], key=lambda each: each != broker_id)
            for topic, index in places
        }
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            targets = {TopicPartition(*place): replicas for place, replicas in wanted.items()}
            for moved in admin.alter_partition_reassignments(targets):
                assert moved.error is None, moved
            self.wait(lambda: self._is_reassigned(wanted), f"{broker_id} is preferred for {places}")
            self.wait_in_sync([broker_id], places)
            for elected in admin.elect_leaders(names):
                assert elected.error is None or elected.error.code == ErrorCode.ELECTION_NOT_NEEDED, elected
        self.wait_led_by(broker_id, places)


@contextmanager
def pair(
    directory: Path, controller: str, options: Mapping[str, str] | None = None
) -> Iterator[MixedCluster]:
    """One broker of each kind; ``controller`` says which comes first and so is elected."""
    with MixedCluster(directory, options) as cluster:
        if controller == "kafka":
            cluster.kafka(KAFKA)
            cluster.tidelog(TIDELOG)
            assert cluster.controller == KAFKA
        else:
            without_features(cluster.tidelog(TIDELOG).address)
            cluster.kafka(KAFKA)
            assert cluster.controller == TIDELOG
        yield cluster


def without_features(address: str, **options: Any) -> None:
    """Kafka 3.9 with ZooKeeper knows no features and does not start where some are finalized."""
    with Admin(bootstrap_servers=address, **options) as admin:
        finalized = admin.describe_features().finalized
        down = {name: FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE) for name in finalized}
        assert down
        assert all(each.error is None for each in admin.update_features(down))
