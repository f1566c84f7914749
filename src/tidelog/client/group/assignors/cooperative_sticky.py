"""``cooperative-sticky``: sticky, and members keep their partitions while they rejoin (KIP-429).

A partition that changes hands is taken from its owner in one rebalance and given to the next in the one
after it, so that it never has two. Owned partitions are in the subscription (version 1 and later); the
generation too (version 2 and later), before that in the user data, four bytes in big-endian order, which
is still written for older leaders.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tidelog.client.group.assignor import Assignment, RebalanceProtocol, Subscription
from tidelog.client.group.assignors._sticky_claims import NO_GENERATION, Claim, Claims
from tidelog.client.group.assignors._topic_layout import Assigned, Layout, LayoutAssignor
from tidelog.client.group.assignors.sticky import sticky_assignment
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.group.membership import ConsumerGroupMetadata

_INT = struct.Struct(">i")


class CooperativeStickyAssignor(LayoutAssignor):
    """Sticky, in two steps for partitions that move."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return _INT.pack(self._generation)

    def on_assignment(self, assignment: Assignment, member: ConsumerGroupMetadata) -> None:
        self._generation = member.generation_id

    def assign_layout(self, layout: Layout, members: Mapping[str, Subscription]) -> Assigned:
        assigned, moving = sticky_assignment(layout, Claims.of(members, layout, _claim_of))
        if moving is None:
            moving = _moving(members, assigned)
        for partition, member_id in moving.items():
            assigned[member_id].remove(partition)
        return assigned


def _claim_of(subscription: Subscription) -> Claim:
    owned = subscription.owned_partitions
    if subscription.generation_id is not None:
        return Claim(owned, subscription.generation_id)
    data = subscription.user_data
    if data is None:
        return Claim(owned, None)
    return Claim(owned, _INT.unpack_from(data)[0] if len(data) >= _INT.size else NO_GENERATION)


def _moving(members: Mapping[str, Subscription], assigned: Assigned) -> dict[TopicPartition, str]:
    """Partitions that one member owns and another has been assigned."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member_id, partitions in assigned.items():
        owned = set(members[member_id].owned_partitions)
        added.update((partition, member_id) for partition in partitions if partition not in owned)
        revoked |= owned.difference(partitions)
    return {partition: member_id for partition, member_id in added.items() if partition in revoked}
