"""Sticky assignment where all members read the same topics: everybody keeps what fits into an equal share.

With n partitions and m members, ``n % m`` members get one partition more than the others' ``n // m``. Each
member first keeps what it owns up to its share; what is left is dealt out round robin to the members that
lack most, near ones first where racks matter.
"""

from __future__ import annotations

from tidelog.client.group.assignors._sticky_claims import Claims, RackView
from tidelog.client.group.assignors._topic_layout import Assigned, Layout
from tidelog.ids import TopicPartition


class EqualShares:
    """One assignment; ``moving`` names the partitions that go from one member to another."""

    def __init__(self, layout: Layout, racks: RackView, claims: Claims) -> None:
        self._layout = layout
        self._racks = racks
        self._claims = claims
        total = sum(len(places) for places in layout.values())
        self._share, self._larger_shares = divmod(total, len(claims.owned))
        self._largest = self._share + (self._larger_shares > 0)
        self._members_with_more = 0
        self._lacking: list[str] = []
        """Members with less than the smaller share."""
        self._extensible: list[str] = []
        """Members with exactly the smaller share, that may get one more."""
        self._given_up: dict[TopicPartition, str] = {}
        self.assigned: Assigned = {member_id: [] for member_id in claims.owned}
        self.moving: dict[TopicPartition, str] = {}

    def build(self) -> Assigned:
        for member_id, owned in self._claims.owned.items():
            self._keep(member_id, owned)
        kept = {partition for partitions in self.assigned.values() for partition in partitions}
        rest = [
            place.partition
            for topic in sorted(self._layout)
            for place in self._layout[topic]
            if place.partition not in kept
        ]
        self._lacking.sort()
        self._extensible.sort()
        if self._racks:
            rest = self._deal_near(self._racks.hardest_first(rest))
        self._deal(rest)
        return self.assigned

    @property
    def _may_extend(self) -> bool:
        return self._members_with_more < self._larger_shares

    def _keep(self, member_id: str, owned: list[TopicPartition]) -> None:
        near = []
        for partition in owned:
            if self._racks.is_far(member_id, partition):
                self._given_up[partition] = member_id
            elif partition not in self._claims.doubly_owned:
                near.append(partition)
        near.sort(key=lambda each: (each.partition, each.topic))
        if len(near) < self._share:
            size = len(near)
            self._lacking.append(member_id)
        elif len(near) >= self._largest and self._may_extend:
            size = self._largest
            self._count_extended()
        else:
            size = self._share
            if self._may_extend:
                self._extensible.append(member_id)
        self.assigned[member_id] = near[:size]
        self._given_up.update(dict.fromkeys(near[size:], member_id))

    def _count_extended(self) -> None:
        self._members_with_more += 1
        if not self._may_extend:
            self._extensible.clear()

    def _deal_near(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Give partitions to members near them; those for which there is none are left."""
        left = []
        turn = 0
        for partition in partitions:
            index = self._next_near(partition, self._lacking, turn)
            if index is not None:
                member_id = self._lacking[index]
                count = len(self.assigned[member_id]) + 1
                if count >= self._share:
                    del self._lacking[index]
                    if count < self._largest and self._may_extend:
                        self._extensible.append(member_id)
                else:
                    index += 1
                turn = index % len(self._lacking) if self._lacking else 0
            elif (index := self._next_near(partition, self._extensible, 0)) is not None:
                member_id = self._extensible[index]
                if len(self.assigned[member_id]) + 1 == self._largest:
                    del self._extensible[index]
                    self._count_extended()
            else:
                left.append(partition)
                continue
            self._give(partition, member_id)
        return left

    def _next_near(self, partition: TopicPartition, member_ids: list[str], first: int) -> int | None:
        for step in range(len(member_ids)):
            index = (first + step) % len(member_ids)
            if self._racks.is_near(member_ids[index], partition):
                return index
        return None

    def _deal(self, partitions: list[TopicPartition]) -> None:
        turn = 0
        for partition in partitions:
            if not self._lacking:
                self._give(partition, self._extensible.pop(0))
                continue
            turn = 0 if turn >= len(self._lacking) else turn
            member_id = self._lacking[turn]
            self._give(partition, member_id)
            if len(self.assigned[member_id]) == self._share:
                del self._lacking[turn]
                self._extensible.append(member_id)
            else:
                turn += 1

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self.assigned[member_id].append(partition)
        before = self._given_up.get(partition, member_id)
        if before != member_id or partition in self._claims.doubly_owned:
            self.moving[partition] = member_id
