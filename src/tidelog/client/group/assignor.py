"""How a group's leader divides partitions: the interface of assignors, own ones included.

An own assignor is a subclass of :class:`Assignor`, given by class or object in
``partition.assignment.strategy``. All members of a group must offer one of the same name; the coordinator
picks the one that most of them prefer, and the leader's ``assign`` does the work.

``classic_membership`` calls, on the loop: ``subscription_user_data`` for every JoinGroup, ``assign`` on the
leader, ``on_assignment`` with what SyncGroup brought, before listeners are told.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.group.membership import ConsumerGroupMetadata
    from tidelog.client.metadata import ClusterMetadata


class RebalanceProtocol(enum.IntEnum):
    """What members do with their partitions when they rejoin (KIP-429)."""

    EAGER = 0
    """Give all of them up first."""
    COOPERATIVE = 1
    """Keep them, and give up those that the new assignment takes away."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member tells the leader."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int | None = None
    """The generation in which the partitions were assigned; None from clients before KIP-792."""
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of one member.

    Args:
        partitions: The partitions.
        user_data: Bytes for the member's ``on_assignment``.

    Example:
        Assignment((TopicPartition("orders", 0),))
    """

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class Assignor:
    """Divides the partitions of all subscribed topics among the members of a group; a subclass has a
    ``name``.

    All members offer an assignor of the same name, and the member that leads the group calls ``assign``.

    Example:
        class EverythingToOne(Assignor):
            name = "everything-to-one"

            def assign(self, metadata, members):
                first = min(members)
                topics = members[first].topics
                count = {topic: len(metadata.topics[topic].partitions) for topic in topics}
                places = [TopicPartition(topic, n) for topic in topics for n in range(count[topic])]
                return {each: Assignment(tuple(places) if each == first else ()) for each in members}
    """

    name: str
    """The name by which members agree on it."""
    protocols: Collection[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Anything that this member wants to tell the leader's ``assign``."""
        return None

    def assign(
        self, metadata: ClusterMetadata, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """The assignment of every member, by member id; runs on the leader only."""
        raise NotImplementedError

    def on_assignment(self, assignment: Assignment, member: ConsumerGroupMetadata) -> None:
        """This member has got ``assignment``."""
