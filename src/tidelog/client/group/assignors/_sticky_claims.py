"""What members say they own, made consistent: the starting point of sticky assignment.

A partition that two members claim goes to the later generation's; claimed twice in one generation it is
nobody's, for neither can be believed. Claims of partitions that are gone (of a topic that was deleted, or
made again with fewer of them) are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.group.assignor import Subscription
from tidelog.client.group.assignors import _java_order as java_order
from tidelog.client.group.assignors._topic_layout import Layout, PartitionPlace, Racks, racks_matter
from tidelog.ids import TopicPartition

logger = logging.getLogger(__name__)

NO_GENERATION = -1


class Claim(NamedTuple):
    """What one member says that it owned, and in which generation if it says so."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int | None = None


@dataclass(slots=True)
class Claims:
    """The claims of all members, settled. ``owned`` goes through members in Java's order."""

    members: Mapping[str, Subscription]
    each: dict[str, Claim]
    owned: dict[str, list[TopicPartition]] = field(default_factory=dict)
    doubly_owned: set[TopicPartition] = field(default_factory=set)
    newest: int = NO_GENERATION

    @classmethod
    def of(
        cls,
        members: Mapping[str, Subscription],
        layout: Layout,
        read: Callable[[Subscription], Claim],
    ) -> Claims:
        """The claims on partitions of ``layout``."""
        there = {place.partition for places in layout.values() for place in places}
        order = java_order.member_order(members)
        claims = cls(members, {member_id: read(members[member_id]) for member_id in order})
        owners: dict[TopicPartition, str] = {}
        for member_id, claim in claims.each.items():
            claims.newest = max(claims.newest, _generation(claim.generation))
            claims.owned[member_id] = []
            for partition in claim.partitions:
                if partition in there:
                    claims._settle(member_id, partition, owners)
        return claims

    def all_read_the_same(self) -> bool:
        """Whether the subscriptions of all members that read anything, but the first, are equal to it."""
        first: frozenset[str] = frozenset()
        for member_id in self.each:
            topics = frozenset(self.members[member_id].topics)
            if not first:
                first = topics
            elif topics != first:
                return False
        return True

    def _settle(self, member_id: str, partition: TopicPartition, owners: dict[TopicPartition, str]) -> None:
        other = owners.get(partition)
        if other is None:
            self.owned[member_id].append(partition)
            owners[partition] = member_id
            return
        mine = _generation(self.each[member_id].generation)
        theirs = _generation(self.members[other].generation_id)
        logger.warning(
            "%s (generation %d) and %s (generation %d) both claim %s",
            member_id,
            mine,
            other,
            theirs,
            partition,
        )
        if mine < theirs:
            return
        if partition in self.owned[other]:
            self.owned[other].remove(partition)
        owners[partition] = member_id
        if mine == theirs:
            self.doubly_owned.add(partition)
        else:
            self.owned[member_id].append(partition)


class RackView:
    """Which members are near which partitions; nobody is far from anything where racks decide nothing."""

    def __init__(self, places: Collection[PartitionPlace], members: Mapping[str, Subscription]) -> None:
        consumer_racks = {member_id: each.rack_id for member_id, each in members.items() if each.rack_id}
        used = racks_matter(set(consumer_racks.values()), (place.racks for place in places))
        self.of_member: dict[str, str] = consumer_racks if used else {}
        self.of_partition: dict[TopicPartition, Racks] = (
            {place.partition: place.racks for place in places} if used else {}
        )

    def __bool__(self) -> bool:
        return bool(self.of_member)

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether a member's rack holds no replica of the partition."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack not in self.of_partition.get(partition, ())

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether a member's rack is known and holds a replica of the partition."""
        rack = self.of_member.get(member_id)
        return rack is not None and rack in self.of_partition.get(partition, ())

    def hardest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Partitions in the order of how many members are near them."""
        if not self:
            return list(partitions)
        racks = list(self.of_member.values())
        near = {
            partition: sum(rack in self.of_partition.get(partition, ()) for rack in racks)
            for partition in partitions
        }
        return sorted(partitions, key=near.__getitem__)


def _generation(generation: int | None) -> int:
    return NO_GENERATION if generation is None else generation
