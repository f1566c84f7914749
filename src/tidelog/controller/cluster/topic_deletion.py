"""Deletes topics: a topic is marked, its replicas are stopped and deleted, and only then does it go from
ZooKeeper.

A topic whose replica is away waits (``context.deletion_ineligible``) and goes on when the broker is back.
What brokers answer to StopReplica moves replicas on: deleted ones to DELETION_SUCCESSFUL, others to
DELETION_INELIGIBLE. Marks in ``/admin/delete_topics`` outlive the controller, so that its successor goes on.

A reassignment of a topic that is to go is given up, where it stands. (Kafka has the deletion wait for it; but
a topic that is to go gets no new leader, without which the reassignment never ends.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from tidelog.controller.cluster.context import ControllerContext, Replica, ReplicaAssignment
from tidelog.controller.cluster.leadership_nodes import MAX_OPS, controller_write
from tidelog.controller.cluster.state_changes import StateChanges
from tidelog.controller.cluster.states import PartitionPhase, ReplicaPhase
from tidelog.controller.topic_nodes import delete_topic_ops
from tidelog.ids import TopicPartition
from tidelog.metadata.store import Delete, NoNode, Set, SharedStore
from tidelog.metadata.znodes import znodes

logger = logging.getLogger(__name__)


class TopicDeletion:
    """The deletions of one term of office."""

    def __init__(
        self,
        context: ControllerContext,
        store: SharedStore,
        changes: StateChanges,
        tell: Callable[[Iterable[TopicPartition]], None],
        on_gone: Callable[[str], None],
        *,
        enabled: bool,
    ) -> None:
        """``tell`` sends metadata of partitions to all brokers; ``on_gone`` hears of topics that are
        deleted."""
        self._context = context
        self._store = store
        self._changes = changes
        self._tell = tell
        self._on_gone = on_gone
        self._enabled = enabled

    async def enqueue(self, topics: Collection[str]) -> None:
        """Delete topics, now or as soon as that can be; marks of topics that are not there are removed."""
        unknown = [topic for topic in topics if topic not in self._context.assignments]
        await self._unmark(unknown if self._enabled else topics)
        if not self._enabled:
            return
        known = set(topics) - set(unknown)
        self._context.deleting |= known
        await self._give_up_reassignments(known)
        await self.go_on()

    async def _give_up_reassignments(self, topics: Collection[str]) -> None:
        """All replicas that a topic has by now are to be deleted, old and new."""
        moving = [each for each in self._context.being_reassigned() if each.topic in topics]
        for partition in moving:
            replicas = self._context.assignment(partition).replicas
            self._context.put_assignment(partition, ReplicaAssignment(replicas))
        for topic in sorted({each.topic for each in moving}):
            logger.info("Topic %s is to be deleted, and not reassigned any more", topic)
            raw = self._context.topic_node(topic).encode()
            await controller_write(self._store, self._context, [Set(znodes.topic_path(topic), raw)])

    async def resume(self, topics: Iterable[str]) -> None:
        """What kept topics from being deleted may be over."""
        waiting = set(topics) & self._context.deleting
        if waiting:
            self._context.deletion_ineligible -= waiting
            await self.go_on()

    def halt(self, topics: Collection[str], reason: str) -> None:
        """Topics cannot be deleted for now."""
        for topic in set(topics) & self._context.deleting:
            logger.info("The deletion of topic %s waits: %s", topic, reason)
            self._context.deletion_ineligible.add(topic)

    async def deleted(self, replicas: Iterable[Replica]) -> None:
        """Brokers have deleted replicas."""
        done = [each for each in replicas if each.partition.topic in self._context.deleting]
        await self._changes.replicas_to(ReplicaPhase.DELETION_SUCCESSFUL, done)
        await self.go_on()

    async def failed(self, replicas: Iterable[Replica]) -> None:
        """Replicas could not be deleted: their broker is gone, or refused."""
        lost = [each for each in replicas if each.partition.topic in self._context.deleting]
        if not lost:
            return
        await self._changes.replicas_to(
            ReplicaPhase.DELETION_INELIGIBLE,
            [
                each
                for each in lost
                if self._context.replica_may_become(each, ReplicaPhase.DELETION_INELIGIBLE)
            ],
        )
        self.halt({each.partition.topic for each in lost}, "a replica could not be deleted")
        await self.go_on()

    async def go_on(self) -> None:
        """Take every deletion as far as it can go."""
        if not self._enabled:
            return
        starting: list[str] = []
        for topic in sorted(self._context.deleting):
            replicas = self._context.replicas_of(self._context.partitions_of(topic))
            phases = {self._context.replica_phase(each) for each in replicas}
            if phases <= {ReplicaPhase.DELETION_SUCCESSFUL}:
                await self._finish(topic)
            elif (
                ReplicaPhase.DELETION_STARTED not in phases and topic not in self._context.deletion_ineligible
            ):
                again = self._context.replicas_in(topic, ReplicaPhase.DELETION_INELIGIBLE)
                await self._changes.replicas_to(ReplicaPhase.OFFLINE, again)
                starting.append(topic)
        if starting:
            await self._begin(starting)

    async def _begin(self, topics: Collection[str]) -> None:
        logger.info("Deleting topic(s) %s", ", ".join(topics))
        unseen = [each for topic in topics for each in self._context.partitions_of(topic)]
        unseen = [each for each in unseen if each.topic not in self._context.deletion_started]
        await self._changes.partitions_to(PartitionPhase.OFFLINE, unseen)
        await self._changes.partitions_to(PartitionPhase.NON_EXISTENT, unseen)
        self._context.deletion_started.update(topics)
        self._tell([each for topic in topics for each in self._context.partitions_of(topic)])
        replicas = [
            each
            for topic in topics
            for each in self._context.replicas_of(self._context.partitions_of(topic))
            if self._context.replica_phase(each) is not ReplicaPhase.DELETION_SUCCESSFUL
        ]
        dead = [each for each in replicas if not self._context.is_online(each.broker, each.partition)]
        alive = [each for each in replicas if each not in set(dead)]
        self.halt({each.partition.topic for each in dead}, "a replica is offline")
        await self._changes.replicas_to(
            ReplicaPhase.DELETION_INELIGIBLE,
            [
                each
                for each in dead
                if self._context.replica_may_become(each, ReplicaPhase.DELETION_INELIGIBLE)
            ],
        )
        await self._changes.replicas_to(ReplicaPhase.OFFLINE, alive)
        await self._changes.replicas_to(ReplicaPhase.DELETION_STARTED, alive)

    async def _finish(self, topic: str) -> None:
        """Every replica is gone: so are the topic's nodes, its configs and, last, its mark."""
        self._on_gone(topic)
        # The topic's own node goes after its configs: as long as it is there a successor goes on with it.
        ops = await delete_topic_ops(self._store, topic)
        ops.sort(key=lambda op: not op.path.startswith(znodes.CONFIG))
        if await self._store.exists(znodes.delete_topic_path(topic)):
            ops.append(Delete(znodes.delete_topic_path(topic)))
        for begin in range(0, len(ops), MAX_OPS):
            await controller_write(self._store, self._context, ops[begin : begin + MAX_OPS])
        self._context.drop_topic(topic)
        logger.info("Topic %s is deleted", topic)

    async def _unmark(self, topics: Iterable[str]) -> None:
        for topic in topics:
            logger.warning("Topic %s is not deleted: it does not exist, or deletions are not allowed", topic)
            try:
                await controller_write(self._store, self._context, [Delete(znodes.delete_topic_path(topic))])
            except NoNode:
                logger.debug("The mark of topic %s is gone already", topic)
