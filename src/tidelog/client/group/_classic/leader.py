"""The leader's part of a rebalance: the assignment of all members, and a watch over the topics behind it.

The leader learns the metadata of every topic that any member reads. When partitions are added, topics come
or go, or (with ``client.rack`` set) replicas change racks, the group rebalances; ``has_changed`` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Deadline
from tidelog.client.group._classic.consumer_protocol import decode_subscription, encode_assignment
from tidelog.client.group.assignor import Assignment, Assignor, RebalanceProtocol, Subscription
from tidelog.client.metadata import ClusterMetadata
from tidelog.client.subscription._subscription_state import SubscriptionState, SubscriptionType
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.join_group import JoinGroupResponseMember

logger = logging.getLogger(__name__)

Snapshot = dict[str, tuple[frozenset[str], ...]]


class Leader:
    """Assigns partitions when this member is the leader of its group."""

    def __init__(
        self, cluster: Cluster, subscription: SubscriptionState, *, by_racks: bool, auto_create: bool
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._by_racks = by_racks
        self._auto_create = auto_create
        self._snapshot: Snapshot | None = None
        self._topics: frozenset[str] = frozenset()
        self._compared: ClusterMetadata | None = None

    def pause(self) -> None:
        """A rebalance begins: whatever changes now is seen by its leader."""
        self._snapshot = None

    def resign(self) -> None:
        """Another member leads this generation."""
        self._snapshot = None
        if self._topics:
            self._topics = frozenset()
            self._subscription.set_group_topics(())
            self._watch_topics()

    @property
    def is_leader(self) -> bool:
        return self._snapshot is not None

    def has_changed(self) -> bool:
        """Whether topics look different from what the assignment was made for."""
        metadata = self._cluster.metadata
        if self._snapshot is None or metadata is self._compared:
            return False
        self._compared = metadata
        return self._look(self._topics, self._snapshot) != self._snapshot

    async def assign(
        self,
        assignor: Assignor,
        protocol: RebalanceProtocol,
        members: Sequence[JoinGroupResponseMember],
        deadline: Deadline,
        *,
        skip: bool,
    ) -> dict[str, bytes]:
        """Every member's assignment; none where a static leader returns to one that holds (``skip``)."""
        subscriptions = {
            each.member_id: decode_subscription(each.metadata, each.member_id, each.group_instance_id)
            for each in members
        }
        self._topics = frozenset(topic for each in subscriptions.values() for topic in each.topics)
        await self._learn(self._topics, deadline)
        self._snapshot = self._look(self._topics, {})
        if skip:
            return {}
        assignments = assignor.assign(self._cluster.metadata, subscriptions)
        if protocol is RebalanceProtocol.COOPERATIVE:
            _require_cooperation(assignor, subscriptions, assignments)
        await self._add_foreign_topics(assignments, deadline)
        logger.info("assigned: %s", {member: len(each.partitions) for member, each in assignments.items()})
        return {member: encode_assignment(each) for member, each in assignments.items()}

    async def _add_foreign_topics(self, assignments: Mapping[str, Assignment], deadline: Deadline) -> None:
        """An own assignor may assign topics that nobody has subscribed to: watch them too."""
        assigned = {partition.topic for each in assignments.values() for partition in each.partitions}
        if not assigned <= self._topics:
            self._topics |= assigned
            await self._learn(self._topics, deadline)
            self._snapshot = self._look(self._topics, {})

    async def _learn(self, topics: frozenset[str], deadline: Deadline) -> None:
        self._subscription.set_group_topics(topics)
        self._watch_topics()
        known = self._cluster.metadata.topics
        unknown = [topic for topic in topics if topic not in known or known[topic].error]
        if unknown:
            await self._cluster.refresh(unknown, allow_auto_create=self._auto_create, deadline=deadline)

    def _watch_topics(self) -> None:
        self._cluster.updates.retain_topics(self._subscription.metadata_topics)

    def _look(self, topics: Iterable[str], before: Snapshot) -> Snapshot:
        """The topics as metadata shows them; as ``before`` where it says nothing about them now."""
        metadata = self._cluster.metadata
        sees_all = self._subscription.type is SubscriptionType.PATTERN
        snapshot: Snapshot = {}
        for name in topics:
            topic = metadata.topics.get(name)
            silent = topic is None and not sees_all
            if silent or (topic is not None and topic.error and not _is_gone(topic.error)):
                if name in before:
                    snapshot[name] = before[name]
            elif topic is not None and not topic.error:
                snapshot[name] = tuple(
                    self._racks(partition.replicas) for _, partition in sorted(topic.partitions.items())
                )
        return snapshot

    def _racks(self, replicas: Iterable[int]) -> frozenset[str]:
        if not self._by_racks:
            return frozenset()
        nodes = (self._cluster.metadata.nodes.get(replica) for replica in replicas)
        return frozenset(node.rack for node in nodes if node is not None and node.rack is not None)


def _is_gone(error: ErrorCode) -> bool:
    return error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _require_cooperation(
    assignor: Assignor, before: Mapping[str, Subscription], after: Mapping[str, Assignment]
) -> None:
    """A partition must be given up by its owner before it goes to another (KIP-429)."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, assignment in after.items():
        owned = set(before[member_id].owned_partitions)
        added |= set(assignment.partitions) - owned
        revoked |= owned - set(assignment.partitions)
    moved = sorted(added & revoked)
    if moved:
        names = ", ".join(str(each) for each in moved)
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"assignor {assignor.name} is cooperative but moves {names} while their owners still have them: "
            "take them away first, and assign them in the rebalance after that",
        )
