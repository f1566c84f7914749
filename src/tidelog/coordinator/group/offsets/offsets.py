"""The committed offsets of one shard."""

from __future__ import annotations

from tidelog.coordinator.group.groups import Groups
from tidelog.coordinator.group.support import GroupSupport
from tidelog.coordinator.runtime import Producer, ShardContext
from tidelog.wire.schema import Payload


class Offsets:
    """Offsets by group and partition."""

    def __init__(self, context: ShardContext, support: GroupSupport, groups: Groups) -> None:
        self.context = context
        self.support = support
        self.groups = groups

    def replay(self, offset: int, producer: Producer, key: Payload, value: Payload | None) -> None:
        """Take in one record."""

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A transaction has ended."""

    def loaded(self) -> None:
        """Everything is known."""
