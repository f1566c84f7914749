"""Subscriptions and assignments as consumers write them for each other in JoinGroup and SyncGroup.

Two bytes of version, then the message. Written in the newest version, as Java's client does; read in any:
a version from the future is read as the newest known, for later ones only add fields at the end.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable

from tidelog.client.group.assignor import Assignment, Subscription
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.ids import TopicPartition
from tidelog.wire.codec import decode, encode
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

PROTOCOL_TYPE = "consumer"
_VERSION = struct.Struct(">h")
_NEWEST = 3
_NO_GENERATION = -1


def encode_subscription(subscription: Subscription, version: int = _NEWEST) -> bytes:
    """A member's subscription, for JoinGroup."""
    generation = _NO_GENERATION if subscription.generation_id is None else subscription.generation_id
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(subscription.owned_partitions)
        ],
        generation_id=generation,
        rack_id=subscription.rack_id,
    )
    return _VERSION.pack(version) + encode(message, version)


def decode_subscription(data: bytes, member_id: str, group_instance_id: str | None = None) -> Subscription:
    """What the member ``member_id`` has subscribed to."""
    version = _version(data, f"the subscription of member {member_id!r}")
    try:
        message, _ = decode(ConsumerProtocolSubscription, version, data, _VERSION.size)
    except WireError as error:
        raise _garbage(f"the subscription of member {member_id!r}", error) from error
    return Subscription(
        topics=tuple(message.topics),
        user_data=message.user_data,
        owned_partitions=tuple(
            TopicPartition(each.topic, number)
            for each in message.owned_partitions
            for number in each.partitions
        ),
        generation_id=None if message.generation_id < 0 else message.generation_id,
        rack_id=message.rack_id,
        group_instance_id=group_instance_id,
    )


def encode_assignment(assignment: Assignment, version: int = _NEWEST) -> bytes:
    """One member's assignment, for the leader's SyncGroup."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(assignment.partitions)
        ],
        user_data=assignment.user_data,
    )
    return _VERSION.pack(version) + encode(message, version)


def decode_assignment(data: bytes) -> Assignment:
    """What the leader has assigned to this member."""
    version = _version(data, "the assignment of this member")
    try:
        message, _ = decode(ConsumerProtocolAssignment, version, data, _VERSION.size)
    except WireError as error:
        raise _garbage("the assignment of this member", error) from error
    partitions = tuple(
        TopicPartition(each.topic, number)
        for each in message.assigned_partitions
        for number in each.partitions
    )
    return Assignment(partitions, message.user_data)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    return sorted(topics.items())


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"{what} is missing: the group's leader has assigned nothing to it",
        )
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{what} has version {version}")
    return min(version, _NEWEST)


def _garbage(what: str, error: WireError) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{what} cannot be read: {error}")
