"""Brokers as a controller sees them, for tests of the controller: they register, and answer what they are
told.

    cluster = FakeBrokers(zookeeper)
    await cluster.register(1)
    controller = cluster.controller(1)

Each fake broker remembers what it was told last of every partition, as a real one would act on it, and
refuses requests with an old controller epoch or a wrong broker epoch. ``refuse`` makes partitions answer
with an error.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sized

from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper

from tidelog.clock import Clock
from tidelog.config.listeners import Listener
from tidelog.controller.cluster.context import LiveBroker
from tidelog.controller.cluster.control_batch import OnResponse
from tidelog.controller.cluster.controller import ClusterController
from tidelog.controller.cluster.controller_term import ControllerSettings
from tidelog.controller.topics import TopicDefaults
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.metadata.store import ensure_path
from tidelog.metadata.znodes import znodes
from tidelog.wire.codec import decode, encode
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.wire.schema import Payload

_IDLE_TURNS = 3


class FakeBroker:
    """What one broker has been told."""

    def __init__(self, broker_id: int, store: MemorySession) -> None:
        self.broker_id = broker_id
        self.store = store
        self.epoch = -1
        self.controller_epoch = 0
        self.replicas: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        self.live: set[int] = set()
        self.deleted: list[TopicPartition] = []
        self.refuse: dict[TopicPartition, ErrorCode] = {}
        self.up = True

    def handle(self, request: Payload) -> Payload:
        """Do as told, or refuse as a broker does."""
        match request:
            case LeaderAndIsrRequest():
                return self._leader_and_isr(request)
            case UpdateMetadataRequest():
                return self._update_metadata(request)
            case StopReplicaRequest():
                return self._stop_replica(request)
        raise AssertionError(f"a controller does not send {type(request).__name__}")

    def _is_stale(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch != self.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        code = self._is_stale(request.controller_epoch, request.broker_epoch)
        if code is not ErrorCode.NONE:
            return LeaderAndIsrResponse(error_code=code)
        topics: list[LeaderAndIsrTopicError] = []
        for topic in request.topic_states:
            answers: list[LeaderAndIsrPartitionError] = []
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                known = self.replicas.get(partition)
                refusal = self.refuse.get(partition, ErrorCode.NONE)
                if known is not None and state.leader_epoch < known.leader_epoch:
                    refusal = ErrorCode.STALE_CONTROLLER_EPOCH
                if refusal is ErrorCode.NONE:
                    self.replicas[partition] = state
                answers.append(
                    LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=refusal)
                )
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=answers))
        return LeaderAndIsrResponse(topics=topics)

    def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        code = self._is_stale(request.controller_epoch, request.broker_epoch)
        if code is ErrorCode.NONE:
            self.live = {each.id for each in request.live_brokers}
            for topic in request.topic_states:
                for state in topic.partition_states:
                    self.metadata[TopicPartition(topic.topic_name, state.partition_index)] = state
        return UpdateMetadataResponse(error_code=code)

    def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        code = self._is_stale(request.controller_epoch, request.broker_epoch)
        if code is not ErrorCode.NONE:
            return StopReplicaResponse(error_code=code)
        answers: list[StopReplicaPartitionError] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                refusal = self.refuse.get(partition, ErrorCode.NONE)
                if refusal is ErrorCode.NONE:
                    self.replicas.pop(partition, None)
                    if state.delete_partition:
                        self.deleted.append(partition)
                answers.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=state.partition_index,
                        error_code=refusal,
                    )
                )
        return StopReplicaResponse(partition_errors=answers)


class FakeChannels:
    """Channels to fake brokers; answers come in a later turn of the loop."""

    def __init__(self, brokers: Mapping[int, FakeBroker]) -> None:
        self._brokers = brokers
        self._held: dict[int, LiveBroker] = {}
        self._closed = False

    def set_brokers(self, brokers: Mapping[int, LiveBroker]) -> None:
        self._held = dict(brokers)

    def send(self, broker_id: int, request: Payload, on_response: OnResponse) -> None:
        held = self._held.get(broker_id)
        asyncio.get_running_loop().call_soon(self._deliver, broker_id, held, request, on_response)

    def close(self) -> None:
        self._closed = True

    def _deliver(
        self, broker_id: int, held: LiveBroker | None, request: Payload, on_response: OnResponse
    ) -> None:
        broker = self._brokers.get(broker_id)
        now = self._held.get(broker_id)
        if self._closed or held is None or now is None or now.epoch != held.epoch:
            return
        if broker is not None and broker.up:
            # Through bytes, as over a network: what a version has no place for is found out here.
            version = type(request).VERSIONS[1]
            arrived, _ = decode(type(request), version, memoryview(encode(request, version)))
            on_response(broker.handle(arrived))


class FakeBrokers:
    """A cluster without data: a tree, fake brokers, and the controllers of those that have one."""

    def __init__(
        self,
        zookeeper: MemoryZooKeeper,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        defaults: TopicDefaults | None = None,
        unclean: Callable[[str], bool] = lambda topic: False,
        delete_topics: bool = True,
    ) -> None:
        self.zookeeper = zookeeper
        self.brokers: dict[int, FakeBroker] = {}
        self.controllers: dict[int, ClusterController] = {}
        self._clock = clock or ManualClock()
        self._rng = random.Random(seed)
        self._defaults = defaults or TopicDefaults(1, 1)
        self._unclean = unclean
        self._delete_topics = delete_topics

    async def add(self, broker_id: int, rack: str | None = None) -> ClusterController:
        """Start a broker: it registers and takes part in the election."""
        store = self.zookeeper.session()
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(store, path)
        broker = self.brokers[broker_id] = FakeBroker(broker_id, store)

        async def register() -> None:
            registration = znodes.BrokerRegistration(
                broker_id=broker_id,
                endpoints=(Listener("PLAINTEXT", "127.0.0.1", 9000 + broker_id, "PLAINTEXT"),),
                rack=rack,
            )
            path = znodes.broker_path(broker_id)
            await store.create(path, registration.encode(), ephemeral=True)
            stat = await store.stat(path)
            assert stat is not None
            broker.epoch = stat.created_zxid

        settings = ControllerSettings(
            broker_id=broker_id,
            inter_broker_listener="PLAINTEXT",
            topic_defaults=lambda: self._defaults,
            check_topic_configs=lambda configs: None,
            unclean_topics=lambda topics: {each for each in topics if self._unclean(each)},
            delete_topics=self._delete_topics,
            auto_balance=False,
        )
        controller = ClusterController(
            store,
            lambda: FakeChannels(self.brokers),
            settings,
            self._clock,
            register,
            rng=random.Random(self._rng.random()),
        )
        self.controllers[broker_id] = controller
        await controller.start()
        return controller

    async def stop(self, broker_id: int) -> None:
        """End a broker cleanly, without handing anything over first."""
        await self.controllers.pop(broker_id).close()
        broker = self.brokers.pop(broker_id)
        await broker.store.close()

    def crash(self, broker_id: int) -> None:
        """A broker dies: it answers and sends nothing any more, and its session expires."""
        broker = self.brokers.pop(broker_id)
        broker.up = False
        self.zookeeper.suspend(broker.store)
        self.controllers.pop(broker_id).abandon()
        self.zookeeper.expire(broker.store)

    @property
    def controller(self) -> ClusterController:
        """The active controller."""
        (active,) = [each for each in self.controllers.values() if each.is_active]
        return active

    async def settled(self) -> None:
        """Let everything that is under way come to rest; what waits for a time to come stays."""
        ready: Sized = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        idle = 0
        while idle < _IDLE_TURNS:
            await asyncio.sleep(0)
            idle = 0 if len(ready) else idle + 1
