"""The broker's side for transactions: both coordinators over real partitions on disk, whose replicas lag.

The same classes as in a broker: ``Partition``, ``PartitionLog``, ``TransactionMarkers`` and
``TransactionVerification``. Only the loop, the other replicas and the sockets are missing. A crash cuts every
log at its high watermark, as the next leader has it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tests.simulation.world import World

from tidelog.broker.coordination.coordinator_log import PartitionLog
from tidelog.broker.coordination.transaction_markers import TransactionMarkers
from tidelog.broker.coordination.transaction_verification import TransactionVerification
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition, Uuid
from tidelog.metadata.image import MetadataImage, PartitionImage
from tidelog.metadata.znodes.znodes import TopicAssignment
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.scheduling.timers import Timers
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig

ME, OTHER = 1, 2
SLOW_REPLICA, FAST_MS, SLOW_MS = 0.2, (1, 20), (200, 2_000)
OPTIONS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
TRANSACTION_VERSION = "transaction.version"


class VirtualLoop:
    """As much of a loop as a partition needs."""

    def __init__(self, world: World) -> None:
        self._world = world

    def call_soon(self, action: Callable[[], None]) -> None:
        self._world.after(0, action)


class LaggingPartition(Partition):
    """A partition whose other replica gets everything a little later."""

    world: World

    def write_staged(self) -> None:
        super().write_staged()
        end = self.log.log_end_offset
        dice = self.world.random
        delay = dice.randint(*(SLOW_MS if self.world.chance(SLOW_REPLICA) else FAST_MS))
        self.world.after(delay, lambda: self._replicated(end, self.leader_epoch))

    def _replicated(self, end: int, epoch: int) -> None:
        if epoch == self.leader_epoch and self.log.high_watermark < end <= self.log.log_end_offset:
            self.log.update_high_watermark(end)
            self.changed()


class SimulatedPartitions:
    """As much of ``Partitions`` as markers and verification need."""

    def __init__(self) -> None:
        self.by_name: dict[TopicPartition, LaggingPartition] = {}

    def get(self, topic: str, index: int) -> Partition:
        return self.by_name[TopicPartition(topic, index)]


class ProducerIdCounter:
    """Producer ids without blocks."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1000)

    def next_id_nowait(self) -> int:
        return next(self._numbers)

    async def next_id(self) -> int:
        return next(self._numbers)


class TransactionWorld:
    """Both coordinators of a broker that crashes."""

    def __init__(self, world: World, directory: Path, topic: str, count: int, version: int) -> None:
        self.world = world
        self.config = BrokerConfig(OPTIONS)
        self.image = MetadataImage()
        self.image.features[TRANSACTION_VERSION] = version
        self.partitions = SimulatedPartitions()
        self.producer_ids = ProducerIdCounter()
        self.epoch = -1
        self.up = False
        self.crashes = 0
        self.on_crash: list[Callable[[], None]] = []
        self._coordinator_logs: list[PartitionLog] = []
        sizes = {
            topic: count,
            CONSUMER_OFFSETS_TOPIC: self.config.int("offsets.topic.num.partitions"),
            TRANSACTION_STATE_TOPIC: self.config.int("transaction.state.log.num.partitions"),
        }
        for name, number in sizes.items():
            self._add_topic(name, number, directory)
        self.start()

    def _add_topic(self, name: str, count: int, directory: Path) -> None:
        topic_id = Uuid(self.world.random.randbytes(16))
        replicas = dict.fromkeys(range(count), (ME, OTHER))
        self.image.put_topic(name, TopicAssignment(partitions=replicas, topic_id=topic_id), {})
        for index in range(count):
            log = Log.open(
                LogContext(directory / f"{name}-{index}", LogConfig(), self.world.clock), clean_shutdown=True
            )
            loop = cast(Any, VirtualLoop(self.world))
            partition = LaggingPartition(TopicPartition(name, index), topic_id, log, ME, loop, _disk_failed)
            partition.world = self.world
            self.partitions.by_name[TopicPartition(name, index)] = partition

    def start(self) -> None:
        """Lead everything in the next epoch, and load the coordinators."""
        self.epoch += 1
        self._lead(ME)
        timers = self.world.timers = Timers(self.world.clock)
        clock = self.world.clock
        partitions = cast(Partitions, self.partitions)
        self.groups = GroupCoordinator(self.config, clock, self.image, timers)
        self.markers = TransactionMarkers(partitions, self.groups, clock, timers, _disk_failed)
        self.transactions = TransactionCoordinator(
            self.config, clock, self.image, timers, self.producer_ids, self.markers
        )
        self.verification = TransactionVerification(self.config, clock, timers, partitions, self.transactions)
        for (topic, index), partition in self.partitions.by_name.items():
            if topic in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
                groups = topic == CONSUMER_OFFSETS_TOPIC
                runtime = self.groups.runtime if groups else self.transactions.runtime
                log = PartitionLog(partition, _disk_failed)
                self._coordinator_logs.append(log)
                assert runtime.load_nowait(index, self.epoch, log)
        self.up = True
        self.world.note(f"broker: up, epoch {self.epoch}")

    def crash(self, for_ms: int) -> None:
        """Lose what the other replica has not got, and come back in ``for_ms``."""
        if not self.up:
            return
        self.world.note("broker: crash")
        self.up = False
        self.crashes += 1
        self.world.timers = None
        for log in self._coordinator_logs:
            log.close()
        self._coordinator_logs.clear()
        self.epoch += 1
        self._lead(OTHER)
        for partition in self.partitions.by_name.values():
            partition.log.truncate_to(partition.log.high_watermark)
        for tell in self.on_crash:
            tell()
        self.world.after(for_ms, self.start)

    def _lead(self, leader: int) -> None:
        for partition in self.partitions.by_name.values():
            partition.apply(
                PartitionImage(replicas=(ME, OTHER), leader=leader, leader_epoch=self.epoch, isr=(ME, OTHER))
            )
            if leader == ME and partition.log.high_watermark < partition.log.log_end_offset:
                raise AssertionError("a new leader has what no high watermark covers")


def _disk_failed(error: LogDirOfflineError) -> None:
    raise AssertionError(f"no disk fails here: {error}")


def code_of(error: Exception | None) -> ErrorCode:
    """The error code of a refusal; NONE where there is none. Anything else is a bug."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, KafkaError):
        return error.code
    raise error
