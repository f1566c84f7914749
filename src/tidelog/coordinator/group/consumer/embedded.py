"""What consumers carry in the opaque bytes of the classic protocol: subscriptions and assignments.

Two bytes of version come first. A version that is not known yet is read as the latest that is, since later
ones only add fields. Bytes that cannot be read raise ``WireError``, and so does what lists more topics and
partitions than can be read in one step.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from tidelog.coordinator.group.consumer.member import TopicIdPartitions
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.errors import WireError
from tidelog.ids import Uuid
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.codec import decode_in_slices, encode
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

MAX_ELEMENTS = 25_000
"""How many topics and partitions one member may list."""
_VERSION = struct.Struct(">h")

P = TypeVar("P", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """What a member wants."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """What a member's leader gave it."""
    return _read(ConsumerProtocolAssignment, data)


def write_assignment(partitions: TopicIdPartitions, topics: TopicView, version: int) -> bytes:
    """What the coordinator gives a member, in the member's version; topics that are gone are left out."""
    assigned = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=sorted(partitions[topic_id]))
        for topic_id in partitions
        if (topic := topics.by_id(topic_id)) is not None
    ]
    assigned.sort(key=lambda each: each.topic)
    return _VERSION.pack(version) + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def version_of(data: bytes) -> int:
    """The version that bytes are read in; the one to answer in."""
    if len(data) < _VERSION.size:
        raise WireError("the consumer protocol's version is missing")
    version: int = _VERSION.unpack_from(data)[0]
    lowest, highest = ConsumerProtocolSubscription.VERSIONS
    if version < lowest:
        raise WireError(f"the consumer protocol has no version {version}")
    return min(version, highest)


def partitions_by_id(named: list[tuple[str, list[int]]], topics: TopicView) -> dict[Uuid, frozenset[int]]:
    """Partitions of topics by name turned into those by id; topics that are gone are left out."""
    return {
        topic.id: frozenset(indexes) for name, indexes in named if (topic := topics.get(name)) is not None
    }


def _read(kind: type[P], data: bytes) -> P:
    reading = decode_in_slices(kind, version_of(data), data, _VERSION.size, max_elements=MAX_ELEMENTS)
    return run_to_end(reading)[0]
