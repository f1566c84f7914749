"""What an assignor is given and what it gives."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from tidelog.coordinator.group.consumer.member import TopicIdPartitions
from tidelog.ids import Uuid

AssignmentByMember = Mapping[str, TopicIdPartitions]
"""What each member is to own; a member without anything may be left out."""

_SIGNED = struct.Struct(">qq")


class MemberSpec(NamedTuple):
    """One member."""

    topics: frozenset[Uuid]
    """Subscribed topics that exist."""
    current: TopicIdPartitions
    """What it was to own before."""
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """The whole group."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[Uuid, int]
    """Partitions of each topic that a member subscribes to."""
    homogeneous: bool
    """Whether all members subscribe to the same topics."""


class Assignor(Protocol):
    """A way to distribute partitions."""

    @property
    def name(self) -> str:
        """By which members ask for it."""

    def assign(self, spec: GroupSpec) -> AssignmentByMember:
        """Distribute every partition of every subscribed topic."""


def by_topic_id(topic_ids: Iterable[Uuid]) -> list[Uuid]:
    """Topics in Kafka's order of UUIDs: as two signed numbers."""
    return sorted(topic_ids, key=_SIGNED.unpack)
