"""Brokers come, go, restart, fail in part, and shut down in an orderly way: what becomes of their partitions.

A broker that came is told everything, its replicas go online, and partitions without a leader get another
try. Of a broker that went, every partition it led gets another leader, and its replicas leave the in-sync
ones. One whose registration is newer than the known one has restarted unseen: it went, and then came. A
broker that shuts down hands over what it leads while it still serves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from tidelog.controller.cluster.context import ControllerContext, LiveBroker, Replica
from tidelog.controller.cluster.control_batch import ControlBatch
from tidelog.controller.cluster.reassignment import Reassignments
from tidelog.controller.cluster.state_changes import Election, StateChanges
from tidelog.controller.cluster.states import PartitionPhase, ReplicaPhase
from tidelog.controller.cluster.topic_deletion import TopicDeletion
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

logger = logging.getLogger(__name__)

UNKNOWN_BROKER_EPOCH = -1


class BrokerChanges:
    """The brokers of one term of office."""

    def __init__(
        self,
        context: ControllerContext,
        changes: StateChanges,
        deletion: TopicDeletion,
        reassignments: Reassignments,
        new_batch: Callable[[], ControlBatch],
        send: Callable[[ControlBatch], None],
    ) -> None:
        self._context = context
        self._changes = changes
        self._deletion = deletion
        self._reassignments = reassignments
        self._new_batch = new_batch
        self._send = send

    async def registered(
        self, brokers: Mapping[int, LiveBroker], connect: Callable[[Mapping[int, LiveBroker]], None]
    ) -> None:
        """These, and no others, are registered now; ``connect`` is told whom to hold connections to."""
        known = dict(self._context.brokers)
        come = {broker: each for broker, each in brokers.items() if broker not in known}
        bounced = {
            broker: each
            for broker, each in brokers.items()
            if broker in known and each.epoch > known[broker].epoch
        }
        gone = known.keys() - brokers.keys()
        if not come and not bounced and not gone:
            return
        logger.info("Brokers come: %s, gone: %s, restarted: %s", sorted(come), sorted(gone), sorted(bounced))
        connect({broker: each for broker, each in brokers.items() if broker not in bounced})
        connect(brokers)
        if come:
            self._context.brokers |= come
            await self._came(come)
        if bounced:
            await self._went(bounced)
            self._context.brokers |= bounced
            await self._came(bounced)
        if gone:
            await self._went(gone)

    def modified(self, broker: int, now: LiveBroker) -> bool:
        """A broker's registration has other contents; gives whether anybody need know."""
        before = self._context.brokers.get(broker)
        if before is None or before.epoch != now.epoch or before.registration == now.registration:
            return False
        self._context.brokers[broker] = now
        self.tell(self._context.brokers)
        return True

    async def _came(self, brokers: Collection[int]) -> None:
        for broker in brokers:
            self._context.offline_directories.pop(broker, None)
        self.tell(self._context.brokers.keys() - set(brokers))
        known = [each for each in self._context.leaderships if each.topic not in self._context.deleting]
        self.tell(brokers, known)
        replicas = self._context.replicas_on(brokers)
        await self._changes.replicas_to(
            ReplicaPhase.ONLINE,
            [each for each in replicas if self._context.replica_may_become(each, ReplicaPhase.ONLINE)],
        )
        await self.elect_missing()
        await self._reassignments.resume(
            [
                each
                for each in self._context.being_reassigned()
                if set(self._context.assignment(each).target) & set(brokers)
            ]
        )
        await self._deletion.resume({each.partition.topic for each in replicas})

    async def _went(self, brokers: Collection[int]) -> None:
        replicas = self._context.replicas_on(brokers)
        for broker in brokers:
            self._context.brokers.pop(broker, None)
            self._context.shutting_down.discard(broker)
            self._context.offline_directories.pop(broker, None)
        await self.went_offline(replicas)

    async def went_offline(self, replicas: Collection[Replica]) -> None:
        """Replicas cannot serve any more: their broker is gone, or their log directory is."""
        orphaned = self._context.without_live_leader()
        await self._changes.partitions_to(PartitionPhase.OFFLINE, orphaned)
        outcomes = await self.elect_missing()
        staying = [each for each in replicas if each.partition.topic not in self._context.deleting]
        await self._changes.replicas_to(ReplicaPhase.OFFLINE, staying)
        await self._deletion.failed(
            each for each in replicas if each.partition.topic in self._context.deleting
        )
        if not staying and not any(outcome is None for outcome in outcomes.values()):
            # Nobody has heard of anything yet; that a broker is gone everybody must.
            self.tell(self._context.brokers)

    async def elect_missing(
        self, topics: Collection[str] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Try to give every partition a leader that has none."""
        waiting = [
            each
            for each in self._context.partitions_in((PartitionPhase.NEW, PartitionPhase.OFFLINE))
            if each.topic not in self._context.deleting and (topics is None or each.topic in topics)
        ]
        return await self._changes.partitions_to(PartitionPhase.ONLINE, waiting) if waiting else {}

    async def log_dirs_failed(self, brokers: Iterable[int]) -> None:
        """Ask brokers which of their replicas are still well: their answers to LeaderAndIsr say so."""
        replicas = self._context.replicas_on(set(brokers))
        await self._changes.replicas_to(
            ReplicaPhase.ONLINE,
            [each for each in replicas if self._context.replica_may_become(each, ReplicaPhase.ONLINE)],
        )

    async def directories_answered(self, broker: int, answers: Mapping[TopicPartition, int]) -> None:
        """A broker has said which replicas it could take over, and which not for want of a log directory."""
        if broker not in self._context.brokers:
            return
        before = self._context.offline_directories.get(broker, set())
        broken = {each for each, code in answers.items() if code == ErrorCode.KAFKA_STORAGE_ERROR}
        well = {each for each, code in answers.items() if code == ErrorCode.NONE}
        now = (before - well) | broken
        self._context.offline_directories[broker] = now
        if now - before:
            logger.warning(
                "Broker %d has lost replicas with a log directory: %s", broker, sorted(now - before)
            )
            await self.went_offline([Replica(each, broker) for each in sorted(now - before)])

    async def shut_down(self, broker: int, broker_epoch: int) -> list[TopicPartition]:
        """Hand over what a broker leads; gives what it leads still."""
        known = self._context.brokers.get(broker)
        if known is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist.")
        if broker_epoch not in (UNKNOWN_BROKER_EPOCH, known.epoch) and broker_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker} asks to shut down in epoch {broker_epoch}, it is in {known.epoch} now",
            )
        logger.info("Broker %d shuts down", broker)
        self._context.shutting_down.add(broker)
        held = [
            each.partition
            for each in self._context.replicas_on({broker})
            if len(self._context.assignment(each.partition).replicas) > 1
            and each.partition in self._context.leaderships
            and each.partition.topic not in self._context.deleting
        ]
        led = [each for each in held if self._context.leaderships[each].state.leader == broker]
        await self._changes.partitions_to(PartitionPhase.ONLINE, led, Election.SHUTDOWN)
        followed = [Replica(each, broker) for each in held if each not in set(led)]
        await self._changes.replicas_to(ReplicaPhase.OFFLINE, followed)
        return [
            each
            for each in self._context.led_by({broker})
            if len(self._context.assignment(each).replicas) > 1
        ]

    def tell(self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """Send metadata of the live brokers, and of some partitions, to brokers."""
        batch = self._new_batch()
        batch.tell(brokers, partitions)
        self._send(batch)
