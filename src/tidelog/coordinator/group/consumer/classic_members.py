"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Such members are assigned by the coordinator like all others; nobody is their leader. Their generation is
their member epoch. JoinGroup does what a heartbeat with new subscriptions does and is answered at once;
SyncGroup hands out what the member owns; Heartbeat tells a member that it has to rejoin: when the targets
have moved on, or are to be computed, which its JoinGroup does; when it has partitions to give up; when those
that it waits for are free. It says what it still owns in its subscription, as cooperative consumers do; one
that says nothing has given everything up by rejoining.
"""

from __future__ import annotations

import msgspec

from tidelog.coordinator.group.classic.group import ClassicGroup
from tidelog.coordinator.group.consumer.embedded import (
    partitions_by_id,
    read_subscription,
    version_of,
    write_assignment,
)
from tidelog.coordinator.group.consumer.fencing import Fencing
from tidelog.coordinator.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from tidelog.coordinator.group.consumer.member import (
    ConsumerMember,
    MemberState,
    TopicIdPartitions,
    without_epochs,
)
from tidelog.coordinator.group.consumer.member_update import MemberUpdate, UpdateTools
from tidelog.coordinator.group.consumer.migration import Migration, Then
from tidelog.coordinator.group.consumer.static_members import replace_static, require_instance
from tidelog.coordinator.group.group import Caller
from tidelog.coordinator.group.groups import GroupSupport
from tidelog.coordinator.runtime import Result
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.ids import uuid_to_text
from tidelog.wire.internal_topics.consumer_offsets import ClassicMemberMetadata, ClassicProtocol
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_MEMBER_ID_REQUIRED_SINCE = 4


class ClassicMembers:
    """Serves the classic members of the consumer groups of one shard."""

    def __init__(
        self, support: GroupSupport, tools: UpdateTools, fencing: Fencing, migration: Migration
    ) -> None:
        self._support = support
        self._tools = tools
        self._fencing = fencing
        self._migration = migration

    # JoinGroup

    def join(
        self, group: ConsumerGroup, caller: Caller, request: JoinGroupRequest
    ) -> Result[JoinGroupResponse]:
        """Let a member join or rejoin."""
        is_new = not request.member_id
        member_id = request.member_id or uuid_to_text(self._support.new_member_uuid())
        self._check_join(group, request, member_id)
        if is_new and request.group_instance_id is None and caller.api_version >= _MEMBER_ID_REQUIRED_SINCE:
            required = JoinGroupResponse(member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED)
            return Result((), required)
        records: list[StoredRecord] = []
        existing = group.static_member(request.group_instance_id)
        member = _joining_member(group, request, member_id, existing, records, is_new=is_new)
        subscription = _subscription(request)
        update = MemberUpdate(
            self._tools,
            group,
            member,
            _updated(member, caller, request, subscription),
            records,
            caller.may_describe,
        )
        update.subscribe()
        update.bump_group_epoch(needed=update.subscription_changed)
        classic = self._migration.classic_with(group, existing, update.updated) if existing else None
        if classic is not None:
            then = self._join_and_downgrade(update, classic, subscription)
            return Result(records, _joined(update.updated), then, replay=False)
        update.reconcile(update.assign(), self._owned(subscription))
        joined = update.updated

        def admit(error: KafkaError | None) -> None:
            # One that is not committed in time is a member all the same.
            if error is None or error.code is ErrorCode.REQUEST_TIMED_OUT:
                self._tools.timers.joined(group.group_id, joined)

        return Result(records, _joined(joined), admit)

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
        if self._migration.is_disabled:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol because the "
                "group migration is disabled.",
            )
        limit = self._support.config.int("group.consumer.max.size")
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )
        if not group.supports_classic(request.protocol_type, [each.name for each in request.protocols]):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
            )

    def _join_and_downgrade(
        self, update: MemberUpdate, classic: ClassicGroup, subscription: ConsumerProtocolSubscription
    ) -> Then:
        rebalance = update.group.assignment_epoch < update.group_epoch
        if not rebalance:
            update.reconcile(update.last_target(), self._owned(subscription))
        return self._migration.downgrade_with(update.group, classic, update.records, rebalance=rebalance)

    def _owned(self, subscription: ConsumerProtocolSubscription) -> TopicIdPartitions:
        named = [(each.topic, each.partitions) for each in subscription.owned_partitions]
        return partitions_by_id(named, self._tools.topics)

    # SyncGroup and Heartbeat

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """Hand out what the member owns."""
        member = _require(group, request.member_id, request.group_instance_id, request.generation_id)
        _require_protocol(member, request)
        if self._is_behind(group, member) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._tools.timers.expect_join(group.group_id, member)
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} "
                "should rejoin to catch up.",
            )
        version = version_of(member.classic_protocols[0].metadata)
        self._tools.timers.synced(group.group_id, member)
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(without_epochs(member.assigned), self._tools.topics, version),
        )
        return Result((), response)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """The member is alive; tell it if it has to rejoin."""
        member = _require(group, request.member_id, request.group_instance_id, request.generation_id)
        self._tools.timers.expect_heartbeat(group.group_id, member)
        must_rejoin = (
            self._is_behind(group, member)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        )
        if not must_rejoin:
            return Result((), HeartbeatResponse())
        self._tools.timers.expect_join(group.group_id, member)
        return Result((), HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def _is_behind(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether there are later targets than the member's, or would be if it rejoined.

        Where only classic members call, nobody else would have them computed.
        """
        return member.epoch < group.assignment_epoch or self._tools.targets.are_due(group)

    # LeaveGroup

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """Take out members of either protocol; administrators do it by instance id."""
        responses: list[MemberResponse] = []
        leaving: dict[str, ConsumerMember] = {}
        for identity in request.members:
            response = MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            try:
                member = _leaving(group, identity)
                leaving[member.member_id] = member
            except KafkaError as error:
                response.error_code = error.code
            responses.append(response)
        return self._fencing.fence(group, leaving.values(), LeaveGroupResponse(members=responses))


def _joining_member(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    member_id: str,
    existing: ConsumerMember | None,
    records: list[StoredRecord],
    *,
    is_new: bool,
) -> ConsumerMember:
    instance_id = request.group_instance_id
    if instance_id is not None and not is_new:
        return require_instance(group, instance_id, member_id)
    if existing is not None:
        return replace_static(group, existing, member_id, records)
    return group.members.get(member_id) or ConsumerMember(member_id=member_id)


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """What the member subscribes to: the same in all its protocols."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except WireError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The embedded consumer protocol is malformed: {error}"
        ) from error


def _updated(
    member: ConsumerMember,
    caller: Caller,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerMember:
    return msgspec.structs.replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=each.name, metadata=each.metadata) for each in request.protocols
            ],
        ),
    )


def _joined(member: ConsumerMember) -> JoinGroupResponse:
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic_protocols[0].name,
    )


def _require(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerMember:
    """The classic member that calls; raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = require_instance(group, instance_id, member_id)
    if not member.uses_classic_protocol:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    if member.epoch != generation_id:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch {member.epoch} of "
            f"member {member.member_id}.",
        )
    return member


def _require_protocol(member: ConsumerMember, request: SyncGroupRequest) -> None:
    name = member.classic_protocols[0].name
    if request.protocol_type is not None and request.protocol_type != PROTOCOL_TYPE:
        told, known = request.protocol_type, PROTOCOL_TYPE
    elif request.protocol_name is not None and request.protocol_name != name:
        told, known = request.protocol_name, name
    else:
        return
    raise KafkaError(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        f"Member {member.member_id} syncs with protocol {told}, but was told {known} when it joined.",
    )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    return require_instance(group, identity.group_instance_id, identity.member_id or None)
