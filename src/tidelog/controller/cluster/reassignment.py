"""Moves partitions to other brokers.

A reassignment has three states of a partition's replicas: while it runs, the node of the topic holds the
target replicas and those that are to go, with lists of what is being added and removed. New replicas are
started and catch up; when every target replica is in sync, the leader moves if it must, the old replicas
are stopped and deleted, and the node holds the target alone. A successor finds all of it in the node and
goes on.

Reassignments come through the API or, as old tools have it, through ``/admin/reassign_partitions``; the
last one wins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tidelog.controller.cluster.context import ControllerContext, Leadership, Replica, ReplicaAssignment
from tidelog.controller.cluster.control_batch import ControlBatch
from tidelog.controller.cluster.leadership_nodes import (
    controller_write,
    read_leaderships,
    write_leaderships,
)
from tidelog.controller.cluster.notices import read_request
from tidelog.controller.cluster.state_changes import Election, StateChanges
from tidelog.controller.cluster.states import PartitionPhase, ReplicaPhase
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.store import Delete, Set, SharedStore
from tidelog.metadata.znodes import znode_requests, znodes

logger = logging.getLogger(__name__)

_AT_ONCE = 64
"""After so many partitions of a request others have their turn."""

TargetReplicas = tuple[int, ...] | None
"""The replicas that a partition is to have; None takes a reassignment back."""


class Reassignments:
    """The reassignments of one term of office."""

    def __init__(
        self,
        context: ControllerContext,
        store: SharedStore,
        changes: StateChanges,
        new_batch: Callable[[], ControlBatch],
        send: Callable[[ControlBatch], None],
    ) -> None:
        self._context = context
        self._store = store
        self._changes = changes
        self._new_batch = new_batch
        self._send = send

    async def start(
        self,
        targets: Mapping[TopicPartition, TargetReplicas],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin, replace or take back reassignments; each one's refusal, or None."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        accepted: dict[TopicPartition, ReplicaAssignment] = {}
        for count, (partition, target) in enumerate(targets.items(), 1):
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
            try:
                planned = self._planned(partition, target, keep_factor=not allow_replication_factor_change)
                accepted[partition] = planned
            except KafkaError as error:
                outcomes[partition] = error.without_history()
        await self._forget_requested(accepted)
        for partition, assignment in accepted.items():
            await self._proceed(partition, assignment)
            outcomes[partition] = None
        return outcomes

    async def start_requested(self) -> None:
        """Begin what ``/admin/reassign_partitions`` asks for; what cannot be begun is struck from it."""
        requested = await self._requested()
        refused: list[TopicPartition] = []
        for partition, target in requested.items():
            now = self._context.assignment(partition)
            if now.is_being_reassigned and now.target == target:
                # On its way; the node is read anew whenever one of its partitions is struck.
                continue
            try:
                await self._proceed(partition, self._planned(partition, target))
            except KafkaError as error:
                logger.warning("Partition %s is not reassigned: %s", partition, error.message)
                refused.append(partition)
        await self._forget_requested(refused)

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Take reassignments further: a broker is back, replicas have caught up, or there is a new
        controller."""
        for partition in partitions:
            assignment = self._context.assignment(partition)
            if assignment.is_being_reassigned and partition.topic not in self._context.deleting:
                await self._proceed(partition, assignment)

    async def caught_up(self, partitions: Iterable[TopicPartition]) -> None:
        """In-sync replicas have changed: finish what can be finished."""
        for partition in partitions:
            assignment = self._context.assignment(partition)
            if assignment.is_being_reassigned and await self._is_complete(partition, assignment):
                await self._proceed(partition, assignment)

    def _planned(
        self, partition: TopicPartition, target: TargetReplicas, *, keep_factor: bool = False
    ) -> ReplicaAssignment:
        now = self._context.assignment(partition)
        if not now.replicas or partition.topic in self._context.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if target is None:
            if not now.is_being_reassigned:
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            planned = now.reassigned_to(now.origin)
        else:
            if keep_factor and len(target) != len(now.target):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"The replication factor is changed from {len(now.target)} to {len(target)}",
                )
            planned = now.reassigned_to(target)
            _check_target(target, planned, self._context.live_ids)
        self._check_kept(partition, planned)
        return planned

    def _check_kept(self, partition: TopicPartition, planned: ReplicaAssignment) -> None:
        """Somebody who is in sync must stay: what replaces or takes back a reassignment stops the replicas
        that are not wanted any more at once, with all that only they have (as KRaft's controller refuses
        it)."""
        known = self._context.leaderships.get(partition)
        if known is not None and not set(known.state.isr) & set(planned.replicas):
            raise _invalid(
                f"None of the in-sync replicas {list(known.state.isr)} would be left among "
                f"{list(planned.replicas)}: wait until one of these is in sync"
            )

    async def _proceed(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        await self._take_over(partition, assignment)
        if await self._is_complete(partition, assignment):
            await self._complete(partition, assignment)
        else:
            await self._announce(partition, assignment)
            added = [Replica(partition, broker) for broker in assignment.adding]
            await self._changes.replicas_to(
                ReplicaPhase.NEW,
                [each for each in added if self._context.replica_may_become(each, ReplicaPhase.NEW)],
            )

    async def _take_over(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Stop replicas that an earlier reassignment added in vain, and write the assignment down.

        In this order: a successor of a controller that falls in between starts them again, out of sync. In
        the other order it would find replicas in sync, one of them the leader perhaps, that are none.
        """
        before = self._context.assignment(partition)
        if before == assignment:
            return
        self._context.put_assignment(partition, assignment)
        needless = [each for each in before.replicas if each not in assignment.replicas]
        await self._stop(partition, needless)
        await self._write(partition, assignment)
        if assignment.is_being_reassigned and self._is_leaderless(partition):
            # One of those has led, after a failure.
            await self._changes.partitions_to(PartitionPhase.OFFLINE, [partition])
            await self._changes.partitions_to(PartitionPhase.ONLINE, [partition])

    def _is_leaderless(self, partition: TopicPartition) -> bool:
        known = self._context.leaderships.get(partition)
        return known is not None and known.state.leader == znodes.NO_LEADER

    async def _complete(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        final = ReplicaAssignment(assignment.target)
        added = [Replica(partition, broker) for broker in assignment.adding]
        await self._changes.replicas_to(
            ReplicaPhase.ONLINE,
            [each for each in added if self._context.replica_may_become(each, ReplicaPhase.ONLINE)],
        )
        self._context.put_assignment(partition, final)
        known = self._context.leaderships.get(partition)
        leader = znodes.NO_LEADER if known is None else known.state.leader
        if known is None:
            # It has never had a leader, because none of its replicas was alive.
            await self._changes.partitions_to(PartitionPhase.ONLINE, [partition])
        elif leader in final.replicas and self._context.is_online(leader, partition):
            await self._announce(partition, final)
        else:
            await self._changes.partitions_to(PartitionPhase.ONLINE, [partition], Election.REASSIGNMENT)
        await self._stop(partition, assignment.removing)
        await self._write(partition, final)
        await self._forget_requested([partition], final.replicas)
        batch = self._new_batch()
        batch.tell(self._context.brokers, [partition])
        self._send(batch)
        logger.info("Partition %s is on %s now", partition, list(final.replicas))

    async def _stop(self, partition: TopicPartition, brokers: Sequence[int]) -> None:
        """Replicas that are not wanted any more; whether a broker really deletes its log is its own
        affair."""
        replicas = [Replica(partition, broker) for broker in brokers]
        for phase in (
            ReplicaPhase.OFFLINE,
            ReplicaPhase.DELETION_STARTED,
            ReplicaPhase.DELETION_SUCCESSFUL,
            ReplicaPhase.NON_EXISTENT,
        ):
            await self._changes.replicas_to(phase, replicas)

    async def _announce(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Tell all replicas, old and new, of the assignment, in a new leader epoch so that they take it
        over."""
        while True:
            known = (await read_leaderships(self._store, [partition])).get(partition)
            if known is None:
                logger.error("The state of %s is not in ZooKeeper, it is not reassigned", partition)
                return
            state = msgspec.structs.replace(
                known.state,
                leader_epoch=known.state.leader_epoch + 1,
                controller_epoch=self._context.epoch,
            )
            written = await write_leaderships(
                self._store, self._context, {partition: Leadership(state, known.version)}
            )
            if partition in written.done:
                break
            if partition in written.failed:
                raise written.failed[partition]
        self._context.leaderships[partition] = written.done[partition]
        batch = self._new_batch()
        batch.become(assignment.origin, partition)
        batch.become(assignment.adding, partition, is_new=True)
        self._send(batch)

    async def _is_complete(self, partition: TopicPartition, assignment: ReplicaAssignment) -> bool:
        if not assignment.is_being_reassigned:
            return True
        known = (await read_leaderships(self._store, [partition])).get(partition)
        return known is not None and set(assignment.target) <= set(known.state.isr)

    async def _write(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self._context.put_assignment(partition, assignment)
        raw = self._context.topic_node(partition.topic).encode()
        await controller_write(self._store, self._context, [Set(znodes.topic_path(partition.topic), raw)])

    # /admin/reassign_partitions

    async def _requested(self) -> dict[TopicPartition, tuple[int, ...]]:
        requested = await read_request(
            self._store, self._context, znodes.REASSIGN_PARTITIONS, znode_requests.decode_reassignment
        )
        return requested or {}

    async def _forget_requested(
        self, partitions: Iterable[TopicPartition], target: tuple[int, ...] | None = None
    ) -> None:
        """Strike partitions from the node, those with another target excepted; an empty one is deleted."""
        requested = await self._requested()
        gone = {each for each in partitions if target is None or requested.get(each) == target}
        if not gone & requested.keys():
            return
        left = {partition: replicas for partition, replicas in requested.items() if partition not in gone}
        path = znodes.REASSIGN_PARTITIONS
        op = Set(path, znode_requests.encode_reassignment(left)) if left else Delete(path)
        await controller_write(self._store, self._context, [op])


def _check_target(target: Sequence[int], planned: ReplicaAssignment, live: Iterable[int]) -> None:
    if not target:
        raise _invalid("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        raise _invalid(f"Duplicate replica ids in partition reassignment replica list: {list(target)}")
    if min(target) < 0:
        raise _invalid(f"Invalid broker id in replica list: {list(target)}")
    if not set(planned.adding) <= set(live):
        raise _invalid(
            f"Replica assignment has brokers that are not alive. Replica list: {list(planned.adding)}, "
            f"live broker list: {sorted(live)}"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
