"""JoinGroup in classic groups: who is let in, as whom, and whether that makes the group rebalance.

New dynamic members get an id and have to come back with it (KIP-394, since version 4); new static members are
let in at once, and take the place of the one that had their ``group.instance.id`` (KIP-345). If that leaves
the protocol of a stable group unchanged there is no rebalance: the new incarnation gets the old one's
assignment, and its leader is told to skip assigning (KIP-814, since version 9).

A new group is written down, empty, before its first member is answered. Difference: a refused JoinGroup makes
no group here; in Kafka one with unusable protocols leaves an empty group behind.
"""

from __future__ import annotations

import logging
import uuid
from functools import partial
from typing import NamedTuple

from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState
from tidelog.coordinator.group.classic.member import ClassicMember, Protocols, protocols_of
from tidelog.coordinator.group.classic.rebalance import Rebalances, Write, generation_response
from tidelog.coordinator.group.classic.records import metadata_record, new_group_record
from tidelog.coordinator.group.group import Caller, Group
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.log import told_error
from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

logger = logging.getLogger(__name__)

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
# An id that no answer has room for would keep the group's leader from ever hearing who is in it.
_LONGEST_PREFIX = 1000
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""How long a new member's JoinGroup may wait: it has no id to heartbeat with, so nothing else tells."""


class _Joining(NamedTuple):
    """One JoinGroup on its way."""

    caller: Caller
    request: JoinGroupRequest
    protocols: Protocols
    reply: Promise[JoinGroupResponse]

    @property
    def reason(self) -> str:
        return self.request.reason or "not provided"


class Joins:
    """Lets members into the classic groups of one shard."""

    def __init__(
        self, context: ShardContext, support: GroupSupport, groups: Groups, rebalances: Rebalances
    ) -> None:
        self._clock = context.clock
        self._support = support
        self._groups = groups
        self._rebalances = rebalances

    def join(
        self, caller: Caller, request: JoinGroupRequest, instead_of: Group | None = None
    ) -> Result[JoinGroupResponse]:
        """JoinGroup; ``instead_of`` is an empty group of another type, which a new member puts an end to."""
        member_id = request.member_id
        found = None if instead_of is not None else self._groups.get(request.group_id)
        group = found if isinstance(found, ClassicGroup) else None
        if group is None and member_id:
            return _refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        joining = _Joining(caller, request, protocols_of(request.protocols), Promise())
        if group is None:
            return self._join_new_group(joining, instead_of)
        if not self._has_room(group, member_id):
            group.members.remove(member_id)
            return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        if not group.supports(request.protocol_type, _names(joining)):
            return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        write = self._join_known(group, joining) if member_id else self._join_unknown(group, joining)
        return _result(write, joining)

    def _join_new_group(self, joining: _Joining, instead_of: Group | None) -> Result[JoinGroupResponse]:
        request = joining.request
        group = ClassicGroup.new(request.group_id, self._clock)
        if not group.supports(request.protocol_type, _names(joining)):
            return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        records = [] if instead_of is None else instead_of.tombstones()
        records.append(new_group_record(group))
        self._groups.put(group)
        self._join_unknown(group, joining)
        return Result(records, joining.reply, partial(self._founded, group, instead_of), replay=False)

    def _founded(self, group: ClassicGroup, instead_of: Group | None, error: KafkaError | None) -> None:
        # A write that takes too long may still come to pass; one that failed leaves no group behind.
        if error is None or error.code is ErrorCode.REQUEST_TIMED_OUT:
            return
        self._rebalances.forget_group(group, told_error(error).code)
        if self._groups.get(group.group_id) is not group:
            return
        if instead_of is None:
            self._groups.remove(group.group_id)
        else:
            self._groups.put(instead_of)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether ``group.max.size`` allows it (KIP-389).

        While a group rebalances those count who have joined already, so that a group that is too large
        gets smaller: the last to rejoin are turned away.
        """
        if group.is_empty:
            return True
        limit = self._support.config.int("group.max.size")
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            waits = member is not None and member.awaiting_join is not None
            return waits or group.members.awaiting_join_count < limit
        return member is not None or len(group.members) < limit

    # New members

    def _join_unknown(self, group: ClassicGroup, joining: _Joining) -> Write:
        instance_id = joining.request.group_instance_id
        prefix = joining.caller.client_id if instance_id is None else instance_id
        new_id = f"{prefix[:_LONGEST_PREFIX]}-{uuid.UUID(bytes=self._support.new_member_uuid())}"
        if instance_id is not None:
            current = group.members.by_instance_id.get(instance_id)
            if current is not None:
                return self._replace_static(group, joining, current, new_id)
        elif joining.caller.api_version >= MEMBER_ID_REQUIRED_SINCE:
            self._rebalances.expect_join(group, new_id, joining.request.session_timeout_ms)
            joining.reply.resolve(
                JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id)
            )
            return None
        return self._add(group, joining, new_id)

    def _add(self, group: ClassicGroup, joining: _Joining, member_id: str) -> Write:
        request, caller = joining.request, joining.caller
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=joining.protocols,
            is_new=True,
        )
        if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
            group.new_member_added = True
        group.add(member, joining.reply)
        self._rebalances.expect_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalances.begin(group, f"{member_id} joins; its reason: {joining.reason}")

    # Members that have an id

    def _join_known(self, group: ClassicGroup, joining: _Joining) -> Write:
        request = joining.request
        member_id = request.member_id
        if member_id in group.members.pending_join and request.group_instance_id is None:
            return self._add(group, joining, member_id)
        try:
            group.members.check(member_id, request.group_instance_id)
        except KafkaError as error:
            _answer(joining, error.code)
            return None
        member = group.members[member_id]
        if group.state is ClassicState.PREPARING_REBALANCE:
            return self._rejoin(group, joining, member, "joins")
        if group.is_empty:
            _answer(joining, ErrorCode.UNKNOWN_MEMBER_ID)
            return None
        if member.protocols != joining.protocols:
            return self._rejoin(group, joining, member, "rejoins with other metadata")
        if group.state is ClassicState.STABLE and group.members.is_leader(member_id):
            # So a leader has its group assigned anew when topics have changed, which metadata does not tell.
            return self._rejoin(group, joining, member, "leads and rejoins")
        joining.reply.resolve(generation_response(group, member_id))
        return None

    def _rejoin(self, group: ClassicGroup, joining: _Joining, member: ClassicMember, why: str) -> Write:
        self._update(group, joining, member)
        return self._rebalances.begin(group, f"{member.member_id} {why}; its reason: {joining.reason}")

    def _update(self, group: ClassicGroup, joining: _Joining, member: ClassicMember) -> None:
        request = joining.request
        group.members.update(
            member,
            joining.protocols,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            joining.reply,
        )

    # Static members that come again

    def _replace_static(self, group: ClassicGroup, joining: _Joining, old_id: str, new_id: str) -> Write:
        instance_id = joining.request.group_instance_id or ""
        leader_before = group.members.leader_id
        member = group.members.replace_static(instance_id, old_id, new_id)
        self._rebalances.expect_heartbeat(group, member)
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        self._update(group, joining, member)
        logger.info("Group %s: %s comes again, as %s", group.group_id, instance_id, new_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            return self._rebalances.complete_if_joined(group)
        if group.state is ClassicState.STABLE and group.members.select_protocol() == group.protocol_name:

            def replaced(error: KafkaError | None) -> None:
                if error is None:
                    self._confirm_replaced(group, joining, member, leader_before)
                elif group.members.get(new_id) is member:
                    group.members.update(member, *before, None)
                    self._rebalances.expect_heartbeat(
                        group, group.members.replace_static(instance_id, new_id, old_id)
                    )

            return Result([metadata_record(group)], None, replaced, replay=False)
        # In a group that waits for its leader's assignment the old id may be part of that already.
        return self._rebalances.prepare(
            group, f"static member {instance_id} comes again as {new_id}; its reason: {joining.reason}"
        )

    def _confirm_replaced(
        self, group: ClassicGroup, joining: _Joining, member: ClassicMember, leader_before: str | None
    ) -> None:
        if group.state is not ClassicState.STABLE or member.awaiting_join is not joining.reply:
            # Another rebalance has begun since; the member is part of it and is answered by it.
            return
        response = generation_response(group, member.member_id)
        if joining.caller.api_version >= SKIP_ASSIGNMENT_SINCE:
            response.skip_assignment = group.members.is_leader(member.member_id)
        else:
            # Told of the leader before, an older client does not take itself for one and assign.
            response.leader = leader_before or ""
            response.members = []
        group.members.settle_join(member, response)


def _names(joining: _Joining) -> list[str]:
    return [protocol.name for protocol in joining.protocols]


def _answer(joining: _Joining, error: ErrorCode) -> None:
    joining.reply.resolve(
        JoinGroupResponse(error_code=error, member_id=joining.request.member_id, protocol_name=None)
    )


def _refused(error: ErrorCode, member_id: str) -> Result[JoinGroupResponse]:
    return Result((), JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None))


def _result(write: Write, joining: _Joining) -> Result[JoinGroupResponse]:
    if write is None:
        return Result((), joining.reply)
    return Result(write.records, joining.reply, write.then, write.replay)
