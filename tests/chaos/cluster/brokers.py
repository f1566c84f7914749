"""Three brokers and their ZooKeeper as chaos needs them: processes that can be harmed, a network in between
that can be cut, and the truth about who leads, read from ZooKeeper itself.

Each broker has a listener for clients and one for brokers, so that the two kinds of links can be cut apart.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from tests.chaos.cluster.network import CLIENT, ZOOKEEPER, Network

from tidelog import Admin, NewTopic
from tidelog.errors import TidelogError
from tidelog.processes.watchdog import end_with_me
from tidelog.processes.zookeeper import ZooKeeperEnsemble
from tidelog.testing.broker_process import STRICT_LOOP, BrokerProcess
from tidelog.testing.reserved_port import ReservedPort

WAIT_S = 120.0
SESSION_MS = 4000
_LOOK_S = 0.05

OPTIONS = {
    **STRICT_LOOP,
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    # A broker that is started while it is cut off waits; it would give up by default.
    "zookeeper.connection.timeout.ms": "60000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "replica.lag.time.max.ms": "4000",
    "controller.socket.timeout.ms": "4000",
    "replica.socket.timeout.ms": "4000",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.max.retries": "6",
    "controlled.shutdown.retry.backoff.ms": "500",
    "leader.imbalance.check.interval.seconds": "10",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


class State(NamedTuple):
    """What ZooKeeper has of a partition."""

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


def name_of(broker_id: int) -> str:
    """How the network knows a broker."""
    return f"broker-{broker_id}"


def wait_for(what: Callable[[], str], holds: Callable[[], bool], patience_s: float = WAIT_S) -> None:
    """Wait until something holds; ``what`` says what does not, if it never does."""
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience_s:.0f} s: {what()}")
        time.sleep(_LOOK_S)


class ChaosCluster:
    """Made, started and ended by a ``with`` block; brokers have the ids 1, 2, 3 and so on."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        zookeeper_servers: int = 1,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self._count = brokers
        self.network = Network()
        self.ensemble = ZooKeeperEnsemble(directory / "zookeeper", servers=zookeeper_servers)
        self.brokers: dict[int, BrokerProcess] = {}
        self._options = {**OPTIONS, **(options or {})}
        self._zookeeper: KazooClient | None = None
        self._client_ports: list[int] = []
        # Brokers come back to theirs.
        self._ports = contextlib.ExitStack()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._client_ports)

    def client_port(self, broker_id: int) -> int:
        """Where clients reach one broker."""
        return self._client_ports[broker_id - 1]

    def __enter__(self) -> ChaosCluster:
        try:
            self.ensemble.start()
            for broker_id in range(1, 1 + self._count):
                self.brokers[broker_id] = self._broker(broker_id)
            for broker in self.brokers.values():
                broker.launch()
                end_with_me(broker.pid)
            self._zookeeper = KazooClient(self.ensemble.connect, timeout=10.0)
            self._zookeeper.start(timeout=30)
            self.wait_registered()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            if broker.alive:
                broker.send_signal(signal.SIGCONT)
                broker.kill()
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper.close()
        self.ensemble.stop()
        self.network.close()
        self._ports.close()
        # Shown with a failure, which they may explain.
        print(*(line for broker in self.brokers.values() for line in broker.hold_ups), sep="\n")

    def _broker(self, broker_id: int) -> BrokerProcess:
        name = name_of(broker_id)
        client, internal = (self._ports.enter_context(ReservedPort()).port for _ in range(2))
        client_proxy = self.network.proxy(client, name, CLIENT)
        internal_proxy = self.network.proxy(internal, name)
        zookeeper = [
            f"127.0.0.1:{self.network.proxy(server.port, ZOOKEEPER, name)}"
            for server in self.ensemble.servers
        ]
        self._client_ports.append(client_proxy)
        return BrokerProcess(
            self.directory / name,
            options={
                **self._options,
                "broker.id": str(broker_id),
                "zookeeper.connect": ",".join(zookeeper),
                "listeners": f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}",
                "advertised.listeners": f"CLIENT://127.0.0.1:{client_proxy},INTERNAL://127.0.0.1:{internal_proxy}",
            },
        )

    def launch(self, broker_id: int) -> None:
        """Start a broker that has ended."""
        broker = self.brokers[broker_id]
        if not broker.alive:
            broker.launch()
            end_with_me(broker.pid)

    # What ZooKeeper knows

    def controller(self) -> int:
        """The id of the controller; -1 while there is none."""
        raw = self._read("/controller")
        return -1 if raw is None else int(json.loads(raw)["brokerid"])

    def state(self, topic: str, partition: int) -> State:
        """Who leads a partition and who is in sync."""
        raw = self._read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        assigned = self.assignment(topic).get(partition, ())
        if raw is None:
            return State(-1, (), assigned)
        known = json.loads(raw)
        return State(known["leader"], tuple(known["isr"]), assigned)

    def assignment(self, topic: str) -> dict[int, tuple[int, ...]]:
        """Which brokers the partitions of a topic are on, and while they move, are going to be."""
        raw = self._read(f"/brokers/topics/{topic}")
        partitions = json.loads(raw)["partitions"] if raw is not None else {}
        return {int(partition): tuple(replicas) for partition, replicas in partitions.items()}

    def unfinished(self) -> list[str]:
        """Deletions and reassignments that are under way."""
        found = [f"deletion of {topic}" for topic in self._children("/admin/delete_topics")]
        for topic in self._children("/brokers/topics"):
            raw = self._read(f"/brokers/topics/{topic}")
            node = json.loads(raw) if raw is not None else {}
            if node.get("adding_replicas") or node.get("removing_replicas"):
                found.append(f"reassignment of {topic}")
        return found

    def registered(self) -> set[int]:
        """The brokers that have a session."""
        return {int(each) for each in self._children("/brokers/ids")}

    def partitions(self) -> list[tuple[str, int]]:
        """All partitions of all topics."""
        return [
            (topic, int(partition))
            for topic in self._children("/brokers/topics")
            for partition in self._children(f"/brokers/topics/{topic}/partitions")
        ]

    def troubled(self) -> list[str]:
        """The partitions that lack a leader or replicas in sync."""
        states = {each: self.state(*each) for each in self.partitions()}
        return [
            f"{topic}-{partition}: leader {state.leader}, in sync {list(state.isr)}"
            for (topic, partition), state in states.items()
            if state.leader < 0 or len(state.isr) < len(state.replicas)
        ]

    def wait_registered(self) -> None:
        wait_for(
            lambda: f"all brokers are registered, {self.registered()} are",
            lambda: len(self.registered()) == self._count,
        )

    def wait_in_sync(self, patience_s: float = WAIT_S) -> None:
        """All brokers are there and all replicas in sync."""
        wait_for(
            lambda: f"all in sync, but {self.registered()} registered, {self.troubled()}, {self._unready()}",
            lambda: not self._unready() and len(self.registered()) == self._count and not self.troubled(),
            patience_s,
        )

    def _unready(self) -> list[str]:
        """Brokers that have ended by themselves, or are still coming up: what ZooKeeper has may be of their
        last life."""
        for name, broker in self.brokers.items():
            assert broker.alive, f"broker {name} has ended:\n{broker.log[-3000:]}"
        return [f"broker {name} comes up" for name, broker in self.brokers.items() if not broker.is_ready]

    def create_topic(self, name: str, partitions: int) -> None:
        """Three replicas of each."""
        deadline = time.monotonic() + WAIT_S
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            while True:
                try:
                    for result in admin.create_topics([NewTopic(name, partitions=partitions)]):
                        result.raise_for_error()
                    return
                except TidelogError:
                    # Brokers that have just registered may not know of each other yet.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_LOOK_S)

    def _read(self, path: str) -> bytes | None:
        assert self._zookeeper is not None
        with contextlib.suppress(KazooException, KazooTimeoutError):
            return bytes(self._zookeeper.get(path)[0])
        return None

    def _children(self, path: str) -> list[str]:
        assert self._zookeeper is not None
        with contextlib.suppress(KazooException, KazooTimeoutError):
            return list(self._zookeeper.get_children(path))
        return []
