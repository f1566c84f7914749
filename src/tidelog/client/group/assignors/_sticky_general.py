"""Sticky assignment where members read different topics: keep what may be kept, then even out.

Partitions without an owner go to the reader that has fewest. Then partitions move away from members that
have at least two more than another reader, back to an earlier owner where there is one, until nothing can
be evened out; if that has not made the whole more even, nothing moves. Instead of moving a partition of a
topic from A to B, one that went from B to A is taken back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tidelog.client.group.assignors._java_order import first_partition
from tidelog.client.group.assignors._sticky_claims import NO_GENERATION, Claims, RackView
from tidelog.client.group.assignors._topic_layout import Assigned, Layout
from tidelog.ids import TopicPartition


class UnequalShares:
    """One assignment."""

    def __init__(self, layout: Layout, racks: RackView, claims: Claims) -> None:
        self._layout = layout
        self._racks = racks
        self._claims = claims
        self._topics = {
            member_id: [topic for topic in claims.members[member_id].topics if topic in layout]
            for member_id in claims.owned
        }
        self._readers: dict[str, list[str]] = {topic: [] for topic in layout}
        for member_id, topics in self._topics.items():
            for topic in topics:
                self._readers[topic].append(member_id)
        self._assigned: Assigned = {}
        self._owner: dict[TopicPartition, str] = {}
        self._former = _former_owners(claims)
        self._moves = _Moves()
        self._revoked_some = False
        for member_id, owned in claims.owned.items():
            self._keep(member_id, owned)
        self._ranking = _Ranking(self._assigned, self._assigned)

    def build(self) -> Assigned:
        unowned = [each for each in self._all_partitions() if each not in self._owner]
        starts_empty = self._ranking.all_are_empty
        self._give_out(unowned)
        self._even_out(unowned, starts_empty)
        return self._assigned

    def _all_partitions(self) -> list[TopicPartition]:
        """Those of topics with fewest readers first."""
        topics = sorted(self._layout, key=lambda topic: (len(self._readers[topic]), topic))
        return [place.partition for topic in topics for place in self._layout[topic]]

    def _keep(self, member_id: str, owned: list[TopicPartition]) -> None:
        kept = self._assigned[member_id] = []
        for partition in owned:
            unread = partition.topic not in self._topics[member_id]
            if unread or self._racks.is_far(member_id, partition):
                self._revoked_some = True
            else:
                kept.append(partition)
                self._owner[partition] = member_id

    def _give_out(self, partitions: list[TopicPartition]) -> None:
        left = partitions
        if self._racks:
            left = [each for each in partitions if not self._give_to_poorest(each, near=True)]
        for partition in left:
            self._give_to_poorest(partition, near=False)

    def _give_to_poorest(self, partition: TopicPartition, *, near: bool) -> bool:
        for member_id in self._ranking:
            if partition.topic not in self._topics[member_id]:
                continue
            if near and self._racks.is_far(member_id, partition):
                continue
            self._ranking.remove(member_id)
            self._assigned[member_id].append(partition)
            self._owner[partition] = member_id
            self._ranking.add(member_id)
            return True
        return False

    # Evening out

    def _even_out(self, unowned: list[TopicPartition], starts_empty: bool) -> None:
        movable = [each for each in self._all_partitions() if len(self._readers[each.topic]) > 1]
        settled = [member_id for member_id in self._assigned if not self._can_take_part(member_id)]
        for member_id in settled:
            self._ranking.remove(member_id)
        taking_part = [member_id for member_id in self._assigned if member_id not in set(settled)]
        before = {member_id: list(self._assigned[member_id]) for member_id in taking_part}
        if not self._revoked_some:
            self._move(each for each in unowned if len(self._readers[each.topic]) > 1)
        has_moved = self._move(movable)
        if (
            has_moved
            and not starts_empty
            and self._unevenness(self._assigned, taking_part) >= (self._unevenness(before, taking_part))
        ):
            self._assigned.update(before)

    def _can_take_part(self, member_id: str) -> bool:
        mine = self._assigned[member_id]
        return len(mine) < self._most(member_id) or any(len(self._readers[each.topic]) > 1 for each in mine)

    def _most(self, member_id: str) -> int:
        return sum(len(self._layout[topic]) for topic in self._topics[member_id])

    def _move(self, partitions: Iterable[TopicPartition]) -> bool:
        """Move partitions away from members that have too many; whether any was moved."""
        candidates = list(partitions)
        has_moved = False
        while True:
            moved_now = False
            for partition in candidates:
                if self._is_even():
                    break
                if self._move_away(partition):
                    moved_now = has_moved = True
            if not moved_now:
                return has_moved

    def _move_away(self, partition: TopicPartition) -> bool:
        owner = self._owner[partition]
        count = len(self._assigned[owner])
        former = self._former.get(partition)
        # Java does not ask whether the former owner still reads the topic: it may fail then, assign what is
        # not read, or move the partition on later and so come to another assignment, as even as ours.
        reads = former is not None and partition.topic in self._topics[former]
        if former is not None and reads and count > len(self._assigned[former]) + 1:
            self._reassign(partition, former)
            return True
        if any(count > len(self._assigned[each]) + 1 for each in self._readers[partition.topic]):
            poorest = next(each for each in self._ranking if partition.topic in self._topics[each])
            self._reassign(partition, poorest)
            return True
        return False

    def _reassign(self, partition: TopicPartition, member_id: str) -> None:
        moved = self._moves.instead_of(partition, self._owner[partition], member_id)
        owner = self._owner[moved]
        self._ranking.remove(owner)
        if member_id != owner:
            self._ranking.remove(member_id)
        self._moves.record(moved, owner, member_id)
        self._assigned[owner].remove(moved)
        self._assigned[member_id].append(moved)
        self._owner[moved] = member_id
        self._ranking.add(member_id)
        if member_id != owner:
            self._ranking.add(owner)

    def _is_even(self) -> bool:
        """Whether no member could take a partition from one that has at least two more."""
        if self._ranking.spread <= 1:
            return True
        for member_id in self._ranking:
            count = len(self._assigned[member_id])
            if count == self._most(member_id):
                continue
            for topic in self._topics[member_id]:
                for place in self._layout[topic]:
                    owner = self._owner[place.partition]
                    if owner != member_id and count + 1 < len(self._assigned[owner]):
                        return False
        return True

    @staticmethod
    def _unevenness(assigned: Assigned, member_ids: list[str]) -> int:
        sizes = [len(assigned[member_id]) for member_id in member_ids]
        return sum(abs(one - other) for index, one in enumerate(sizes) for other in sizes[index + 1 :])


class _Ranking:
    """Members from the one with the fewest partitions to the one with the most."""

    def __init__(self, assigned: Assigned, member_ids: Iterable[str]) -> None:
        self._assigned = assigned
        self._sorted = sorted((len(assigned[member_id]), member_id) for member_id in member_ids)

    def __iter__(self) -> Iterator[str]:
        return (member_id for _, member_id in self._sorted)

    @property
    def spread(self) -> int:
        """How many more partitions the last has than the first."""
        return self._sorted[-1][0] - self._sorted[0][0]

    @property
    def all_are_empty(self) -> bool:
        return self._sorted[-1][0] == 0

    def remove(self, member_id: str) -> None:
        """Take a member out; before its partitions change."""
        del self._sorted[bisect_left(self._sorted, (len(self._assigned[member_id]), member_id))]

    def add(self, member_id: str) -> None:
        insort(self._sorted, (len(self._assigned[member_id]), member_id))


class _Moves:
    """Which partitions have gone from whom to whom in this assignment."""

    def __init__(self) -> None:
        self._way: dict[TopicPartition, tuple[str, str]] = {}
        self._by_way: defaultdict[tuple[str, str, str], list[TopicPartition]] = defaultdict(list)

    def instead_of(self, partition: TopicPartition, owner: str, to: str) -> TopicPartition:
        """The partition to move: one of the same topic that went the opposite way before, if any did."""
        if partition in self._way:
            owner = self._way[partition][0]
        opposite = self._by_way.get((partition.topic, to, owner))
        return first_partition(opposite) if opposite else partition

    def record(self, partition: TopicPartition, source: str, to: str) -> None:
        before = self._way.pop(partition, None)
        if before is not None:
            self._by_way[partition.topic, *before].remove(partition)
            source = before[0]
            if source == to:
                return
        self._way[partition] = (source, to)
        self._by_way[partition.topic, source, to].append(partition)


def _former_owners(claims: Claims) -> dict[TopicPartition, str]:
    """Who owned partitions in generations before the newest, by the newest of those."""
    former: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, claim in claims.each.items():
        generation = NO_GENERATION if claim.generation is None else claim.generation
        if generation >= claims.newest:
            continue
        for partition in claim.partitions:
            if partition not in former or generation > former[partition][0]:
                former[partition] = generation, member_id
    return {partition: member_id for partition, (_, member_id) in former.items()}
