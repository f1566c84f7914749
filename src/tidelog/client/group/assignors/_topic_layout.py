"""What Kafka's assignors look at: the partitions of topics with the racks of their replicas, and members in
their fixed order.

A topic without metadata is left out. Members are ordered by ``group.instance.id`` where they have one,
which puts static members first, and by member id otherwise; so static members keep their places when they
come back under new member ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidelog.client.group.assignor import Assignment, Assignor, Subscription
from tidelog.client.metadata import ClusterMetadata
from tidelog.ids import TopicPartition

Racks = frozenset[str]
Layout = Mapping[str, "list[PartitionPlace]"]
Assigned = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """One partition and the racks that hold a replica of it."""

    partition: TopicPartition
    racks: Racks = frozenset()


class LayoutAssignor(Assignor):
    """An assignor that needs the layout of topics only, and passes no user data to members."""

    def assign(
        self, metadata: ClusterMetadata, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        topics = {topic for member in members.values() for topic in member.topics}
        assigned = self.assign_layout(layout_of(metadata, topics), members)
        return {member_id: Assignment(tuple(partitions)) for member_id, partitions in assigned.items()}

    def assign_layout(self, layout: Layout, members: Mapping[str, Subscription]) -> Assigned:
        """The partitions of every member."""
        raise NotImplementedError


def layout_of(metadata: ClusterMetadata, topics: Iterable[str]) -> dict[str, list[PartitionPlace]]:
    """The partitions of those of ``topics`` that exist, in order."""
    layout = {}
    for name in topics:
        topic = metadata.topics.get(name)
        if topic is None or topic.error or not topic.partitions:
            continue
        layout[name] = [
            PartitionPlace(TopicPartition(name, number), _racks(metadata, partition.replicas))
            for number, partition in sorted(topic.partitions.items())
        ]
    return layout


def member_order(members: Mapping[str, Subscription], ids: Iterable[str]) -> list[str]:
    """Static members by their instance ids, then the others by their member ids."""

    def key(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].group_instance_id
        return (True, member_id) if instance is None else (False, instance)

    return sorted(ids, key=key)


def racks_matter(consumer_racks: Collection[str], partition_racks: Iterable[Racks]) -> bool:
    """Whether racks decide anything: some consumer is near some replica, and not all racks hold all."""
    each = list(partition_racks)
    everywhere = frozenset().union(*each)
    if not everywhere.intersection(consumer_racks):
        return False
    return any(racks != everywhere for racks in each)


def _racks(metadata: ClusterMetadata, replicas: Iterable[int]) -> Racks:
    nodes = (metadata.nodes.get(replica) for replica in replicas)
    return frozenset(node.rack for node in nodes if node is not None and node.rack is not None)
