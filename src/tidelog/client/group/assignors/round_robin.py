"""``roundrobin``: all partitions in order, dealt out to the members in order.

A member that does not read a partition's topic is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.group.assignor import Subscription
from tidelog.client.group.assignors._topic_layout import Assigned, Layout, LayoutAssignor, member_order


class RoundRobinAssignor(LayoutAssignor):
    """Deals partitions out like cards."""

    name = "roundrobin"

    def assign_layout(self, layout: Layout, members: Mapping[str, Subscription]) -> Assigned:
        order = member_order(members, members)
        topics = {member_id: frozenset(member.topics) for member_id, member in members.items()}
        assigned: Assigned = {member_id: [] for member_id in members}
        turn = 0
        for topic in sorted(layout):
            for place in layout[topic]:
                while topic not in topics[order[turn]]:
                    turn = (turn + 1) % len(order)
                assigned[order[turn]].append(place.partition)
                turn = (turn + 1) % len(order)
        return assigned
