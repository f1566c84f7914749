"""A classic group seen as a consumer group: its last assignment is what its members own and are to own.

Assignments that carry user data are refused, as in Kafka: a custom assignor's data would be lost.
librdkafka's cooperative-sticky carries some once its group has rebalanced, so that such a group cannot be
upgraded online by Kafka 4.3 either; it has to become empty first, or to use another assignor.
"""

from __future__ import annotations

from tidelog.coordinator.group.classic.group import ClassicGroup
from tidelog.coordinator.group.classic.member import ClassicMember
from tidelog.coordinator.group.consumer.embedded import (
    partitions_by_id,
    read_assignment,
    read_subscription,
)
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember, TopicIdPartitions, at_epoch
from tidelog.coordinator.group.consumer.metadata_hash import MetadataHash
from tidelog.coordinator.group.consumer.records import (
    assignment_record,
    epoch_record,
    subscription_record,
    target_epoch_record,
    target_record,
)
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.internal_topics.consumer_offsets import ClassicMemberMetadata, ClassicProtocol


def consumer_group_of(classic: ClassicGroup, topics: TopicView, hashes: MetadataHash) -> ConsumerGroup:
    """The group, in memory only; raises ``WireError`` if a member's bytes cannot be read."""
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = classic.generation_id
    for each in classic.members.values():
        owned = _assigned(classic.group_id, each, topics)
        subscription = read_subscription(_metadata(classic, each))
        group.targets[each.member_id] = owned
        group.put_member(
            ConsumerMember(
                member_id=each.member_id,
                epoch=classic.generation_id,
                previous_epoch=classic.generation_id,
                instance_id=each.group_instance_id,
                rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                client_id=each.client_id,
                client_host=each.client_host,
                topics=frozenset(subscription.topics),
                assigned=at_epoch(owned, classic.generation_id),
                classic=ClassicMemberMetadata(
                    session_timeout_ms=each.session_timeout_ms,
                    supported_protocols=[
                        ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                        for protocol in each.protocols
                    ],
                ),
            )
        )
    group.metadata_hash = hashes.of(group.subscriptions.topics)
    return group


def creation_records(group: ConsumerGroup) -> list[StoredRecord]:
    """The records that make the group, in Kafka's order."""
    group_id, members = group.group_id, group.members.values()
    return [
        *(subscription_record(group_id, member) for member in members),
        epoch_record(group_id, group.epoch, group.metadata_hash),
        *(target_record(group_id, member_id, target) for member_id, target in group.targets.items()),
        target_epoch_record(group_id, group.assignment_epoch, group.assigned_at_ms),
        *(assignment_record(group_id, member) for member in members),
    ]


def _metadata(classic: ClassicGroup, member: ClassicMember) -> bytes:
    """What a member says in the group's protocol.

    A group that has never completed a rebalance has none yet, and in one that is changing its assignor a
    member may have rejoined without the old one: then what it says in the protocol that it wants most.
    """
    for name, metadata in member.protocols:
        if name == classic.protocol_name:
            return metadata
    return member.protocols[0].metadata


def _assigned(group_id: str, member: ClassicMember, topics: TopicView) -> TopicIdPartitions:
    """What a member owns; nothing if it has never synced."""
    if not member.assignment:
        return {}
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because an unsupported custom "
            "assignor is in use. Switch to one of Kafka's own assignors first.",
        )
    return partitions_by_id(
        [(each.topic, each.partitions) for each in assignment.assigned_partitions], topics
    )
