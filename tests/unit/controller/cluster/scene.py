"""A cluster of fake brokers on a ZooKeeper in memory, with what must hold in it whenever it is at rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tests.rigs.fake_brokers import FakeBrokers
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.controller.cluster.context import ControllerContext, Leadership
from tidelog.controller.cluster.controller import ClusterController
from tidelog.controller.cluster.isr_changes import IsrChange
from tidelog.controller.controller import CreatedTopic
from tidelog.controller.topics import NewTopic, TopicDefaults
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.metadata.embedded.node_tree import Node
from tidelog.metadata.store import Op, Result
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import NO_LEADER, PartitionState, TopicAssignment

TOPIC = "t"
P0 = TopicPartition(TOPIC, 0)


class Scene:
    """Brokers 1 to ``count``, the first of which is the controller."""

    def __init__(
        self,
        *,
        unclean: Callable[[str], bool] = lambda topic: False,
        delete_topics: bool = True,
    ) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.cluster = FakeBrokers(
            self.zookeeper, defaults=TopicDefaults(3, 3), unclean=unclean, delete_topics=delete_topics
        )

    async def add(self, *broker_ids: int) -> None:
        """Start brokers, one after the other."""
        for broker_id in broker_ids:
            await self.cluster.add(broker_id)
            await self.cluster.settled()

    @property
    def controller(self) -> ClusterController:
        return self.cluster.controller

    @property
    def context(self) -> ControllerContext:
        return self.controller.term.context

    async def settled(self) -> None:
        await self.cluster.settled()

    async def crash(self, *broker_ids: int) -> None:
        """Brokers die at the same moment."""
        for broker_id in broker_ids:
            self.cluster.crash(broker_id)
        await self.settled()

    async def create(self, *assignments: Sequence[int], topic: str = TOPIC) -> CreatedTopic:
        """A topic whose partitions are where ``assignments`` say."""
        placed = [(index, tuple(each)) for index, each in enumerate(assignments)]
        outcomes = await self.controller.create_topics([NewTopic(topic, -1, -1, assignments=placed)])
        await self.settled()
        outcome = outcomes[topic]
        assert isinstance(outcome, CreatedTopic), outcome
        return outcome

    async def delete(self, topic: str = TOPIC) -> None:
        """Ask for a topic's deletion."""
        await self.controller.delete_topics([self.context.topic_ids[topic]])
        await self.settled()

    # What ZooKeeper holds

    def exists(self, path: str) -> bool:
        return self.zookeeper.tree.find(path) is not None

    def node(self, path: str) -> Node:
        return self.zookeeper.node(path)

    def state(self, partition: TopicPartition = P0) -> PartitionState:
        raw = self.node(znodes.partition_state_path(partition)).data
        return PartitionState.decode(partition, raw)

    def leader_and_isr(self, partition: TopicPartition = P0) -> tuple[int, tuple[int, ...]]:
        state = self.state(partition)
        return state.leader, state.isr

    def assignment(self, topic: str = TOPIC) -> TopicAssignment:
        return TopicAssignment.decode(topic, self.node(znodes.topic_path(topic)).data)

    def topics(self) -> list[str]:
        return sorted(self.node(znodes.TOPICS).children)

    async def write(self, *ops: Op) -> list[Result]:
        """Write as somebody else would, who is no broker."""
        store = self.zookeeper.session()
        results = await store.multi(ops)
        await self.settled()
        await store.close()
        return results

    # What leaders do

    async def alter_isr(
        self, isr: Sequence[int], partition: TopicPartition = P0, **changed: int
    ) -> Leadership | ErrorCode:
        """The leader asks for these in-sync replicas."""
        state = self.state(partition)
        version = self.node(znodes.partition_state_path(partition)).version
        asked = IsrChange(
            leader=changed.get("leader", state.leader),
            leader_epoch=changed.get("leader_epoch", state.leader_epoch),
            isr={each: self.cluster.brokers[each].epoch for each in isr if each in self.cluster.brokers},
            recovery_state=changed.get("recovery_state", 0),
            partition_epoch=changed.get("partition_epoch", version),
        )
        leader = asked.leader
        altering = asyncio.ensure_future(
            self.controller.alter_isrs(
                leader, self.cluster.brokers[leader].epoch, lambda context: {partition: asked}
            )
        )
        await self.settled()
        if not altering.done():
            # The controller died over it.
            altering.cancel()
            return ErrorCode.NOT_CONTROLLER
        return altering.result()[partition]

    async def catch_up(self) -> None:
        """Every replica that is alive comes into sync, as long as its partition has a leader."""
        for _ in range(3):
            for topic in self.topics():
                for index in self.assignment(topic).partitions:
                    partition = TopicPartition(topic, index)
                    if not self.exists(znodes.partition_state_path(partition)):
                        continue
                    state = self.state(partition)
                    replicas = self.assignment(topic).partitions[index]
                    alive = [each for each in replicas if each in self.cluster.brokers]
                    if state.leader in alive and set(state.isr) != set(alive):
                        await self.alter_isr(alive, partition)

    # What must hold

    def check(self) -> None:
        """Everybody knows what ZooKeeper holds, and that makes sense."""
        brokers = self.cluster.brokers
        for topic in self.topics():
            assignment = self.assignment(topic)
            for index, replicas in assignment.partitions.items():
                partition = TopicPartition(topic, index)
                if not self.exists(znodes.partition_state_path(partition)):
                    assert not set(replicas) & brokers.keys(), f"{partition} should have a leader"
                    continue
                self._check_partition(partition, replicas)

    def _check_partition(self, partition: TopicPartition, replicas: tuple[int, ...]) -> None:
        brokers = self.cluster.brokers
        state = self.state(partition)
        assert state.isr, partition
        assert set(state.isr) <= set(replicas), (partition, state, replicas)
        assert state.leader == NO_LEADER or state.leader in state.isr, (partition, state)
        if set(state.isr) & brokers.keys():
            assert state.leader in brokers, (partition, state, sorted(brokers))
        else:
            assert state.leader == NO_LEADER, (partition, state)
        for broker in brokers.values():
            told = broker.metadata.get(partition)
            assert told is not None, f"{broker.broker_id} does not know of {partition}"
            assert (told.leader, told.leader_epoch) == (state.leader, state.leader_epoch), broker.broker_id
            assert tuple(told.isr) == state.isr
            assert tuple(told.replicas) == replicas
            held = broker.replicas.get(partition)
            if broker.broker_id in replicas:
                assert held is not None, f"{broker.broker_id} does not hold {partition}"
                assert (held.leader, held.leader_epoch) == (state.leader, state.leader_epoch)
            else:
                assert held is None, f"{broker.broker_id} should not hold {partition}"


def run(test: Callable[[Scene], Awaitable[None]], **options: object) -> None:
    """Run a test on a scene of its own."""

    async def main() -> None:
        scene = Scene(**options)  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            await test(scene)
        for controller in list(scene.cluster.controllers.values()):
            await controller.close()

    asyncio.run(main())


def crash_at_write(scene: Scene, broker_id: int, number: int, *, before: bool) -> Callable[[], bool]:
    """Have a broker die at its ``number``th write from now; gives whether that has happened."""
    store = scene.cluster.brokers[broker_id].store
    real = store.multi
    count = 0
    dead = False

    async def multi(ops: Sequence[Op]) -> list[Result]:
        nonlocal count, dead
        count += 1
        if count != number:
            return await real(ops)
        dead = True
        if before:
            scene.cluster.crash(broker_id)
            await asyncio.get_running_loop().create_future()
        results = await real(ops)
        scene.cluster.crash(broker_id)
        await asyncio.get_running_loop().create_future()
        return results

    store.multi = multi  # type: ignore[method-assign]
    return lambda: dead
