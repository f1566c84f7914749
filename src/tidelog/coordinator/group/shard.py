"""One partition of ``__consumer_offsets``: its groups and their offsets.

A shard is made of parts that share the groups: ``classic`` (JoinGroup and what belongs to it), ``consumer``
(ConsumerGroupHeartbeat, KIP-848, and classic members of such groups), ``offsets``. Here records are handed to
the part that they belong to, and requests of the classic protocol to the part that has the group.

Owned by the runtime; handlers reach it through ``GroupCoordinator.write`` and ``read``.
"""

from __future__ import annotations

from tidelog.coordinator.group.classic.protocol import ClassicProtocol
from tidelog.coordinator.group.consumer.protocol import ConsumerProtocol
from tidelog.coordinator.group.group import Caller, GroupType
from tidelog.coordinator.group.groups import Groups
from tidelog.coordinator.group.offsets.offsets import Offsets
from tidelog.coordinator.group.support import GroupSupport
from tidelog.coordinator.runtime import Producer, Result, ShardContext
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord
from tidelog.metadata.feed import ImageDelta
from tidelog.wire.internal_topics import consumer_offsets as stored
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SCHEMAS = RecordSchemas(
    [
        (stored.LegacyOffsetCommitKey, stored.LegacyOffsetCommitValue),
        (stored.OffsetCommitKey, stored.OffsetCommitValue),
        (stored.GroupMetadataKey, stored.GroupMetadataValue),
        (stored.ConsumerGroupMetadataKey, stored.ConsumerGroupMetadataValue),
        (stored.ConsumerGroupPartitionMetadataKey, stored.ConsumerGroupPartitionMetadataValue),
        (stored.ConsumerGroupMemberMetadataKey, stored.ConsumerGroupMemberMetadataValue),
        (stored.ConsumerGroupTargetAssignmentMetadataKey, stored.ConsumerGroupTargetAssignmentMetadataValue),
        (stored.ConsumerGroupTargetAssignmentMemberKey, stored.ConsumerGroupTargetAssignmentMemberValue),
        (stored.ConsumerGroupCurrentMemberAssignmentKey, stored.ConsumerGroupCurrentMemberAssignmentValue),
        (stored.ConsumerGroupRegularExpressionKey, stored.ConsumerGroupRegularExpressionValue),
    ]
)


class GroupShard:
    """The groups of one partition."""

    def __init__(self, context: ShardContext, support: GroupSupport) -> None:
        self.context = context
        self.support = support
        self.groups = Groups()
        self.offsets = Offsets(context, support, self.groups)
        self.classic = ClassicProtocol(context, support, self.groups)
        self.consumer = ConsumerProtocol(context, support, self.groups, self.classic)

    # Records

    def replay(self, offset: int, producer: Producer, record: StoredRecord) -> None:
        """Take in one record."""
        key, value = record.key, record.value
        match key:
            case stored.OffsetCommitKey() | stored.LegacyOffsetCommitKey():
                self.offsets.replay(offset, producer, key, value)
            case stored.GroupMetadataKey():
                self.classic.replay(key, value)
            case _:
                self.consumer.replay(key, value)

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A transaction that has committed offsets, or has not, has ended."""
        self.offsets.replay_marker(producer, committed)

    def loaded(self) -> None:
        """Everything is known: members get their time to call."""
        self.classic.loaded()
        self.consumer.loaded()
        self.offsets.loaded()

    def unloaded(self) -> None:
        """Led elsewhere."""
        self.classic.unloaded()
        self.consumer.unloaded()

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Topics have changed."""
        self.consumer.metadata_changed(delta)

    # The classic protocol, in groups of either type

    def join(self, caller: Caller, request: JoinGroupRequest) -> Result[JoinGroupResponse]:
        """JoinGroup."""
        return self._protocol_of(request.group_id).join(caller, request)

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """SyncGroup."""
        return self._protocol_of(request.group_id).sync(caller, request)

    def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """Heartbeat."""
        return self._protocol_of(request.group_id).heartbeat(caller, request)

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """LeaveGroup."""
        return self._protocol_of(request.group_id).leave(caller, request)

    def _protocol_of(self, group_id: str) -> ClassicProtocol | ConsumerProtocol:
        group = self.groups.get(group_id)
        return self.consumer if group is not None and group.type is GroupType.CONSUMER else self.classic
