"""All that the controller knows: brokers, topics, who leads what, and in which phase everything is.

It is ZooKeeper's content, as far as this controller has read or written it, in memory. Only the
controller's one task touches it (``events``), so nothing here waits or locks. It is filled when a broker
becomes controller (``failover``) and thrown away when it ceases to be.

Invariant: ``leaderships`` has an entry for every partition whose state node is known; phases are kept for
every partition and replica of ``assignments``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from tidelog.controller.cluster.states import (
    PARTITION_BEFORE,
    REPLICA_BEFORE,
    PartitionPhase,
    ReplicaPhase,
)
from tidelog.ids import NO_LEADER_EPOCH, TopicPartition, Uuid
from tidelog.metadata.znodes.znodes import BrokerRegistration, PartitionState, TopicAssignment

EPOCH_DURING_DELETE = -2
LEADER_DURING_DELETE = -2


class Replica(NamedTuple):
    """A partition on a broker."""

    partition: TopicPartition
    broker: int


class ReplicaAssignment(msgspec.Struct, frozen=True, gc=False):
    """The brokers of one partition; while it is being reassigned ``replicas`` holds old and new ones."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that remain when a reassignment is done."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas from before a reassignment."""
        return tuple(each for each in self.replicas if each not in self.adding)

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas are on their way in or out."""
        return bool(self.adding or self.removing)

    def reassigned_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """On the way to ``target``: its replicas first, then those that are to go."""
        leaving = tuple(each for each in self.origin if each not in target)
        coming = tuple(each for each in target if each not in self.origin)
        return ReplicaAssignment((*target, *leaving), coming, leaving)

    def without(self, broker: int) -> ReplicaAssignment:
        """The same without one replica."""
        return ReplicaAssignment(
            *(
                tuple(each for each in some if each != broker)
                for some in (self.replicas, self.adding, self.removing)
            )
        )


class Leadership(msgspec.Struct, frozen=True, gc=False):
    """What a partition's state node holds, and its version, which is the partition's epoch."""

    state: PartitionState
    version: int


class LiveBroker(NamedTuple):
    """A registered broker; its epoch is the transaction that registered it."""

    registration: BrokerRegistration
    epoch: int


class ControllerContext:
    """The controller's memory."""

    def __init__(self, epoch: int = 0, epoch_version: int = 0) -> None:
        self.epoch = epoch
        self.epoch_version = epoch_version
        """The version of ``/controller_epoch``, which every write of this controller checks."""
        self.brokers: dict[int, LiveBroker] = {}
        """Registered brokers, those that are shutting down included."""
        self.shutting_down: set[int] = set()
        self.topic_ids: dict[str, Uuid] = {}
        self.assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.leaderships: dict[TopicPartition, Leadership] = {}
        self.partition_phases: dict[TopicPartition, PartitionPhase] = {}
        self.replica_phases: dict[Replica, ReplicaPhase] = {}
        self.offline_directories: dict[int, set[TopicPartition]] = {}
        """Replicas on log directories that have failed, by broker."""
        self.deleting: set[str] = set()
        """Topics that are to be deleted."""
        self.deletion_started: set[str] = set()
        self.deletion_ineligible: set[str] = set()
        """Those of ``deleting`` that cannot go on yet: a replica is away."""

    # Brokers

    @property
    def live_ids(self) -> set[int]:
        """Brokers that may be given something to lead."""
        return self.brokers.keys() - self.shutting_down

    def is_online(self, broker: int, partition: TopicPartition, *, even_leaving: bool = False) -> bool:
        """Whether a replica can serve: its broker is alive and its log directory is well."""
        if broker not in self.brokers or (not even_leaving and broker in self.shutting_down):
            return False
        return partition not in self.offline_directories.get(broker, ())

    def online_replicas(
        self, partition: TopicPartition, replicas: Iterable[int], *, even_leaving: bool = False
    ) -> list[int]:
        """Those of ``replicas`` that can serve, in their order."""
        return [each for each in replicas if self.is_online(each, partition, even_leaving=even_leaving)]

    # Topics

    def put_topic(self, topic: str, assignment: TopicAssignment) -> None:
        """Take over what the node of a topic says."""
        if assignment.topic_id is not None:
            self.topic_ids[topic] = assignment.topic_id
        self.assignments[topic] = {
            index: ReplicaAssignment(
                replicas,
                assignment.adding_replicas.get(index, ()),
                assignment.removing_replicas.get(index, ()),
            )
            for index, replicas in assignment.partitions.items()
        }

    def topic_node(self, topic: str) -> TopicAssignment:
        """What the node of a topic is to say."""
        partitions = self.assignments[topic]
        return TopicAssignment(
            topic_id=self.topic_ids.get(topic),
            partitions={index: each.replicas for index, each in partitions.items()},
            adding_replicas={index: each.adding for index, each in partitions.items() if each.adding},
            removing_replicas={index: each.removing for index, each in partitions.items() if each.removing},
        )

    def drop_topic(self, topic: str) -> None:
        """Forget a topic that is gone."""
        for partition in self.partitions_of(topic):
            self.leaderships.pop(partition, None)
            self.partition_phases.pop(partition, None)
        for replica in [each for each in self.replica_phases if each.partition.topic == topic]:
            del self.replica_phases[replica]
        for broker, lost in self.offline_directories.items():
            self.offline_directories[broker] = {each for each in lost if each.topic != topic}
        self.assignments.pop(topic, None)
        self.topic_ids.pop(topic, None)
        for some in (self.deleting, self.deletion_started, self.deletion_ineligible):
            some.discard(topic)

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """The replicas of a partition; none for an unknown one."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, ReplicaAssignment(()))

    def put_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Change the replicas of one partition."""
        self.assignments.setdefault(partition.topic, {})[partition.partition] = assignment

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic."""
        return [TopicPartition(topic, index) for index in self.assignments.get(topic, ())]

    def all_partitions(self) -> Iterator[TopicPartition]:
        """All partitions of all topics."""
        for topic in self.assignments:
            yield from self.partitions_of(topic)

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        """All replicas of some partitions."""
        return [Replica(each, broker) for each in partitions for broker in self.assignment(each).replicas]

    def replicas_on(self, brokers: Collection[int]) -> list[Replica]:
        """All replicas on some brokers."""
        return [each for each in self.replicas_of(self.all_partitions()) if each.broker in brokers]

    def being_reassigned(self) -> list[TopicPartition]:
        """The partitions whose reassignment is under way."""
        return [each for each in self.all_partitions() if self.assignment(each).is_being_reassigned]

    # Leadership

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The epoch to tell brokers: a sentinel for topics that are being deleted."""
        if partition.topic in self.deleting:
            return EPOCH_DURING_DELETE
        known = self.leaderships.get(partition)
        return NO_LEADER_EPOCH if known is None else known.state.leader_epoch

    def led_by(self, brokers: Collection[int]) -> list[TopicPartition]:
        """The partitions that some brokers lead, without those of topics that are being deleted."""
        return self._leaderships_where(lambda partition, state: state.leader in brokers)

    def without_live_leader(self) -> list[TopicPartition]:
        """The partitions whose leader cannot serve, without those of topics that are being deleted."""
        return self._leaderships_where(lambda partition, state: not self.is_online(state.leader, partition))

    def _leaderships_where(
        self, holds: Callable[[TopicPartition, PartitionState], bool]
    ) -> list[TopicPartition]:
        return [
            partition
            for partition, leadership in self.leaderships.items()
            if partition.topic not in self.deleting and holds(partition, leadership.state)
        ]

    # Phases

    def partition_phase(self, partition: TopicPartition) -> PartitionPhase:
        """A partition's phase; one that was never heard of does not exist."""
        return self.partition_phases.get(partition, PartitionPhase.NON_EXISTENT)

    def replica_phase(self, replica: Replica) -> ReplicaPhase:
        """A replica's phase; one that was never heard of does not exist."""
        return self.replica_phases.get(replica, ReplicaPhase.NON_EXISTENT)

    def may_become(self, partition: TopicPartition, phase: PartitionPhase) -> bool:
        """Whether a partition may go to ``phase`` from where it is."""
        return self.partition_phase(partition) in PARTITION_BEFORE[phase]

    def replica_may_become(self, replica: Replica, phase: ReplicaPhase) -> bool:
        """Whether a replica may go to ``phase`` from where it is."""
        return self.replica_phase(replica) in REPLICA_BEFORE[phase]

    def partitions_in(self, phases: Collection[PartitionPhase]) -> list[TopicPartition]:
        """All partitions in some phases."""
        return [each for each, phase in self.partition_phases.items() if phase in phases]

    def replicas_in(self, topic: str, phase: ReplicaPhase) -> list[Replica]:
        """The replicas of a topic in a phase."""
        return [
            each for each in self.replicas_of(self.partitions_of(topic)) if self.replica_phase(each) is phase
        ]

    def imbalance(self) -> Mapping[int, tuple[list[TopicPartition], int]]:
        """For each broker: partitions it is preferred to lead but does not, and how many it is preferred
        for."""
        found: dict[int, tuple[list[TopicPartition], int]] = {}
        for partition in self.all_partitions():
            replicas = self.assignment(partition).replicas
            if not replicas or partition.topic in self.deleting:
                continue
            strayed, preferred = found.get(replicas[0], ([], 0))
            known = self.leaderships.get(partition)
            if known is not None and known.state.leader != replicas[0]:
                strayed.append(partition)
            found[replicas[0]] = strayed, preferred + 1
        return found
