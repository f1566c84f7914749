"""The consumer group protocol (KIP-848) in one shard: heartbeats, the assignments that follow, records and
timers.

Members heartbeat and say what they subscribe to and own; the coordinator assigns, and takes each member
from what it owns to its target without the others standing still. Members of the classic protocol can be
part of such a group, and groups change from one protocol to the other while they work.

The parts: ``heartbeats`` and ``classic_members`` serve requests through ``member_update``; ``fencing``
takes members out; ``migration`` changes a group's type; ``replay`` takes records in; ``member_timers``
watches members. Part of ``GroupShard``, which sends requests for classic groups elsewhere.
"""

from __future__ import annotations

from tidelog.coordinator.group.classic.protocol import ClassicProtocol
from tidelog.coordinator.group.consumer.classic_members import ClassicMembers
from tidelog.coordinator.group.consumer.describe import described_group
from tidelog.coordinator.group.consumer.fencing import Fencing
from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.heartbeats import Heartbeats
from tidelog.coordinator.group.consumer.member_timers import MemberTimers
from tidelog.coordinator.group.consumer.member_update import UpdateTools
from tidelog.coordinator.group.consumer.metadata_hash import MetadataHash
from tidelog.coordinator.group.consumer.migration import Migration
from tidelog.coordinator.group.consumer.regexes import Regexes
from tidelog.coordinator.group.consumer.replay import ConsumerReplay
from tidelog.coordinator.group.consumer.targets import TargetAssignments
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.coordinator.group.group import Caller
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.feed import ImageDelta
from tidelog.wire.messages.consumer_group_describe import DescribedGroup
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.schema import Payload


class ConsumerProtocol:
    """The consumer groups of one shard."""

    def __init__(
        self, context: ShardContext, support: GroupSupport, groups: Groups, classic: ClassicProtocol
    ) -> None:
        self.context = context
        self.support = support
        self.groups = groups
        self._topics = TopicView(support.image)
        self._hashes = MetadataHash(self._topics)
        self._timers = MemberTimers(context, support, groups)
        self._replay = ConsumerReplay(groups)
        self._regexes = Regexes(context, support, groups, self._topics, self._hashes)
        migration = Migration(context, support, groups, classic, self._topics, self._hashes, self._timers)
        fencing = Fencing(self._hashes, self._timers, migration)
        targets = TargetAssignments(context.clock, support, self._topics)
        tools = UpdateTools(context.clock, self._topics, self._hashes, self._regexes, targets, self._timers)
        self._heartbeats = Heartbeats(support, groups, tools, fencing, migration)
        self._classic_members = ClassicMembers(support, tools, fencing, migration)

    # Records

    def replay(self, key: Payload, value: Payload | None) -> None:
        """Take in one record."""
        self._replay.apply(key, value)

    def loaded(self, group: ConsumerGroup) -> None:
        """Everything is known: members have their time to call."""
        self._timers.loaded(group)

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Topics have changed: groups that read them look again with their next heartbeat."""
        if delta.brokers:
            self._hashes.forget()
        if not delta.topics:
            return
        for group in self.groups:
            if isinstance(group, ConsumerGroup) and group.subscriptions.touch(delta.topics):
                group.request_refresh()
        self._regexes.topics_changed(delta.topics)

    # The consumer protocol

    def consumer_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat, found well-formed by ``validation``."""
        return self._heartbeats.heartbeat(caller, request)

    def describe(self, group_id: str) -> DescribedGroup:
        """ConsumerGroupDescribe of one group; what is not a consumer group is not found."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            default = self.support.config.list("group.consumer.assignors")[0]
            return described_group(group, default, self._topics)
        what = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {what}.",
        )

    # The classic protocol in consumer groups

    def join(self, caller: Caller, request: JoinGroupRequest) -> Result[JoinGroupResponse]:
        """JoinGroup."""
        return self._classic_members.join(self._group(request.group_id), caller, request)

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """SyncGroup."""
        return self._classic_members.sync(self._group(request.group_id), request)

    def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """Heartbeat."""
        return self._classic_members.heartbeat(self._group(request.group_id), request)

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """LeaveGroup."""
        return self._classic_members.leave(self._group(request.group_id), request)

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return group
