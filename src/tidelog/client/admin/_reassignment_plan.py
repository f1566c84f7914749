"""Where partitions shall go: a plan, for ``tidelog partitions reassign`` and the console.

The plan spreads the replicas of each topic evenly over the brokers, and all of them together; keeps what is
well placed where it is, for every replica that moves is copied over the network; puts no two replicas of a
partition on one rack while another rack has none (if all brokers have a rack); and spreads the preferred
leaders, the first replicas.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.errors import ClientError
from tidelog.ids import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]


def plan_reassignment(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Assignment:
    """New replicas for the partitions of ``current`` on the brokers of ``racks`` (their racks by id).

    Partitions keep the number of their replicas unless ``replication_factor`` says another.
    """
    wanted = {each: replication_factor or len(replicas) for each, replicas in sorted(current.items())}
    for partition, replicas in wanted.items():
        if replicas > len(racks):
            brokers = f"{len(racks)} broker{'s are' if len(racks) > 1 else ' is'}"
            raise ClientError(
                f"{brokers} too few for {replicas} replicas of {partition}: name more of them, or lower the "
                "replication factor"
            )
    plan = _Plan(racks)
    for partition in wanted:
        plan.keep(partition, current[partition], wanted[partition])
    for partition in wanted:
        plan.fill(partition, wanted[partition])
    plan.balance()
    plan.spread_leaders({partition: replicas[0] for partition, replicas in current.items() if replicas})
    return {partition: tuple(replicas) for partition, replicas in plan.replicas.items()}


async def current_assignment(admin: AsyncAdmin, topics: Collection[str]) -> Assignment:
    """Where the partitions of ``topics`` are now; of those that move, where they go."""
    described = await admin.describe_topics(list(topics))
    found: Assignment = {}
    for topic in described.values():
        topic.raise_for_error()
        found |= {TopicPartition(topic.name, each.partition): each.replicas for each in topic.partitions}
    for partition, move in (await admin.list_partition_reassignments(list(found))).items():
        found[partition] = tuple(each for each in move.replicas if each not in move.removing_replicas)
    return found


class _Move(NamedTuple):
    partition: TopicPartition
    position: int


class _Plan:
    """An assignment in the making; the counts follow every change."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.replicas: dict[TopicPartition, list[int]] = {}
        self._brokers = sorted(racks)
        aware = all(rack is not None for rack in racks.values())
        # Without racks each broker is one of its own, and there is nothing to look after.
        self._racks = {broker: racks[broker] if aware else str(broker) for broker in racks}
        self._load: Counter[int] = Counter()
        self._topic_load: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def keep(self, partition: TopicPartition, current: Sequence[int], wanted: int) -> None:
        """Leave replicas where they are, as far as brokers and racks allow."""
        racks = len(set(self._racks.values()))
        kept = self.replicas[partition] = []
        for broker in dict.fromkeys(current):
            if broker not in self._racks or len(kept) == wanted:
                continue
            here = self._on_rack(kept, broker)
            empty_racks = racks - len({self._racks[each] for each in kept})
            room = wanted - len(kept)
            # A second one on a rack must leave room for one on each of those that have none.
            if here == 0 or (here < -(-wanted // racks) and room > empty_racks):
                kept.append(broker)
                self._count(partition, broker, 1)

    def fill(self, partition: TopicPartition, wanted: int) -> None:
        """Give the partition the replicas that it lacks, on brokers that have least."""
        replicas = self.replicas[partition]
        while len(replicas) < wanted:
            broker = min(
                (broker for broker in self._brokers if broker not in replicas),
                key=lambda broker: (
                    self._on_rack(replicas, broker),
                    self._topic_load[partition.topic][broker],
                    self._load[broker],
                    broker,
                ),
            )
            replicas.append(broker)
            self._count(partition, broker, 1)

    def balance(self) -> None:
        """Move replicas from full brokers to empty ones: within each topic, then over all of them."""
        by_topic: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for partition in self.replicas:
            by_topic[partition.topic].append(partition)
        for topic, partitions in by_topic.items():
            self._even_out(partitions, self._topic_load[topic], lambda *_: True)
        self._even_out(list(self.replicas), self._load, self._keeps_topic_even)

    def _even_out(
        self,
        partitions: list[TopicPartition],
        load: Counter[int],
        allowed: Callable[[TopicPartition, int, int], bool],
    ) -> None:
        # Every move makes the sum of the squares of the loads smaller, so that this comes to an end.
        while True:
            pairs = sorted(
                ((full, empty) for full in self._brokers for empty in self._brokers),
                key=lambda pair: (load[pair[1]] - load[pair[0]], pair),
            )
            for full, empty in pairs:
                if load[full] - load[empty] < 2:
                    return
                move = self._find_move(partitions, full, empty, allowed)
                if move is not None:
                    self.replicas[move.partition][move.position] = empty
                    self._count(move.partition, full, -1)
                    self._count(move.partition, empty, 1)
                    break
            else:
                return

    def _find_move(
        self,
        partitions: list[TopicPartition],
        full: int,
        empty: int,
        allowed: Callable[[TopicPartition, int, int], bool],
    ) -> _Move | None:
        """A replica that may go from one broker to the other; better one that does not lead."""
        leading = None
        for partition in partitions:
            replicas = self.replicas[partition]
            if full not in replicas or empty in replicas or not allowed(partition, full, empty):
                continue
            others = [broker for broker in replicas if broker != full]
            if self._on_rack(others, empty) > self._on_rack(others, full):
                continue
            move = _Move(partition, replicas.index(full))
            if move.position:
                return move
            leading = leading or move
        return leading

    def _keeps_topic_even(self, partition: TopicPartition, full: int, empty: int) -> bool:
        load = self._topic_load[partition.topic]
        return load[full] > load[empty]

    def spread_leaders(self, current: Mapping[TopicPartition, int]) -> None:
        """Put a replica first that leads already, or else one of a broker that leads little."""
        leads: Counter[int] = Counter()
        for partition, replicas in self.replicas.items():
            if current.get(partition) in replicas:
                self._put_first(replicas, current[partition])
            leads[replicas[0]] += 1
        changed = True
        while changed:
            changed = False
            for replicas in self.replicas.values():
                least = min(replicas, key=lambda broker: leads[broker])
                if leads[replicas[0]] - leads[least] >= 2:
                    leads[replicas[0]] -= 1
                    leads[least] += 1
                    self._put_first(replicas, least)
                    changed = True

    @staticmethod
    def _put_first(replicas: list[int], broker: int) -> None:
        replicas.remove(broker)
        replicas.insert(0, broker)

    def _on_rack(self, replicas: Sequence[int], broker: int) -> int:
        return sum(self._racks[each] == self._racks[broker] for each in replicas)

    def _count(self, partition: TopicPartition, broker: int, change: int) -> None:
        self._load[broker] += change
        self._topic_load[partition.topic][broker] += change
