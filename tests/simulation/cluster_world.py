"""Whole brokers in one process: controllers, control, partitions and fetch loops, on a network and a
ZooKeeper that a seed makes slow and unreliable.

What is real: ``ClusterController``, ``Control``, ``Partitions``, ``FetchLoops``, ``IsrSender``, the feed, the
logs on disk. What is not: sockets (``Network`` calls the other broker's objects, after a delay, perhaps in
vain) and ZooKeeper (``MemoryZooKeeper``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from tests.simulation.virtual_loop import LoopClock

from tidelog.broker.cluster.channels import Channel
from tidelog.broker.cluster.control import Control
from tidelog.broker.cluster.controller_link import ControllerLink
from tidelog.broker.cluster.isr_requests import IsrSender
from tidelog.broker.cluster.peer import Peer
from tidelog.broker.cluster.registration import prepare, register
from tidelog.broker.handlers import alter_partition
from tidelog.controller.cluster.channels import OnResponse
from tidelog.controller.cluster.context import LiveBroker
from tidelog.controller.cluster.controller import ClusterController
from tidelog.controller.cluster.term import ControllerSettings
from tidelog.controller.topics import TopicDefaults
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.listeners import Listener
from tidelog.metadata.store import SessionState
from tidelog.metadata.znodes import BrokerRegistration
from tidelog.replication.fetch_loop import FetchLoop, FetchLoops
from tidelog.replication.leader_endpoint import FetchedPartition, FollowerPosition
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.replication.surroundings import Surroundings
from tidelog.storage.log import Isolation
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dirs import LogDirs
from tidelog.testing.memory_zookeeper import MemoryZooKeeper
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest
from tidelog.wire.schema import Payload

T = TypeVar("T")

CONFIG = LogConfig(min_insync_replicas=2)
MAX_LAG_MS = 3000.0
SESSION_TIMEOUT_S = 2.0
MAX_FETCH_BYTES = 1 << 20
_POLL_S = 0.05
_ALTER_VERSION = 3
_CONTROL_VERSION = 7


class Network:
    """Calls between brokers: each way takes its time, and neither may arrive."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self.cut: set[frozenset[int]] = set()

    async def call(self, source: int, target: int, work: Callable[[SimBroker], T]) -> T:
        """Have ``work`` done at the other broker; raises ``OSError`` if it may not have been."""
        await self._travel(source, target)
        result = work(self._world.brokers[target])
        await self._travel(source, target)
        return result

    async def _travel(self, source: int, target: int) -> None:
        rng = self._world.rng
        await asyncio.sleep(rng.uniform(0.0005, 0.01) if rng.random() < 0.97 else rng.uniform(0.05, 0.4))
        unreachable = frozenset((source, target)) in self.cut and source != target
        if unreachable or target not in self._world.brokers or source not in self._world.brokers:
            raise ConnectionResetError("the connection is lost")


class _Way:
    """A ``Peer`` for the controller's channels."""

    def __init__(self, world: ClusterWorld, source: int, target: int) -> None:
        self._world, self._source, self._target = world, source, target

    async def request(self, request: Payload, response_type: type[Any], timeout_ms: float) -> Any:
        return await self._world.network.call(self._source, self._target, lambda broker: broker.obey(request))

    async def close(self) -> None:
        """There is no connection."""


class _Channels:
    def __init__(self, world: ClusterWorld, source: int) -> None:
        self._world, self._source = world, source
        self._held: dict[int, tuple[LiveBroker, Channel]] = {}
        self._closing: list[asyncio.Task[None]] = []

    def set_brokers(self, brokers: Mapping[int, LiveBroker]) -> None:
        for target, (known, channel) in list(self._held.items()):
            if brokers.get(target) != known:
                del self._held[target]
                self._closing.append(asyncio.ensure_future(channel.close()))
        for target, broker in brokers.items():
            if target not in self._held:
                way = cast(Peer, _Way(self._world, self._source, target))
                self._held[target] = broker, Channel(target, way, 1000)

    def send(self, broker_id: int, request: Payload, on_response: OnResponse) -> None:
        if broker_id in self._held:
            self._held[broker_id][1].send(request, on_response)

    def close(self) -> None:
        self.set_brokers({})


class _ControllerLink:
    """AlterPartition to whom this broker takes for the controller."""

    def __init__(self, world: ClusterWorld, source: int) -> None:
        self._world, self._source = world, source

    async def request(self, message: Callable[[int], Any], response_type: type[Any]) -> Any:
        target = self._world.brokers[self._source].controller.active_id
        request = message(_ALTER_VERSION)
        try:
            asked = await self._world.network.call(
                self._source, target, lambda broker: asyncio.ensure_future(broker.alter(request))
            )
            return await asyncio.wait_for(asked, 5)
        except (OSError, TimeoutError, KeyError) as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None


class _Leader:
    """Another broker as a leader to follow."""

    def __init__(self, world: ClusterWorld, source: int, target: int) -> None:
        self._world, self._source, self._target = world, source, target

    async def fetch(
        self, positions: Mapping[TopicPartition, FollowerPosition]
    ) -> dict[TopicPartition, FetchedPartition]:
        epoch = self._world.brokers[self._source].epoch
        found = await self._world.network.call(
            self._source, self._target, lambda broker: broker.fetched(self._source, epoch, positions)
        )
        if not any(each.records or each.diverging_epoch for each in found.values()):
            await asyncio.sleep(_POLL_S)
        return found

    async def log_bounds(self, partition: TopicPartition, leader_epoch: int) -> tuple[int, int]:
        def bounds(broker: SimBroker) -> tuple[int, int]:
            known = broker.partitions.get(*partition)
            known.check_leader(leader_epoch)
            return known.log.log_start_offset, known.log.log_end_offset

        return await self._world.network.call(self._source, self._target, bounds)

    async def close(self) -> None:
        """There is no connection."""


class SimBroker:
    """One life of a broker: from its start to its crash."""

    controller: ClusterController
    feed: ClusterFeed

    def __init__(self, world: ClusterWorld, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.epoch = -1
        self.store = world.zookeeper.session()
        self._shrinking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the cluster."""
        world, broker_id = self.world, self.broker_id
        await prepare(self.store)
        self.feed = await ClusterFeed.start(self.store, world.clock)
        self.log_dirs = LogDirs([world.directory / str(broker_id)], clock=world.clock)
        self.log_dirs.open()
        self.log_dirs.identify(broker_id=broker_id, cluster_id="c")
        self.isr = IsrSender(
            broker_id, lambda: self.epoch, lambda: cast(ControllerLink, _ControllerLink(world, broker_id))
        )
        surroundings = Surroundings(world.clock, self.isr, lambda: self.feed.image.brokers.keys(), MAX_LAG_MS)
        self.partitions = Partitions(
            broker_id,
            self.feed.image,
            self.log_dirs,
            lambda topic: CONFIG,
            asyncio.get_running_loop(),
            lambda error: None,
            surroundings,
        )
        self.log_dirs.load(lambda topic: CONFIG, is_stray=lambda log: False)
        self.loops = FetchLoops(
            lambda leader: FetchLoop(
                leader, _Leader(world, broker_id, leader), world.clock, lambda: 100, lambda error: None
            )
        )
        self.control = Control(
            broker_id,
            lambda: self.epoch,
            self.feed,
            self.partitions,
            self.log_dirs,
            self.loops,
            lambda delta: None,
        )
        self.store.on_session(self._session_changed)
        settings = ControllerSettings(
            broker_id=broker_id,
            inter_broker_listener="PLAINTEXT",
            topic_defaults=lambda: TopicDefaults(1, 3),
            check_topic_configs=lambda configs: None,
            unclean_topics=lambda topics: set(),
            balance_interval_s=5.0,
        )
        self.controller = ClusterController(
            self.store,
            lambda: _Channels(world, broker_id),
            settings,
            world.clock,
            self._register,
            rng=random.Random(world.rng.random()),
        )
        # From here on it can be reached.
        world.brokers[broker_id] = self
        await self.controller.start()
        self._shrinking = asyncio.ensure_future(self._shrink())

    async def _register(self) -> None:
        endpoints = (Listener("PLAINTEXT", "localhost", 9000 + self.broker_id, "PLAINTEXT"),)
        registration = BrokerRegistration(broker_id=self.broker_id, endpoints=endpoints)
        self.epoch = await register(self.store, registration, 60_000, lambda: False)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.epoch += 1
            self.partitions.resign_all()

    async def _shrink(self) -> None:
        while True:
            await asyncio.sleep(MAX_LAG_MS / 2000)
            for partition in self.partitions:
                partition.shrink_isr()

    def die(self) -> None:
        """From one moment to the next; what was written is in the files."""
        self.controller.abandon()
        if self._shrinking is not None:
            self._shrinking.cancel()
        self.world.zookeeper.suspend(self.store)
        for work in (self.loops.close(), self.isr.close(), self.feed.close()):
            self.world.leftovers.append(asyncio.ensure_future(work))
        for log in self.log_dirs.logs.values():
            log.close(clean=False)
        self.partitions.close()
        for log_dir in self.log_dirs.online.values():
            log_dir.release()

    # What others ask

    def obey(self, request: Payload) -> Payload:
        """The controller's word."""
        match request:
            case LeaderAndIsrRequest():
                return self.control.leader_and_isr(request, _CONTROL_VERSION)
            case UpdateMetadataRequest():
                return self.control.update_metadata(request)
            case StopReplicaRequest():
                return self.control.stop_replica(request)
        raise AssertionError(type(request))

    async def alter(self, request: Any) -> Any:
        """A leader's AlterPartition."""
        broker = SimpleNamespace(membership=SimpleNamespace(controller=self.controller))
        context = cast(Any, SimpleNamespace(broker=broker, version=_ALTER_VERSION))
        return await alter_partition.handle(context, request)

    def fetched(
        self, follower: int, broker_epoch: int, positions: Mapping[TopicPartition, FollowerPosition]
    ) -> dict[TopicPartition, FetchedPartition]:
        """A follower's fetch."""
        found: dict[TopicPartition, FetchedPartition] = {}
        for name, position in positions.items():
            try:
                partition = self.partitions.get(*name)
                found[name] = _fetch(partition, follower, broker_epoch, position)
            except KafkaError as error:
                found[name] = FetchedPartition(error.code)
        return found


def _fetch(
    leader: Partition, follower: int, broker_epoch: int, position: FollowerPosition
) -> FetchedPartition:
    found = leader.read(
        position.offset,
        MAX_FETCH_BYTES,
        Isolation.LOG_END,
        True,
        position.leader_epoch,
        position.last_fetched_epoch,
    )
    records = b""
    if found.diverging_epoch is None:
        leader.fetched_by(
            follower, position.offset, position.log_start_offset, broker_epoch, position.leader_epoch
        )
        if found.slice is not None and found.slice.length:
            records = leader.log.read_bytes(position.offset, MAX_FETCH_BYTES, isolation=Isolation.LOG_END)
    log = leader.log
    return FetchedPartition(
        ErrorCode.NONE, log.high_watermark, log.log_start_offset, found.diverging_epoch, memoryview(records)
    )


class ClusterWorld:
    """Brokers 1 to 3, what connects them, and who is alive."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.clock = LoopClock(asyncio.get_running_loop())
        self.zookeeper = MemoryZooKeeper(self._pause)
        self.network = Network(self)
        self.brokers: dict[int, SimBroker] = {}
        self.leftovers: list[asyncio.Future[None]] = []

    async def _pause(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.0002, 0.004))

    async def start(self, broker_id: int) -> None:
        """Begin a broker's next life."""
        await SimBroker(self, broker_id).start()

    def crash(self, broker_id: int) -> None:
        """End a life; ZooKeeper misses the broker only after its session timeout."""
        broker = self.brokers.pop(broker_id)
        broker.die()
        loop = asyncio.get_running_loop()
        loop.call_later(SESSION_TIMEOUT_S, self.zookeeper.expire, broker.store)

    def expire(self, broker_id: int) -> None:
        """A broker is away from ZooKeeper for longer than its session lasts."""
        broker = self.brokers[broker_id]
        loop = asyncio.get_running_loop()
        self.zookeeper.suspend(broker.store)
        loop.call_later(SESSION_TIMEOUT_S, self.zookeeper.expire, broker.store)
        loop.call_later(SESSION_TIMEOUT_S + self.rng.uniform(0, 2), self.zookeeper.resume, broker.store)
