"""A cluster in one process: machines, the network between them, ZooKeeper, and a seed that decides.

``ClusterWorld`` starts, kills, pauses and separates; what clients do is in ``clients``, what must hold in
``invariants``, and ``storm`` lets all of it happen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.simulation.cluster.ensemble import SimEnsemble
from tests.simulation.cluster.machine import BrokerLife, Machine
from tests.simulation.cluster.network import SimNetwork
from tests.simulation.cluster.trace import Trace
from tests.simulation.virtual_loop import VirtualLoop

from tidelog.broker.app import Broker
from tidelog.controller.cluster.controller import ClusterController
from tidelog.ids import TopicPartition, Uuid
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import PartitionState, TopicAssignment
from tidelog.replication.partition import Partition

SESSION_TIMEOUT_S = 2.0

OPTIONS = {
    "auto.create.topics.enable": "false",
    "controlled.shutdown.max.retries": "2",
    "controlled.shutdown.retry.backoff.ms": "200",
    "controller.socket.timeout.ms": "1500",
    "default.replication.factor": "3",
    "leader.imbalance.check.interval.seconds": "4",
    "log.cleaner.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.flush.start.offset.checkpoint.interval.ms": "2000",
    "log.index.size.max.bytes": "4096",
    "log.retention.check.interval.ms": "1500",
    "log.segment.delete.delay.ms": "500",
    "min.insync.replicas": "2",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "400",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "2500",
    "replica.socket.timeout.ms": "1500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.max.timeout.ms": "60000",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
}


class Held(NamedTuple):
    """A replica that a broker has open, and the life that it belongs to."""

    life: BrokerLife
    partition: Partition


class ClusterWorld:
    """Machines 1 to ``count`` and what connects them."""

    def __init__(self, directory: Path, seed: int, count: int, options: Mapping[str, str]) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.directory = directory
        self.trace = Trace()
        self.network = SimNetwork(self.rng, self.trace)
        self.ensemble = SimEnsemble(self.rng, self.trace, SESSION_TIMEOUT_S)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.connector = self.network
        self.machines = {each: Machine(self, each, OPTIONS | dict(options)) for each in range(1, count + 1)}

    # Who is there

    @property
    def up(self) -> list[int]:
        return [each.broker_id for each in self.machines.values() if each.is_up]

    @property
    def down(self) -> list[int]:
        return [each.broker_id for each in self.machines.values() if not each.is_up]

    def brokers(self) -> Iterator[tuple[BrokerLife, Broker]]:
        """All brokers that are alive and have come so far as to hold partitions."""
        for machine in self.machines.values():
            broker = machine.broker
            if broker is not None and machine.life is not None:
                yield machine.life, broker

    def replicas(self, name: TopicPartition) -> list[Held]:
        """The replicas of a partition that live brokers hold."""
        found = [(life, broker.partitions.by_name.get(name)) for life, broker in self.brokers()]
        return [Held(life, partition) for life, partition in found if partition is not None]

    def copies(self, name: TopicPartition, offset: int) -> int:
        """How many replicas have a record, those of machines that are down included."""
        topic_id = self.topic_id(name.topic) or b""
        held = {each.partition.broker_id: each.partition.log.log_end_offset for each in self.replicas(name)}
        found = 0
        for machine in self.machines.values():
            end = max(held.get(machine.broker_id, 0), machine.end_of(topic_id, name))
            found += end > offset
        return found

    def controller(self) -> tuple[BrokerLife, ClusterController] | None:
        """Somebody who believes to be the controller."""
        found = [
            (life, life.broker.cluster.controller)
            for life, broker in self.brokers()
            if life.is_ready and broker.cluster.controller.is_active
        ]
        return self.rng.choice(found) if found else None

    def leader_of(self, name: TopicPartition) -> tuple[int, int] | None:
        """Who leads a partition, and in which epoch, as some live broker believes."""
        believed = [
            (image.leader, image.leader_epoch)
            for life, broker in self.brokers()
            if life.is_ready and (image := broker.image.partition(*name)) is not None
        ]
        return self.rng.choice(believed) if believed else None

    # What ZooKeeper has

    def state(self, name: TopicPartition) -> PartitionState | None:
        """A partition's state as it is written down."""
        node = self.ensemble.tree.find(znodes.partition_state_path(name))
        return None if node is None else PartitionState.decode(name, node.data)

    def assignment(self, topic: str) -> TopicAssignment | None:
        """A topic's replicas as they are written down."""
        node = self.ensemble.tree.find(znodes.topic_path(topic))
        return None if node is None else TopicAssignment.decode(topic, node.data)

    def topic_id(self, topic: str) -> Uuid | None:
        found = self.assignment(topic)
        return None if found is None else found.topic_id

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic as they are written down."""
        found = self.assignment(topic)
        return [] if found is None else [TopicPartition(topic, index) for index in found.partitions]

    # What happens to machines

    def start(self, broker_id: int) -> None:
        """Begin a broker's next life."""
        self.trace.tell("start", broker_id)
        self.machines[broker_id].start()

    def kill(self, broker_id: int, *, power: bool = False) -> None:
        """kill -9, or the loss of power."""
        self.trace.tell("power loss" if power else "kill", broker_id)
        self.machines[broker_id].kill(power=power)

    async def stop(self, broker_id: int) -> None:
        """SIGTERM, and kill -9 for the impatient."""
        self.trace.tell("stop", broker_id)
        clean = await self.machines[broker_id].stop(8.0)
        self.trace.tell("stopped" if clean else "killed while it stopped", broker_id)

    def pause(self, broker_id: int, for_s: float) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        life = self.machines[broker_id].life
        if life is None or life.held is not None:
            return
        self.trace.tell("pause", broker_id, f"{for_s:.2f}")
        life.pause()
        if life.store is not None:
            life.store.stop_hearing()
        asyncio.get_running_loop().call_later(for_s, life.go_on)

    def cut_zookeeper(self, broker_id: int, for_s: float) -> None:
        """Separate a broker from ZooKeeper for a while."""
        life = self.machines[broker_id].life
        if life is None or life.store is None:
            return
        self.trace.tell("no zookeeper", broker_id, f"{for_s:.2f}")
        life.store.cut()
        asyncio.get_running_loop().call_later(for_s, life.store.mend)

    def mend(self) -> None:
        """Everybody reaches everybody again, as fast as ever."""
        self.network.mend()
        self.network.slow.clear()
        for life, _ in self.brokers():
            life.go_on()
            if life.store is not None:
                life.store.mend()

    async def until(self, holds: Callable[[], object], timeout_s: float) -> bool:
        """Wait for something; gives whether it came true in time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while loop.time() < end:
            if holds():
                return True
            await asyncio.sleep(0.05)
        return bool(holds())
