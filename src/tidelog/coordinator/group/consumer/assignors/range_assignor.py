"""The ``range`` assignor: each topic is cut into one contiguous range per subscriber.

Topics with equally many partitions and the same subscribers are cut alike, so that a member gets the same
partition numbers of each: data joined by key stays together. Not sticky, but static members come first, by
instance id, so that their ranges survive a restart under another member id.
"""

from __future__ import annotations

from tidelog.coordinator.group.consumer.assignors.spec import AssignmentByMember, GroupSpec
from tidelog.ids import Uuid


class RangeAssignor:
    """Ranges."""

    name = "range"

    def assign(self, spec: GroupSpec) -> AssignmentByMember:
        """Cut topic by topic."""
        subscribers: dict[Uuid, list[str]] = {}
        ranked = sorted(spec.members, key=lambda each: _rank(spec, each))
        if spec.homogeneous and ranked:
            subscribers = dict.fromkeys(spec.members[ranked[0]].topics, ranked)
        else:
            for member_id in ranked:
                for topic_id in spec.members[member_id].topics:
                    subscribers.setdefault(topic_id, []).append(member_id)
        targets: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in spec.members}
        for topic_id, member_ids in subscribers.items():
            least, extra = divmod(spec.partition_counts[topic_id], len(member_ids))
            start = 0
            # With less than a partition for each, those behind the first get none.
            for place, member_id in enumerate(member_ids if least else member_ids[:extra]):
                end = start + least + (place < extra)
                if start < end:
                    targets[member_id][topic_id] = frozenset(range(start, end))
                start = end
        return targets


def _rank(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return instance_id is None, member_id if instance_id is None else instance_id
