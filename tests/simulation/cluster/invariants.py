"""What must hold in a cluster at every moment, whatever happens; each has a name that its failure says.

- *one leader per epoch*: no two brokers lead a partition in the same leader epoch;
- *leader epochs only grow*: in ZooKeeper, and on each broker as long as it lives;
- *the high watermark of a leader never goes back* within its epoch, and so do not those of followers, except
  where they are cut back to their leader;
- *in-sync replicas have what is committed*: who is in sync in a leader's eyes, in the same epoch, has
  everything before the leader's high watermark;
- *replicas agree below the high watermark*: byte for byte;
- *in-sync replicas are replicas*: the written ISR is part of the written assignment;
- *only the controller writes*: whatever is written about a partition bears the present controller epoch;
- *controller epochs only grow*, on each broker.

What clients may see is in ``history``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from tests.simulation.cluster.history import BrokenPromise
from tests.simulation.cluster.machine import BrokerLife
from tests.simulation.cluster.world import ClusterWorld, Held

from tidelog.ids import TopicPartition
from tidelog.metadata.embedded.node_tree import Effect
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.znodes import PartitionState, TopicAssignment
from tidelog.records.batch import BatchHeader, iter_batches
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.record import decode_batch
from tidelog.replication.partition import Partition
from tidelog.storage.log.log import Isolation

_LOOK_S = 0.04
_COMPARE_EVERY = 20
_READ_BYTES = 1 << 20

Key = tuple[bytes, int]
"""A partition of one incarnation of a topic."""


class Invariants:
    """Looks at everything, again and again."""

    def __init__(self, world: ClusterWorld, loose: Sequence[str]) -> None:
        """``loose`` topics may lose records that were committed: unclean elections are allowed there."""
        self.world = world
        self.loose = frozenset(loose)
        self.broken: BrokenPromise | None = None
        self.committed: dict[Key, dict[int, int]] = {}
        """The checksum of each batch that any replica had below its high watermark, by base offset."""
        self._leaders: dict[tuple[Key, int], int] = {}
        self._watermarks: dict[tuple[BrokerLife, Partition, int], int] = {}
        self._epochs: dict[tuple[BrokerLife, Partition], int] = {}
        self._written: dict[tuple[bytes | None, TopicPartition], int] = {}
        self._controllers: dict[BrokerLife, int] = {}
        self._compared: dict[tuple[BrokerLife, Partition], int] = {}
        world.ensemble.on_write = self._guarded_write

    # What is written to ZooKeeper

    def _guarded_write(self, effects: Sequence[Effect]) -> None:
        """The writer must not be the one who is told."""
        try:
            for effect in effects:
                if effect.data is not None and effect.path.startswith(f"{znodes.TOPICS}/"):
                    self._check_write(effect.path, effect.data)
        except BrokenPromise as error:
            self.broken = self.broken or error

    def _check_write(self, path: str, data: bytes) -> None:
        topic, _, rest = path[len(znodes.TOPICS) + 1 :].partition("/")
        if rest.endswith("/state"):
            self._check_state(TopicPartition(topic, int(rest.split("/")[1])), data)

    def _check_state(self, name: TopicPartition, data: bytes) -> None:
        state = PartitionState.decode(name, data)
        node = self.world.ensemble.tree.find(znodes.CONTROLLER_EPOCH)
        present = znodes.decode_controller_epoch(node.data) if node is not None else -1
        if state.controller_epoch != present:
            raise BrokenPromise(
                f"only the controller writes: {name} was written in controller epoch "
                f"{state.controller_epoch}, it is {present}"
            )
        key = self.world.topic_id(name.topic), name
        if state.leader_epoch < self._written.get(key, -1):
            raise BrokenPromise(
                f"leader epochs only grow: {name} goes from {self._written[key]} to {state.leader_epoch}"
            )
        self._written[key] = state.leader_epoch
        assigned = self.world.assignment(name.topic)
        replicas = () if assigned is None else _everybody(assigned, name.partition)
        if assigned is not None and not set(state.isr) <= set(replicas):
            raise BrokenPromise(
                f"in-sync replicas are replicas: {name} has {list(state.isr)} in sync, of {list(replicas)}"
            )

    # What brokers do

    async def watch(self) -> None:
        """Look for ever; the first broken promise ends it."""
        count = 0
        while True:
            await asyncio.sleep(_LOOK_S)
            count += 1
            if self.broken is not None:
                raise self.broken
            self.look()
            if not count % _COMPARE_EVERY:
                self.compare()

    def look(self) -> None:
        """Check what can be checked at a glance."""
        for life, broker in self.world.brokers():
            if life.failure is not None:
                raise BrokenPromise(f"a broker can start: {life.name} cannot, {life.failure!r}")
            if not life.is_ready:
                continue
            epoch = broker.cluster.controller_requests.controller_epoch
            if epoch < self._controllers.get(life, 0):
                raise BrokenPromise(f"controller epochs only grow: {life.name} goes back to {epoch}")
            self._controllers[life] = epoch
            for partition in broker.partitions:
                self._look_at(Held(life, partition))

    def _look_at(self, held: Held) -> None:
        life, partition = held
        epoch = partition.leader_epoch
        if epoch < self._epochs.get(held, -1):
            raise BrokenPromise(f"leader epochs only grow: {partition} of {life.name} goes back")
        self._epochs[held] = epoch
        if not partition.is_leader:
            return
        name = partition.topic_partition
        leader = self._leaders.setdefault(((partition.topic_id, name.partition), epoch), partition.broker_id)
        if leader != partition.broker_id:
            raise BrokenPromise(
                f"one leader per epoch: {leader} and {partition.broker_id} lead {name} in epoch {epoch}"
            )
        watermark = partition.log.high_watermark
        if watermark < self._watermarks.get((*held, epoch), 0):
            raise BrokenPromise(
                f"the high watermark of a leader never goes back: {partition} has {watermark} after "
                f"{self._watermarks[(*held, epoch)]}"
            )
        self._watermarks[(*held, epoch)] = watermark
        if name.topic in self.loose:
            return
        for other in self.world.replicas(name):
            follower = other.partition
            follows = follower.leader_epoch == epoch and follower.topic_id == partition.topic_id
            if follows and follower.broker_id in partition.isr and follower.log.log_end_offset < watermark:
                raise BrokenPromise(
                    f"in-sync replicas have what is committed: broker {follower.broker_id} ends at "
                    f"{follower.log.log_end_offset}, {partition} has committed {watermark}"
                )

    def compare(self) -> None:
        """Check that replicas hold the same below their high watermarks."""
        for life, broker in self.world.brokers():
            if life.is_ready:
                for partition in broker.partitions:
                    if partition.topic_partition.topic not in self.loose:
                        self._compare(Held(life, partition))

    def _compare(self, held: Held) -> None:
        partition = held.partition
        log = partition.log
        name = partition.topic_partition
        known = self.committed.setdefault((partition.topic_id, name.partition), {})
        offset = max(min(self._compared.get(held, 0), log.high_watermark), log.log_start_offset)
        while offset < log.high_watermark:
            raw = log.read_bytes(offset, _READ_BYTES, isolation=Isolation.HIGH_WATERMARK)
            if not raw:
                break
            for _, header in iter_batches(raw):
                if known.setdefault(header.base_offset, header.crc) != header.crc:
                    raise BrokenPromise(
                        f"replicas agree below the high watermark: broker {partition.broker_id} has another "
                        f"batch at offset {header.base_offset} of {name}"
                    )
                offset = header.next_offset
        self._compared[held] = offset


def contents(partition: Partition) -> dict[int, bytes]:
    """All values of a replica by their offsets, without control records."""
    start = partition.log.log_start_offset
    return {
        each.offset: each.value or b""
        for raw, at, header in _batches(partition)
        if not header.is_control
        for each in decode_batch(raw, at)
        if each.offset >= start
    }


def checksums(partition: Partition) -> dict[int, int]:
    """The checksum of every batch of a replica by its base offset."""
    return {header.base_offset: header.crc for _, _, header in _batches(partition)}


def committed_values(partition: Partition) -> set[bytes]:
    """The values that belong to no transaction or to one that was committed, as the markers say."""
    found: set[bytes] = set()
    pending: dict[int, set[bytes]] = {}
    for raw, at, header in _batches(partition):
        records = list(decode_batch(raw, at))
        if header.is_control:
            values = pending.pop(header.producer_id, set())
            if parse_control_type(records[0].key) is ControlType.COMMIT:
                found |= values
        elif header.is_transactional:
            pending.setdefault(header.producer_id, set()).update(each.value or b"" for each in records)
        else:
            found.update(each.value or b"" for each in records)
    return found


def _batches(partition: Partition) -> Iterator[tuple[bytes, int, BatchHeader]]:
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        raw = log.read_bytes(offset, _READ_BYTES, isolation=Isolation.LOG_END)
        if not raw:
            return
        for at, header in iter_batches(raw):
            yield raw, at, header
            offset = header.next_offset


def _everybody(assigned: TopicAssignment, index: int) -> tuple[int, ...]:
    return assigned.partitions.get(index, ())
