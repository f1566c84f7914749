"""The classic protocol in one shard: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and groups as records.

Members agree on a generation (``joins``, ``rebalance``), their leader assigns, and the coordinator writes
that down and hands it out. Only generations with their assignment, and groups that have become empty, are
in the log; everything else is in memory, and members that find their coordinator has moved join again.

Part of ``GroupShard``, which sends requests for groups of other types elsewhere.
"""

from __future__ import annotations

from functools import partial

from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState
from tidelog.coordinator.group.classic.joins import Joins
from tidelog.coordinator.group.classic.rebalance import Rebalances
from tidelog.coordinator.group.classic.records import group_of, metadata_record
from tidelog.coordinator.group.group import Caller, Group
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.log import told_error
from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.wire.internal_topics.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from tidelog.wire.messages.describe_groups import DescribedGroup
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.schema import Payload

_NOT_FOUND_SINCE = 6
"""Since this version of DescribeGroups a group that is not there is an error (KIP-1043)."""


class ClassicProtocol:
    """The classic groups of one shard."""

    def __init__(self, context: ShardContext, support: GroupSupport, groups: Groups) -> None:
        self.context = context
        self.support = support
        self.groups = groups
        self.rebalances = Rebalances(context, support, groups)
        self._joins = Joins(context, support, groups, self.rebalances)

    # Records

    def replay(self, key: Payload, value: Payload | None) -> None:
        """Take in one record; a tombstone forgets the group, unless it is of another type by now."""
        assert isinstance(key, GroupMetadataKey)
        if isinstance(value, GroupMetadataValue):
            self.groups.put(group_of(key.group, value, self.context.clock))
        elif isinstance(self.groups.get(key.group), ClassicGroup):
            self.groups.remove(key.group)

    def loaded(self, group: ClassicGroup) -> None:
        """Everything is known: members have a session timeout to call, and a too large group shrinks."""
        if not group.members:
            return
        for member in group.members.values():
            self.rebalances.expect_heartbeat(group, member)
        limit = self.support.config.int("group.max.size")
        if len(group.members) > limit:
            self.rebalances.prepare(group, f"it has more members than group.max.size={limit}")

    def unloaded(self, group: ClassicGroup) -> None:
        """Led elsewhere: whoever waits has to look for the coordinator."""
        group.transition_to(ClassicState.DEAD)
        group.members.settle_all(ErrorCode.NOT_COORDINATOR)

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # Requests

    def join(
        self, caller: Caller, request: JoinGroupRequest, instead_of: Group | None = None
    ) -> Result[JoinGroupResponse]:
        """JoinGroup; ``instead_of`` is an empty group of another type, which a new member puts an end to."""
        return self._joins.join(caller, request, instead_of)

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """SyncGroup: the assignment, now or when the leader has sent it and it is in the log."""
        group = self._find(request.group_id)
        if group is None or group.is_empty:
            return Result((), SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        try:
            _check_sync(group, request)
        except KafkaError as error:
            return Result((), SyncGroupResponse(error_code=error.code))
        member = group.members[request.member_id]
        if group.state is ClassicState.PREPARING_REBALANCE:
            return Result((), SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        self.rebalances.synced(group, request.member_id)
        if group.state is ClassicState.STABLE:
            response = SyncGroupResponse(
                protocol_type=group.protocol_type or None,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            )
            return Result((), response)
        sync_answer: Promise[SyncGroupResponse] = Promise()
        group.members.await_sync(member, sync_answer)
        if not group.members.is_leader(request.member_id):
            return Result((), sync_answer)
        assignments = {each.member_id: each.assignment for each in request.assignments}
        then = partial(self._assigned, group, group.generation_id, assignments)
        return Result([metadata_record(group, assignments)], sync_answer, then, replay=False)

    def _assigned(
        self,
        group: ClassicGroup,
        generation_id: int,
        assignments: dict[str, bytes],
        error: KafkaError | None,
    ) -> None:
        if group.state is not ClassicState.COMPLETING_REBALANCE or group.generation_id != generation_id:
            # Somebody joined or left while the record was on its way: there will be another.
            return
        if error is None:
            self.rebalances.set_assignment(group, assignments)
            return
        code = told_error(error).code
        self.rebalances.drop_assignment(group, code)
        self.rebalances.begin(group, f"its assignment could not be written: {code.name}")

    def heartbeat(self, caller: Caller, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """Heartbeat: the member lives; it learns that it has to rejoin."""
        group = self._find(request.group_id)
        if group is None:
            return Result((), HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        try:
            group.members.check(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return Result((), HeartbeatResponse(error_code=error.code))
        if request.generation_id != group.generation_id:
            return Result((), HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
        self.rebalances.expect_heartbeat(group, group.members[request.member_id])
        if group.state is ClassicState.PREPARING_REBALANCE:
            return Result((), HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return Result((), HeartbeatResponse())

    def heard_of(self, group: Group, member_id: str) -> None:
        """A member has committed offsets: in a stable or rebalancing group as good as a heartbeat."""
        if isinstance(group, ClassicGroup) and group.state in (
            ClassicState.STABLE,
            ClassicState.PREPARING_REBALANCE,
        ):
            member = group.members.get(member_id)
            if member is not None:
                self.rebalances.expect_heartbeat(group, member)

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """LeaveGroup, of one member or several; the rest rebalance."""
        group = self._find(request.group_id)
        answers = [self._leave_one(group, identity) for identity in request.members]
        response = LeaveGroupResponse(members=answers)
        left = [answer.member_id for answer in answers if not answer.error_code]
        if group is None or not left:
            return Result((), response)
        if group.state is ClassicState.PREPARING_REBALANCE:
            write = self.rebalances.complete_if_joined(group)
        elif group.is_empty:
            write = None
        else:
            write = self.rebalances.prepare(group, f"these members leave: {left}")
        if write is None:
            return Result((), response)
        return Result(write.records, response, write.then, write.replay)

    def _leave_one(self, group: ClassicGroup | None, identity: MemberIdentity) -> MemberResponse:
        answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
        member_id = identity.member_id
        if group is None:
            answer.error_code = ErrorCode.UNKNOWN_MEMBER_ID
            return answer
        if not member_id and identity.group_instance_id is not None:
            # An administrator takes a static member out by its instance id alone.
            member_id = group.members.by_instance_id.get(identity.group_instance_id, "")
        if member_id not in group.members.pending_join:
            try:
                group.members.check(member_id, identity.group_instance_id)
            except KafkaError as error:
                answer.error_code = error.code
                return answer
        self.rebalances.forget_member(group, member_id)
        return answer

    def describe(self, group_id: str, api_version: int) -> DescribedGroup:
        """DescribeGroups: a group that is not there, or no classic one, is dead, and not found since 6."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            gone = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
            if api_version >= _NOT_FOUND_SINCE:
                what = "not found" if group is None else "is not a classic group"
                gone.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                gone.error_message = f"Group {group_id} {what}."
            return gone
        protocol_name = group.protocol_name if group.state is ClassicState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type,
            protocol_data=protocol_name or "",
            members=[member.described(protocol_name) for member in group.members.values()],
        )


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> None:
    group.members.check(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    for told, current in (
        (request.protocol_type, group.protocol_type or None),
        (request.protocol_name, group.protocol_name),
    ):
        if told is not None and current is not None and told != current:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
