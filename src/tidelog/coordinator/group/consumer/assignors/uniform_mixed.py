"""The ``uniform`` assignor for members that subscribe to different topics.

Members keep what they own of topics that they still subscribe to. What is free is given out topic by topic,
those with most partitions per subscriber first, to the least loaded subscriber. Then, topic by topic, the
most loaded subscribers hand partitions to the least loaded until they differ by one at most. As a move for
one topic may unbalance another, this is done again until a whole round changes nothing, ``_MAX_ROUNDS``
times at most: with overlapping subscriptions the result is nearly even, which is all that Kafka promises
too.
"""

from __future__ import annotations

from tidelog.coordinator.group.consumer.assignors.spec import AssignmentByMember, GroupSpec, by_topic_id
from tidelog.ids import Uuid

_MAX_ROUNDS = 16
_NOBODY = -1


class MixedAssignment:
    """One assignment in the making; members are known by their place in the order of ids."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._member_ids = sorted(spec.members)
        self._loads = [0] * len(self._member_ids)
        """How many partitions each member has."""
        self._subscribers: dict[Uuid, list[int]] = {}
        for place, member_id in enumerate(self._member_ids):
            for topic_id in spec.members[member_id].topics:
                self._subscribers.setdefault(topic_id, []).append(place)
        self._owners: dict[Uuid, list[int]] = {
            topic_id: [_NOBODY] * spec.partition_counts[topic_id] for topic_id in self._subscribers
        }

    def build(self) -> AssignmentByMember:
        """Keep, give out, balance."""
        self._keep()
        topics = self._by_weight()
        for topic_id in topics:
            self._give_out(topic_id)
        self._balance([topic_id for topic_id in topics if len(self._subscribers[topic_id]) > 1])
        return self._targets()

    def _by_weight(self) -> list[Uuid]:
        """Topics by partitions per subscriber, falling; then by subscribers, rising; then by id."""

        def weight(topic_id: Uuid) -> tuple[float, int]:
            subscribers = len(self._subscribers[topic_id])
            return -self._spec.partition_counts[topic_id] / subscribers, subscribers

        return sorted(by_topic_id(self._subscribers), key=weight)

    def _keep(self) -> None:
        for place, member_id in enumerate(self._member_ids):
            member = self._spec.members[member_id]
            for topic_id in member.current.keys() & member.topics:
                owners = self._owners[topic_id]
                for partition in member.current[topic_id]:
                    owners[partition] = place
                self._loads[place] += len(member.current[topic_id])

    def _give_out(self, topic_id: Uuid) -> None:
        free = [partition for partition, owner in enumerate(self._owners[topic_id]) if owner == _NOBODY]
        if not free:
            return
        scale = _Scale(self._subscribers[topic_id], self._loads)
        for partition in free:
            self._move(topic_id, partition, scale.lightest())

    def _balance(self, topics: list[Uuid]) -> None:
        last_changed = None
        for _ in range(_MAX_ROUNDS):
            for topic_id in topics:
                if topic_id == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def _balance_topic(self, topic_id: Uuid) -> bool:
        """Whether anything was moved."""
        subscribers = self._subscribers[topic_id]
        loads = [self._loads[place] for place in subscribers]
        if max(loads) - min(loads) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        scale = _Scale(subscribers, self._loads)
        moved = False
        while (giver := self._giver(scale, owned)) is not None:
            partition = owned[giver].pop()
            taker = scale.lightest()
            if scale.is_balanced:
                break
            self._move(topic_id, partition, taker)
            moved = True
        return moved

    def _giver(self, scale: _Scale, owned: dict[int, list[int]]) -> int | None:
        """The most loaded subscriber that has a partition of the topic left."""
        while (place := scale.heaviest()) is not None:
            if owned.get(place):
                return place
            scale.leave_out()
        return None

    def _move(self, topic_id: Uuid, partition: int, place: int) -> None:
        owners = self._owners[topic_id]
        if owners[partition] != _NOBODY:
            self._loads[owners[partition]] -= 1
        owners[partition] = place
        self._loads[place] += 1

    def _targets(self) -> AssignmentByMember:
        targets: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in self._member_ids}
        for topic_id, owners in self._owners.items():
            for partition, place in enumerate(owners):
                targets[self._member_ids[place]].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
            for member_id, owned in targets.items()
        }


class _Scale:
    """The subscribers of one topic from light to heavy, looked at from both ends.

    ``lightest`` assumes that every member it names gets a partition, ``heaviest`` that every one loses one:
    each goes round the members of one load before it takes in those of the next.
    """

    def __init__(self, members: list[int], loads: list[int]) -> None:
        self._loads = loads
        self._members = sorted(members, key=lambda place: (loads[place], place))
        self._light_level = loads[self._members[0]] - 1
        self._light_end = 0
        self._light_next = 0
        self._heavy_level = loads[self._members[-1]] + 1
        self._heavy_start = self._heavy_end = len(self._members)
        self._heavy_next = len(self._members) - 1

    @property
    def is_balanced(self) -> bool:
        """Whether a move from the heavy to the light end would gain nothing."""
        return self._heavy_level - self._light_level <= 1

    def lightest(self) -> int:
        """The member that is to get the next partition."""
        if self._light_next >= self._light_end:
            self._light_level += 1
            while (
                self._light_end < len(self._members)
                and self._loads[self._members[self._light_end]] == self._light_level
            ):
                self._light_end += 1
            self._light_next = 0
        self._light_next += 1
        return self._members[self._light_next - 1]

    def heaviest(self) -> int | None:
        """The member that is to lose the next partition; None if all were left out."""
        if self._heavy_next < self._heavy_start:
            if self._heavy_end <= self._heavy_start and self._heavy_start > 0:
                self._heavy_level = self._loads[self._members[self._heavy_start - 1]]
            else:
                self._heavy_level -= 1
            while (
                self._heavy_start > 0
                and self._loads[self._members[self._heavy_start - 1]] == self._heavy_level
            ):
                self._heavy_start -= 1
            self._heavy_next = self._heavy_end - 1
        if self._heavy_next < 0:
            return None
        self._heavy_next -= 1
        return self._members[self._heavy_next + 1]

    def leave_out(self) -> None:
        """The member named last has nothing to lose."""
        last, end = self._heavy_next + 1, self._heavy_end - 1
        self._members[last], self._members[end] = self._members[end], self._members[last]
        self._heavy_end = end
