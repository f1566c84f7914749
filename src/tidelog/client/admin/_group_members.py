"""Members of groups as descriptions show them, from both protocols' answers.

In the classic protocol a member's subscription and assignment are bytes that consumers write for each other
(``wire/messages/consumer_protocol`` behind two bytes of version); other clients' bytes (Kafka Connect,
Schema Registry) are left unread. Called by ``client.admin._groups``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeVar

from tidelog.client.admin.group_resources import MemberDescription
from tidelog.errors import KafkaError, WireError
from tidelog.ids import TopicPartition
from tidelog.wire.codec import decode
from tidelog.wire.messages import consumer_group_describe, describe_groups
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tidelog.wire.schema import Payload

CONSUMER_PROTOCOL_TYPE = "consumer"
_INT16 = struct.Struct(">h")
_CONSUMER_MEMBER = 1
_UNKNOWN_MEMBER = -1

PayloadT = TypeVar("PayloadT", bound=Payload)


def classic_member(member: describe_groups.DescribedGroupMember, protocol_type: str) -> MemberDescription:
    """A member of a classic group."""
    topics: tuple[str, ...] | None = None
    assignment: tuple[TopicPartition, ...] | None = None
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        topics, assignment = _topics(member.member_metadata), _assignment(member.member_assignment)
    return MemberDescription(
        member.member_id,
        member.client_id,
        _host(member.client_host),
        member.group_instance_id,
        topics=topics,
        assignment=assignment,
    )


def consumer_member(member: consumer_group_describe.Member) -> MemberDescription:
    """A member of a consumer group (KIP-848)."""
    known = member.member_type != _UNKNOWN_MEMBER
    return MemberDescription(
        member.member_id,
        member.client_id,
        _host(member.client_host),
        member.instance_id,
        member.rack_id,
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        _sorted(
            (each.topic_name, index)
            for each in member.assignment.topic_partitions
            for index in each.partitions
        ),
        _sorted(
            (each.topic_name, index)
            for each in member.target_assignment.topic_partitions
            for index in each.partitions
        ),
        member.member_epoch,
        member.member_type == _CONSUMER_MEMBER if known else None,
    )


def _topics(data: bytes) -> tuple[str, ...] | None:
    subscription = _read(ConsumerProtocolSubscription, data)
    return None if subscription is None else tuple(sorted(subscription.topics))


def _assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    if not data:
        # A member that has joined and not yet synced.
        return ()
    assignment = _read(ConsumerProtocolAssignment, data)
    if assignment is None:
        return None
    return _sorted(
        (each.topic, index) for each in assignment.assigned_partitions for index in each.partitions
    )


def _read(payload: type[PayloadT], data: bytes) -> PayloadT | None:
    """The payload in ``data``; None where a client wrote something else. Later versions read as the last."""
    if len(data) < _INT16.size:
        return None
    version = min(max(_INT16.unpack_from(data)[0], payload.VERSIONS[0]), payload.VERSIONS[1])
    try:
        return decode(payload, version, data, _INT16.size)[0]
    except (WireError, KafkaError):
        return None


def _sorted(pairs: Iterable[tuple[str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(topic, index) for topic, index in pairs))


def _host(text: str) -> str:
    # Java brokers print an InetAddress: a name that may be empty, a slash, the address.
    return text.rpartition("/")[2]
