"""The broker's side of the simulation: both coordinators over logs in memory that are replicated late.

``crash`` takes everything away that is not in the committed part of a log, and comes back after a while with
the next leader epoch, the way a partition moves to another broker.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.rigs.memory_log import MemoryLog
from tests.simulation.world import World

from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, Uuid
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.znodes.znodes import TopicAssignment
from tidelog.scheduling.timers import Timers

SHARDS = 2
SLOW_REPLICA, FAST_MS, SLOW_MS = 0.3, (1, 40), (200, 2_000)
OPTIONS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": str(SHARDS),
    "transaction.state.log.num.partitions": str(SHARDS),
}


class ReplicatedLog(MemoryLog):
    """A log whose followers are slower than its leader."""

    def __init__(self, world: World) -> None:
        super().__init__(autocommit=False)
        self._world = world

    def append(self, batch: bytes | bytearray) -> int:
        offset = super().append(batch)
        end = self.end_offset
        dice = self._world.random
        slow = self._world.chance(SLOW_REPLICA)
        self._world.after(
            dice.randint(*SLOW_MS) if slow else dice.randint(*FAST_MS), lambda: self._replicate(end)
        )
        return offset

    def _replicate(self, end: int) -> None:
        if end > self.committed_offset:
            self.commit(end)

    def after_crash(self) -> ReplicatedLog:
        """What the next leader has."""
        left = self.crash()
        new = ReplicatedLog(self._world)
        new.batches, new.start_offset = left.batches, left.start_offset
        new.end_offset = new.committed_offset = left.end_offset
        return new


class Coordination:
    """Both coordinators, and the crashes that they survive."""

    def __init__(
        self,
        world: World,
        topics: dict[str, int],
        make_transactions: Callable[[Coordination, Timers], TransactionCoordinator] | None = None,
    ) -> None:
        self.world = world
        self.config = BrokerConfig(OPTIONS)
        self.image = MetadataImage()
        internal = {CONSUMER_OFFSETS_TOPIC: SHARDS, TRANSACTION_STATE_TOPIC: SHARDS}
        for name, count in {**topics, **internal}.items():
            assignment = TopicAssignment(partitions=dict.fromkeys(range(count), (1,)), topic_id=self._uuid())
            self.image.put_topic(name, assignment, {})
        self._make_transactions = make_transactions
        self._logs = {(topic, index): ReplicatedLog(world) for topic in internal for index in range(SHARDS)}
        self.epoch = -1
        self.up = False
        self.crashes = 0
        self.on_crash: list[Callable[[], None]] = []
        self.groups: GroupCoordinator
        self.transactions: TransactionCoordinator
        self.start()

    def start(self) -> None:
        """Come up and load what the logs say."""
        self.epoch += 1
        timers = self.world.timers = Timers(self.world.clock)
        self.groups = GroupCoordinator(self.config, self.world.clock, self.image, timers)
        self.groups.support = self.groups.support._replace(new_member_uuid=self._uuid)
        for index in range(SHARDS):
            log = self._logs[CONSUMER_OFFSETS_TOPIC, index]
            assert self.groups.runtime.load_nowait(index, self.epoch, log)
        if self._make_transactions is not None:
            self.transactions = self._make_transactions(self, timers)
            for index in range(SHARDS):
                log = self._logs[TRANSACTION_STATE_TOPIC, index]
                assert self.transactions.runtime.load_nowait(index, self.epoch, log)
        self.up = True
        self.world.note(f"broker: up, epoch {self.epoch}")

    def crash(self, for_ms: int) -> None:
        """Lose everything that other replicas have not got, and come back in ``for_ms``."""
        if not self.up:
            return
        self.world.note("broker: crash")
        self.up = False
        self.crashes += 1
        self.world.timers = None
        for log in self._logs.values():
            log.on_committed = lambda: None
        self._logs = {key: log.after_crash() for key, log in self._logs.items()}
        for tell in self.on_crash:
            tell()
        self.world.after(for_ms, self.start)

    def _uuid(self) -> Uuid:
        """One that the seed decides."""
        return Uuid(self.world.random.randbytes(16))
