"""Takes partitions and replicas from one phase to another: decides, writes to ZooKeeper, remembers, tells
the brokers.

One call moves many partitions (or replicas) to one phase. Those that may not go there from where they are
stay, and that is logged. Partitions for which no leader is found are one line for each reason, however many
they are, and those that were in such a line are in no further one until they have had a leader. What the
brokers must hear is gathered in one ``ControlBatch`` and sent when everything is written.

Only the controller's one task calls this. :class:`ControllerMoved` goes through to it; nothing is sent then.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import monotonic

import msgspec

from tidelog.controller.cluster.context import ControllerContext, Leadership, Replica
from tidelog.controller.cluster.control_batch import ControlBatch
from tidelog.controller.cluster.elections import (
    RECOVERING,
    Elected,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)
from tidelog.controller.cluster.leadership_nodes import (
    create_leaderships,
    read_leaderships,
    write_leaderships,
)
from tidelog.controller.cluster.states import PartitionPhase, ReplicaPhase
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.store import SharedStore
from tidelog.metadata.znodes.znodes import NO_LEADER, PartitionState
from tidelog.metrics.controller_counts import ControllerCounts

logger = logging.getLogger(__name__)

StateChangeOutcome = KafkaError | None

_MOST_NAMED = 5


class Election(enum.Enum):
    """How a leader is to be found; see ``elections``."""

    OFFLINE = "offline"
    UNCLEAN = "unclean"
    """Like OFFLINE, and unclean ones are allowed whatever the topic says."""
    REASSIGNMENT = "reassignment"
    PREFERRED = "preferred"
    SHUTDOWN = "controlled shutdown"


class StateChanges:
    """The two state machines over one context."""

    def __init__(
        self,
        context: ControllerContext,
        store: SharedStore,
        new_batch: Callable[[], ControlBatch],
        send: Callable[[ControlBatch], None],
        unclean_topics: Callable[[Collection[str]], Collection[str]],
        counts: ControllerCounts | None = None,
    ) -> None:
        """``unclean_topics`` says which of some topics allow unclean elections."""
        self._context = context
        self._store = store
        self._new_batch = new_batch
        self._send = send
        self._unclean_topics = unclean_topics
        self._counts = counts or ControllerCounts()
        self._leaderless: set[TopicPartition] = set()
        """Partitions without a leader that the log has named already."""

    # Partitions

    async def partitions_to(
        self,
        phase: PartitionPhase,
        partitions: Iterable[TopicPartition],
        election: Election = Election.OFFLINE,
    ) -> dict[TopicPartition, StateChangeOutcome]:
        """Take partitions to ``phase``; for those that go online, why they did not, or None."""
        going = self._allowed_partitions(phase, partitions)
        if phase is not PartitionPhase.ONLINE:
            for partition in going:
                self._context.partition_phases[partition] = phase
            return {}
        batch = self._new_batch()
        fresh = [each for each in going if self._context.partition_phase(each) is PartitionPhase.NEW]
        others = [each for each in going if self._context.partition_phase(each) is not PartitionPhase.NEW]
        outcomes: dict[TopicPartition, StateChangeOutcome] = {}
        if fresh:
            outcomes |= await self._first_leaders(fresh, batch)
        if others:
            began_s = monotonic()
            outcomes |= await self._elect(others, election, batch)
            self._counts.elected_us.add((monotonic() - began_s) * 1_000_000)
        self._send(batch)
        return outcomes

    def _allowed_partitions(
        self, phase: PartitionPhase, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        allowed: list[TopicPartition] = []
        for partition in dict.fromkeys(partitions):
            if self._context.may_become(partition, phase):
                allowed.append(partition)
            else:
                now = self._context.partition_phase(partition)
                logger.error("Partition %s is %s and cannot become %s", partition, now.name, phase.name)
        return allowed

    async def _first_leaders(
        self, partitions: Sequence[TopicPartition], batch: ControlBatch
    ) -> dict[TopicPartition, StateChangeOutcome]:
        """The first live replica leads, and all that are alive are in sync: there is nothing to have yet."""
        states: dict[TopicPartition, PartitionState] = {}
        outcomes: dict[TopicPartition, StateChangeOutcome] = {}
        for partition in partitions:
            live = self._context.online_replicas(partition, self._context.assignment(partition).replicas)
            if live:
                states[partition] = PartitionState(
                    leader=live[0], leader_epoch=0, isr=tuple(live), controller_epoch=self._context.epoch
                )
            else:
                outcomes[partition] = _no_leader(partition, "none of its replicas is alive")
        written = await create_leaderships(self._store, self._context, states)
        for partition, leadership in written.done.items():
            self._context.leaderships[partition] = leadership
            self._context.partition_phases[partition] = PartitionPhase.ONLINE
            batch.become(leadership.state.isr, partition, is_new=True)
            outcomes[partition] = None
        for partition, error in written.failed.items():
            outcomes[partition] = _no_leader(partition, str(error))
        return outcomes

    async def _elect(
        self, partitions: Sequence[TopicPartition], election: Election, batch: ControlBatch
    ) -> dict[TopicPartition, StateChangeOutcome]:
        outcomes: dict[TopicPartition, StateChangeOutcome] = {}
        remaining: Sequence[TopicPartition] = partitions
        while remaining:
            known = await read_leaderships(self._store, remaining)
            changes: dict[TopicPartition, Leadership] = {}
            for partition in remaining:
                decided = self._decide(partition, known.get(partition), election)
                if isinstance(decided, KafkaError):
                    outcomes[partition] = decided
                else:
                    changes[partition] = decided
            written = await write_leaderships(self._store, self._context, changes)
            for partition, leadership in written.done.items():
                before = known.get(partition)
                if before is not None and leadership.state.leader not in before.state.isr:
                    self._counts.unclean_elections += 1
                self._context.leaderships[partition] = leadership
                self._context.partition_phases[partition] = PartitionPhase.ONLINE
                batch.become(self._recipients(partition, election), partition)
                outcomes[partition] = None
            for partition, error in written.failed.items():
                outcomes[partition] = _no_leader(partition, str(error))
            remaining = written.stale
        self._log_leaderless(outcomes, election)
        return outcomes

    def _log_leaderless(
        self, outcomes: Mapping[TopicPartition, StateChangeOutcome], election: Election
    ) -> None:
        """One line for each reason why partitions have no leader; a broker that shuts down logs its own."""
        by_reason: dict[str, list[TopicPartition]] = {}
        for partition, outcome in outcomes.items():
            if outcome is None:
                self._leaderless.discard(partition)
            elif partition not in self._leaderless:
                by_reason.setdefault(outcome.message.partition(": ")[2], []).append(partition)
        level = logging.INFO if election is Election.SHUTDOWN else logging.WARNING
        for reason, partitions in by_reason.items():
            named = ", ".join(map(str, partitions[:_MOST_NAMED]))
            more = f" and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else ""
            logger.log(level, "No leader for %d partitions: %s: %s%s", len(partitions), reason, named, more)
            if level == logging.WARNING:
                self._leaderless.update(partitions)

    def _decide(
        self, partition: TopicPartition, known: Leadership | None, election: Election
    ) -> Leadership | KafkaError:
        if known is None:
            return _no_leader(partition, "its state is not in ZooKeeper")
        if known.state.controller_epoch > self._context.epoch:
            return _no_leader(partition, "a newer controller has written its state")
        elected = self._elected(partition, known.state, election)
        if elected is None:
            return _no_leader(partition, f"no replica can lead ({election.value} election)")
        state = msgspec.structs.replace(
            known.state,
            leader=elected.leader,
            leader_epoch=known.state.leader_epoch + 1,
            isr=elected.isr,
            controller_epoch=self._context.epoch,
            leader_recovery_state=RECOVERING if elected.recovering else known.state.leader_recovery_state,
        )
        return Leadership(state, known.version)

    def _elected(
        self, partition: TopicPartition, state: PartitionState, election: Election
    ) -> Elected | None:
        context = self._context
        assignment = context.assignment(partition)
        replicas = assignment.replicas
        live = context.online_replicas(partition, replicas)
        match election:
            case Election.OFFLINE | Election.UNCLEAN:
                unclean = election is Election.UNCLEAN or bool(self._unclean_topics([partition.topic]))
                return elect_offline(replicas, state.isr, live, allow_unclean=unclean)
            case Election.REASSIGNMENT:
                return elect_for_reassignment(assignment.target, state.isr, live)
            case Election.PREFERRED:
                return elect_preferred(replicas, state.isr, live)
            case Election.SHUTDOWN:
                reachable = context.online_replicas(partition, replicas, even_leaving=True)
                return elect_for_shutdown(replicas, state.isr, reachable, context.shutting_down)

    def _recipients(self, partition: TopicPartition, election: Election) -> Sequence[int]:
        """Which replicas hear of an election: those that can, and of a shutdown the leaving ones too."""
        assignment = self._context.assignment(partition)
        if election in (Election.REASSIGNMENT, Election.PREFERRED):
            return assignment.target if election is Election.REASSIGNMENT else assignment.replicas
        return self._context.online_replicas(
            partition, assignment.replicas, even_leaving=election is Election.SHUTDOWN
        )

    # Replicas

    async def replicas_to(self, phase: ReplicaPhase, replicas: Iterable[Replica]) -> None:
        """Take replicas to ``phase``."""
        batch = self._new_batch()
        going = self._allowed_replicas(phase, replicas)
        match phase:
            case ReplicaPhase.NEW:
                self._begin(going, batch)
            case ReplicaPhase.ONLINE:
                self._bring_online(going, batch)
            case ReplicaPhase.OFFLINE:
                await self._take_offline(going, batch)
            case ReplicaPhase.DELETION_STARTED:
                for replica in going:
                    batch.stop(replica.broker, replica.partition, delete=True)
            case ReplicaPhase.NON_EXISTENT:
                for replica in going:
                    shrunk = self._context.assignment(replica.partition).without(replica.broker)
                    self._context.put_assignment(replica.partition, shrunk)
                    del self._context.replica_phases[replica]
                going = []
        for replica in going:
            self._context.replica_phases[replica] = phase
        self._send(batch)

    def _allowed_replicas(self, phase: ReplicaPhase, replicas: Iterable[Replica]) -> list[Replica]:
        allowed: list[Replica] = []
        for replica in dict.fromkeys(replicas):
            if self._context.replica_may_become(replica, phase):
                allowed.append(replica)
            else:
                now = self._context.replica_phase(replica)
                logger.error(
                    "The replica of %s on broker %d is %s and cannot become %s",
                    replica.partition,
                    replica.broker,
                    now.name,
                    phase.name,
                )
        return allowed

    def _begin(self, replicas: list[Replica], batch: ControlBatch) -> None:
        """New replicas of a partition that has a leader follow it; those of a new partition wait for one."""
        for replica in list(replicas):
            known = self._context.leaderships.get(replica.partition)
            if known is None:
                continue
            if known.state.leader == replica.broker:
                logger.error("Broker %d leads %s and is no new replica", replica.broker, replica.partition)
                replicas.remove(replica)
            else:
                batch.become([replica.broker], replica.partition, is_new=True)

    def _bring_online(self, replicas: Sequence[Replica], batch: ControlBatch) -> None:
        for replica in replicas:
            was_new = self._context.replica_phase(replica) is ReplicaPhase.NEW
            if not was_new and replica.partition in self._context.leaderships:
                batch.become([replica.broker], replica.partition)

    async def _take_offline(self, replicas: list[Replica], batch: ControlBatch) -> None:
        """Stop replicas and take them out of the in-sync ones; the others hear of the new ones."""
        for replica in replicas:
            batch.stop(replica.broker, replica.partition, delete=False)
        by_broker: dict[int, list[TopicPartition]] = {}
        for replica in replicas:
            if replica.partition in self._context.leaderships:
                by_broker.setdefault(replica.broker, []).append(replica.partition)
            else:
                batch.tell(self._context.brokers, [replica.partition])
        for broker, partitions in by_broker.items():
            shrunk = await self._leave_isr(broker, partitions)
            for partition in shrunk:
                if partition.topic not in self._context.deleting:
                    others = [each for each in self._context.assignment(partition).replicas if each != broker]
                    batch.become(others, partition)
            for partition in set(partitions) - set(shrunk):
                # Its state cannot be changed; it stays what it is, and the next event tries again.
                replicas.remove(Replica(partition, broker))

    async def _leave_isr(
        self, broker: int, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Leadership]:
        """Write the states without ``broker`` in sync or leading; gives them with those that need no
        change."""
        done: dict[TopicPartition, Leadership] = {}
        remaining: Sequence[TopicPartition] = partitions
        while remaining:
            known = await read_leaderships(self._store, remaining)
            changes: dict[TopicPartition, Leadership] = {}
            for partition, leadership in known.items():
                if broker in leadership.state.isr:
                    changes[partition] = self._without(leadership, broker)
                else:
                    done[partition] = self._context.leaderships[partition] = leadership
            for partition in set(remaining) - known.keys():
                if partition.topic not in self._context.deleting:
                    logger.error("The state of %s is not in ZooKeeper", partition)
            written = await write_leaderships(self._store, self._context, changes)
            for partition, leadership in written.done.items():
                done[partition] = self._context.leaderships[partition] = leadership
            for partition, error in written.failed.items():
                logger.error("Broker %d stays among the in-sync replicas of %s: %s", broker, partition, error)
            remaining = written.stale
        return done

    def _without(self, leadership: Leadership, broker: int) -> Leadership:
        """The last in-sync replica stays on record, so that it, and only it, may lead again later."""
        state = leadership.state
        isr = state.isr if len(state.isr) == 1 else tuple(each for each in state.isr if each != broker)
        changed = msgspec.structs.replace(
            state,
            leader=NO_LEADER if state.leader == broker else state.leader,
            leader_epoch=state.leader_epoch + 1,
            isr=isr,
            controller_epoch=self._context.epoch,
        )
        return Leadership(changed, leadership.version)


def _no_leader(partition: TopicPartition, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"Partition {partition}: {reason}")
