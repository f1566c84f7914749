"""The records of consumer groups (types 3 to 8 and 16 of ``__consumer_offsets``), and their tombstones.

Lists in records are sorted, so that the same state has the same bytes. Record type 4 (partition metadata) is
never written with a value: Kafka 4.1 replaced it by the metadata hash; it is only forgotten where found.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.coordinator.group.consumer.member import ConsumerMember, OwnedPartitions, TopicIdPartitions
from tidelog.coordinator.group.consumer.subscriptions import ResolvedRegex
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.wire.internal_topics import consumer_offsets as stored


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    """The group's epoch, and the hash of the topics that it reads (KIP-1101)."""
    return StoredRecord(
        stored.ConsumerGroupMetadataKey(group_id=group_id),
        stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def subscription_record(group_id: str, member: ConsumerMember) -> StoredRecord:
    """Who a member is and what it subscribes to."""
    return StoredRecord(
        stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        stored.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=member.classic,
        ),
    )


def target_record(group_id: str, member_id: str, partitions: TopicIdPartitions) -> StoredRecord:
    """What a member is to own."""
    return StoredRecord(
        stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        stored.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                stored.TopicPartition(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
                for topic_id in sorted(partitions)
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    """The group epoch that the targets are for, and when they were computed."""
    return StoredRecord(
        stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        stored.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def assignment_record(group_id: str, member: ConsumerMember) -> StoredRecord:
    """What a member owns."""
    return StoredRecord(
        stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        stored.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_owned(member.assigned),
            partitions_pending_revocation=_owned(member.revoking),
        ),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> StoredRecord:
    """The topics that an expression matches."""
    return StoredRecord(
        stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        stored.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> StoredRecord:
    """Nobody subscribes to the expression any longer."""
    return StoredRecord(
        stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None
    )


def partition_metadata_tombstone(group_id: str) -> StoredRecord:
    """Forget what a release before 4.1 wrote."""
    return StoredRecord(stored.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """Forget a member; in an order that ``replay`` relies on."""
    return [
        StoredRecord(
            stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        StoredRecord(
            stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        StoredRecord(stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[StoredRecord]:
    """Forget a group with all that is in it."""
    of_members = [member_tombstones(group_id, member_id) for member_id in member_ids]
    return [
        *(assignment for assignment, _, _ in of_members),
        *(target for _, target, _ in of_members),
        StoredRecord(stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(subscription for _, _, subscription in of_members),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        partition_metadata_tombstone(group_id),
        StoredRecord(stored.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _owned(owned: OwnedPartitions) -> list[stored.TopicPartitions]:
    return [
        stored.TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(owned[topic_id]),
            assignment_epochs=[owned[topic_id][index] for index in sorted(owned[topic_id])],
        )
        for topic_id in sorted(owned)
    ]
