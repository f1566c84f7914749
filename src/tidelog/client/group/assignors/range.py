"""``range``: of every topic, each member gets a run of neighbouring partitions.

Members in order get ``n // m`` partitions each and the first ``n % m`` of them one more, so topics with
equally many partitions and the same members are co-partitioned. Where racks are known and matter (KIP-881),
a first round gives members partitions that have a replica in their rack: for co-partitioned topics the same
partition of all of them at once, for others as many as their share allows; the usual round deals out the
rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from tidelog.client.group.assignor import Subscription
from tidelog.client.group.assignors._topic_layout import (
    Assigned,
    Layout,
    LayoutAssignor,
    PartitionPlace,
    Racks,
    member_order,
    racks_matter,
)
from tidelog.ids import TopicPartition


class RangeAssignor(LayoutAssignor):
    """Gives out runs of partitions, topic by topic."""

    name = "range"

    def assign_layout(self, layout: Layout, members: Mapping[str, Subscription]) -> Assigned:
        assigned: Assigned = {member_id: [] for member_id in members}
        racks = {member_id: member.rack_id for member_id, member in members.items() if member.rack_id}
        shares = []
        for topic, places in layout.items():
            readers = [member_id for member_id, member in members.items() if topic in member.topics]
            order = member_order(members, readers)
            shares.append(_TopicShare(topic, places, {each: racks.get(each) for each in order}, assigned))
        by_racks = any(share.racks_matter for share in shares)
        if by_racks:
            _match_racks(shares)
        for share in shares:
            share.give_ranges(lambda member_id, partition: True)
        if by_racks:
            for partitions in assigned.values():
                partitions.sort()
        return assigned


class _TopicShare:
    """The partitions of one topic that are still to be given out, and how many each reader may have."""

    def __init__(
        self,
        topic: str,
        places: list[PartitionPlace],
        readers: Mapping[str, str | None],
        assigned: Assigned,
    ) -> None:
        self.topic = topic
        self.readers = readers
        self.rest = {place.partition: None for place in places}
        self.partition_racks: dict[TopicPartition, Racks] = {}
        self._assigned = assigned
        self._counts = dict.fromkeys(readers, 0)
        self._quota, self._with_one_more = divmod(len(places), len(readers)) if readers else (0, 0)
        consumer_racks = {rack for rack in readers.values() if rack is not None}
        if consumer_racks:
            self.partition_racks = {place.partition: place.racks for place in places}
        self.racks_matter = racks_matter(consumer_racks, self.partition_racks.values())

    def near(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether a member is in no rack, or in one that holds the partition."""
        rack = self.readers[member_id]
        return rack is None or rack in self.partition_racks.get(partition, ())

    def room(self, member_id: str) -> int:
        """How many more partitions a member may get."""
        return max(0, self._quota + (self._with_one_more > 0) - self._counts[member_id])

    def give(self, member_id: str, partitions: list[TopicPartition]) -> None:
        self._assigned[member_id] += partitions
        self._counts[member_id] += len(partitions)
        if self._counts[member_id] > self._quota:
            self._with_one_more -= 1
        for partition in partitions:
            del self.rest[partition]

    def give_ranges(self, fits: Callable[[str, TopicPartition], bool]) -> None:
        """Fill every reader's share, in order, with the next partitions that fit it."""
        for member_id in self.readers:
            fitting = [partition for partition in self.rest if fits(member_id, partition)]
            taken = fitting[: self.room(member_id)]
            if taken:
                self.give(member_id, taken)


def _match_racks(shares: list[_TopicShare]) -> None:
    alike: defaultdict[tuple[object, int], list[_TopicShare]] = defaultdict(list)
    for share in shares:
        alike[tuple(share.readers.items()), len(share.partition_racks)].append(share)
    for (_, count), group in alike.items():
        if len(group) > 1:
            _match_co_partitioned(group, count)
        elif group[0].racks_matter:
            group[0].give_ranges(group[0].near)


def _match_co_partitioned(shares: list[_TopicShare], count: int) -> None:
    candidates = list(shares[0].readers)
    for number in range(count):
        for member_id in candidates:
            if all(_takes(share, member_id, number) for share in shares):
                for share in shares:
                    share.give(member_id, [TopicPartition(share.topic, number)])
                if not any(share.room(member_id) for share in shares):
                    candidates.remove(member_id)
                break


def _takes(share: _TopicShare, member_id: str, number: int) -> bool:
    return share.near(member_id, TopicPartition(share.topic, number)) and share.room(member_id) > 0
