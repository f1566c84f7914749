"""``sticky``: as even as can be, and of all such assignments one that moves few partitions.

Members tell the leader what they owned in their user data: version 1 is an array of topics with their
partitions, then the generation (both int32 in big-endian order); version 0 has no generation. It is eager:
members give everything up before they rejoin, and get most of it back.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tidelog.client.group.assignor import Assignment, Subscription
from tidelog.client.group.assignors._sticky_claims import NO_GENERATION, Claim, Claims, RackView
from tidelog.client.group.assignors._sticky_equal import EqualShares
from tidelog.client.group.assignors._sticky_general import UnequalShares
from tidelog.client.group.assignors._topic_layout import Assigned, Layout, LayoutAssignor
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.group.membership import ConsumerGroupMetadata

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


class StickyAssignor(LayoutAssignor):
    """Keeps partitions where they are as far as evenness allows."""

    name = "sticky"

    def __init__(self) -> None:
        self._mine: Claim | None = None

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return None if self._mine is None else encode_claim(self._mine)

    def on_assignment(self, assignment: Assignment, member: ConsumerGroupMetadata) -> None:
        self._mine = Claim(assignment.partitions, member.generation_id)

    def assign_layout(self, layout: Layout, members: Mapping[str, Subscription]) -> Assigned:
        return sticky_assignment(layout, Claims.of(members, layout, self.claim_of))[0]

    def claim_of(self, subscription: Subscription) -> Claim:
        """What a member owned, by its own account."""
        return decode_claim(subscription.user_data) if subscription.user_data else Claim()


def sticky_assignment(layout: Layout, claims: Claims) -> tuple[Assigned, dict[TopicPartition, str] | None]:
    """The assignment, and the partitions that change hands with their new owners where that is known."""
    places = [place for each in layout.values() for place in each]
    racks = RackView(places, claims.members)
    if claims.all_read_the_same():
        shares = EqualShares(layout, racks, claims)
        return shares.build(), shares.moving
    return UnequalShares(layout, racks, claims).build(), None


def encode_claim(claim: Claim) -> bytes:
    """User data of version 1."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in claim.partitions:
        topics[partition.topic].append(partition.partition)
    parts = [_INT.pack(len(topics))]
    for topic, numbers in topics.items():
        raw = topic.encode()
        parts += [_SHORT.pack(len(raw)), raw, _ints([len(numbers), *numbers])]
    parts.append(_INT.pack(NO_GENERATION if claim.generation is None else claim.generation))
    return b"".join(parts)


def decode_claim(data: bytes) -> Claim:
    """User data of either version; what cannot be read claims nothing."""
    try:
        partitions, position = _read_partitions(data)
    except (struct.error, UnicodeDecodeError, ValueError):
        return Claim((), NO_GENERATION)
    if len(data) - position < _INT.size:
        return Claim(partitions, None)
    return Claim(partitions, _INT.unpack_from(data, position)[0])


def _read_partitions(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    partitions = []
    (topic_count,) = _INT.unpack_from(data)
    position = _INT.size
    for _ in range(topic_count):
        (size,) = _SHORT.unpack_from(data, position)
        position += _SHORT.size
        if size < 0 or position + size > len(data):
            raise ValueError("a topic name ends behind the data")
        topic = data[position : position + size].decode()
        position += size
        (count,) = _INT.unpack_from(data, position)
        position += _INT.size
        for _ in range(count):
            partitions.append(TopicPartition(topic, _INT.unpack_from(data, position)[0]))
            position += _INT.size
    return tuple(partitions), position


def _ints(values: Iterable[int]) -> bytes:
    return b"".join(_INT.pack(value) for value in values)
