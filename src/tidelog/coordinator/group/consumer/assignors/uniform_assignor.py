"""The ``uniform`` assignor: as evenly as can be, then with as few moves as can be.

Where all members subscribe to the same topics the work is simple and is done here: every member may own its
share, some one more; what exceeds that, and what nobody owns, goes to those who have less. Where members
differ, ``uniform_mixed`` does it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.coordinator.group.consumer.assignors.spec import AssignmentByMember, GroupSpec, by_topic_id
from tidelog.coordinator.group.consumer.assignors.uniform_mixed import MixedAssignment
from tidelog.ids import Uuid


class _Unfilled(NamedTuple):
    owned: dict[Uuid, set[int]]
    missing: int


class UniformAssignor:
    """Balance first, stickiness second."""

    name = "uniform"

    def assign(self, spec: GroupSpec) -> AssignmentByMember:
        """Distribute evenly."""
        if not spec.members:
            return {}
        if not spec.homogeneous:
            return MixedAssignment(spec).build()
        return _assign_alike(spec)


def _assign_alike(spec: GroupSpec) -> AssignmentByMember:
    """All members subscribe to the same topics."""
    member_ids = sorted(spec.members)
    topics = by_topic_id(spec.members[member_ids[0]].topics)
    taken: dict[Uuid, set[int]] = {topic_id: set() for topic_id in topics}
    for member in spec.members.values():
        for topic_id, indexes in member.current.items():
            if topic_id in taken:
                taken[topic_id] |= indexes
    free = [
        (topic_id, partition)
        for topic_id in topics
        for partition in range(spec.partition_counts[topic_id])
        if partition not in taken[topic_id]
    ]
    total = sum(spec.partition_counts[topic_id] for topic_id in topics)
    share, extras = divmod(total, len(member_ids))

    targets: dict[str, dict[Uuid, set[int]]] = {}
    unfilled: list[_Unfilled] = []
    for place, member_id in enumerate(member_ids):
        room = share + (1 if extras else 0)
        owned = targets[member_id] = {}
        current = spec.members[member_id].current
        for topic_id in by_topic_id(current.keys() & taken.keys()):
            partitions = sorted(current[topic_id])
            keep, surplus = partitions[:room], partitions[room:]
            if keep:
                owned[topic_id] = set(keep)
            free += [(topic_id, partition) for partition in surplus]
            room -= len(keep)
        if extras:
            # A member that would have to be given its extra partition leaves it to one that may own it
            # already, as long as enough members follow.
            if room and len(member_ids) - place > extras:
                room -= 1
            else:
                extras -= 1
        if room:
            unfilled.append(_Unfilled(owned, room))

    left = iter(free)
    for owned, missing in unfilled:
        for _, (topic_id, partition) in zip(range(missing), left, strict=False):
            owned.setdefault(topic_id, set()).add(partition)
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
        for member_id, owned in targets.items()
    }
