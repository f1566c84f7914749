"""The classic protocol in one shard."""

from __future__ import annotations

from tidelog.coordinator.group.group import Caller
from tidelog.coordinator.group.groups import Groups
from tidelog.coordinator.group.support import GroupSupport
from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.schema import Payload


class ClassicProtocol:
    """Groups of the classic protocol."""

    def __init__(self, context: ShardContext, support: GroupSupport, groups: Groups) -> None:
        self.context = context
        self.support = support
        self.groups = groups

    def replay(self, key: Payload, value: Payload | None) -> None:
        """Take in one record."""

    def loaded(self) -> None:
        """Everything is known."""

    def unloaded(self) -> None:
        """Led elsewhere."""

    def join(self, caller: Caller, request: JoinGroupRequest) -> Result[JoinGroupResponse]:
        """JoinGroup."""
        raise NotImplementedError

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """SyncGroup."""
        raise NotImplementedError

    def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """Heartbeat."""
        raise NotImplementedError

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """LeaveGroup."""
        raise NotImplementedError
