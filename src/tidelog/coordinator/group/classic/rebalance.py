"""Rebalances of classic groups: from the first JoinGroup to the generation, and what ends or restarts one.

    Empty or Stable --join, leave, expiry--> PreparingRebalance --all joined, or time is up-->
    CompletingRebalance --leader's SyncGroup is in the log--> Stable

In PreparingRebalance JoinGroups wait; in CompletingRebalance SyncGroups wait. The first rebalance of an empty
group waits ``group.initial.rebalance.delay.ms``, again whenever somebody joins meanwhile, up to the rebalance
timeout (KIP-134). Dynamic members that do not rejoin in time are removed; static ones stay until their
session ends (KIP-345). Members that do not sync within the rebalance timeout are removed.

Timers: one for a group's join phase, one for its sync phase, one for each member's session, pending members
included. An action of a timer whose group is no longer in the registry does nothing.

Called by ``ClassicProtocol`` and its joins, and by ``consumer`` when it turns a group into a classic one.
"""

from __future__ import annotations

import logging
from functools import partial

from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState
from tidelog.coordinator.group.classic.member import EMPTY_ASSIGNMENT, ClassicMember
from tidelog.coordinator.group.classic.records import metadata_record
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.log import told_error
from tidelog.coordinator.runtime import Result, ShardContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

Write = Result[None] | None
"""The record that a step of a rebalance comes to, if any; the group already is what it says."""


def generation_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """JoinGroup's answer in the current generation; the leader also learns who the members are."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type or None,
        protocol_name=group.protocol_name,
        leader=group.members.leader_id or "",
        member_id=member_id,
        members=group.listed_members() if group.members.is_leader(member_id) else [],
    )


class Rebalances:
    """Takes the classic groups of one shard through their rebalances."""

    def __init__(self, context: ShardContext, support: GroupSupport, groups: Groups) -> None:
        self._timers = context.timers
        self._config = support.config
        self._groups = groups

    # Beginning

    def begin(self, group: ClassicGroup, reason: str) -> Write:
        """Begin a rebalance, or go on with the one that is under way."""
        return self.prepare(group, reason) if group.can_rebalance else self.complete_if_joined(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Write:
        """Have everybody join again; who waits with a SyncGroup is told so."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.drop_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._end_sync_phase(group)
        initial = group.is_empty
        group.transition_to(ClassicState.PREPARING_REBALANCE)
        logger.info(
            "Group %s rebalances after generation %d: %s", group.group_id, group.generation_id, reason
        )
        if initial:
            delay_ms = self._config.int("group.initial.rebalance.delay.ms")
            self._wait_for_more(group, delay_ms, max(group.members.rebalance_timeout_ms - delay_ms, 0))
            return None
        if group.members.all_joined:
            return self.complete_join(group)
        self._wait_for_join(group)
        return None

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        self._timers.schedule(
            _join_key(group), delay_ms, partial(self._initial_delay_over, group, delay_ms, remaining_ms)
        )

    def _initial_delay_over(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> Write:
        if not self._is_current(group):
            return None
        if not group.new_member_added or remaining_ms == 0:
            return self.complete_join(group)
        group.new_member_added = False
        next_ms = min(self._config.int("group.initial.rebalance.delay.ms"), remaining_ms)
        self._wait_for_more(group, next_ms, max(remaining_ms - delay_ms, 0))
        return None

    def _wait_for_join(self, group: ClassicGroup) -> None:
        self._timers.schedule(
            _join_key(group), group.members.rebalance_timeout_ms, partial(self._join_phase_over, group)
        )

    def _join_phase_over(self, group: ClassicGroup) -> Write:
        return self.complete_join(group) if self._is_current(group) else None

    # The next generation

    def complete_if_joined(self, group: ClassicGroup) -> Write:
        """End the join phase if nobody is missing; an initial one lasts its time."""
        if group.state is not ClassicState.PREPARING_REBALANCE or group.previous_state is ClassicState.EMPTY:
            return None
        return self.complete_join(group) if group.members.all_joined else None

    def complete_join(self, group: ClassicGroup) -> Write:
        """End the join phase: who has joined is the next generation."""
        self._timers.cancel(_join_key(group))
        self._remove_absent(group)
        if group.members and not group.members.elect_joined_leader():
            # Only static members are left, and none of them has come: their sessions decide.
            logger.warning("Group %s cannot rebalance: none of its members has rejoined", group.group_id)
            self._wait_for_join(group)
            return None
        group.begin_generation()
        if not group.members:
            logger.info("Group %s is empty after generation %d", group.group_id, group.generation_id - 1)
            return Result([metadata_record(group)], None, partial(_emptied, group), replay=False)
        logger.info(
            "Group %s: generation %d of %d members with protocol %s",
            group.group_id,
            group.generation_id,
            len(group.members),
            group.protocol_name,
        )
        for member in list(group.members.values()):
            group.members.settle_join(member, generation_response(group, member.member_id))
            self.expect_heartbeat(group, member)
            member.is_new = False
            group.members.pending_sync.add(member.member_id)
        self._timers.schedule(
            _sync_key(group),
            group.members.rebalance_timeout_ms,
            partial(self._sync_phase_over, group, group.generation_id),
        )
        return None

    def _remove_absent(self, group: ClassicGroup) -> None:
        absent = [
            member.member_id
            for member in group.members.values()
            if member.awaiting_join is None and not member.is_static
        ]
        for member_id in absent:
            self.forget_member(group, member_id)
        if absent:
            logger.info("Group %s: these members did not rejoin in time: %s", group.group_id, absent)

    # Assignments

    def set_assignment(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """The leader's assignment is in the log: hand it out."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, EMPTY_ASSIGNMENT)
        self._answer_syncs(group, ErrorCode.NONE)
        group.transition_to(ClassicState.STABLE)

    def drop_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
        """There will be no assignment in this generation."""
        for member in group.members.values():
            member.assignment = EMPTY_ASSIGNMENT
        self._answer_syncs(group, error)

    def _answer_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        assigned = error is ErrorCode.NONE
        for member in list(group.members.values()):
            response = SyncGroupResponse(
                error_code=error,
                protocol_type=group.protocol_type if assigned else None,
                protocol_name=group.protocol_name if assigned else None,
                assignment=member.assignment,
            )
            if group.members.settle_sync(member, response):
                # Whoever waited was not held to heartbeats, and its session may have ended meanwhile.
                self.expect_heartbeat(group, member)

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """A member has asked for its assignment."""
        group.members.pending_sync.discard(member_id)
        if not group.members.pending_sync:
            self._timers.cancel(_sync_key(group))

    def _end_sync_phase(self, group: ClassicGroup) -> None:
        group.members.pending_sync.clear()
        self._timers.cancel(_sync_key(group))

    def _sync_phase_over(self, group: ClassicGroup, generation_id: int) -> Write:
        if not self._is_current(group) or group.generation_id != generation_id:
            return None
        if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return None
        late = sorted(group.members.pending_sync)
        if not late:
            return None
        for member_id in late:
            self.forget_member(group, member_id)
        return self.prepare(group, f"these members did not sync in time: {late}")

    # Sessions

    def expect_heartbeat(
        self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """The member's session ends in its session timeout (or ``timeout_ms``) unless it is heard of."""
        self._timers.schedule(
            ("classic-session", group.group_id, member.member_id),
            member.session_timeout_ms if timeout_ms is None else timeout_ms,
            partial(self._session_over, group, member.member_id),
        )

    def expect_join(self, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
        """A member that was given its id has that long to come back with it (KIP-394)."""
        group.members.pending_join.add(member_id)
        self._timers.schedule(
            ("classic-session", group.group_id, member_id),
            session_timeout_ms,
            partial(self._session_over, group, member_id),
        )

    def forget_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member, or one that was to come, with its timer; it is told if a request of it waits."""
        self._timers.cancel(("classic-session", group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            group.members.settle_join(member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            group.members.settle_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.members.remove(member_id)

    def forget_group(self, group: ClassicGroup, error: ErrorCode) -> None:
        """The group is no more: cancel its timers and tell who waits."""
        self._timers.cancel(_join_key(group))
        self._timers.cancel(_sync_key(group))
        for member_id in (*group.members, *group.members.pending_join):
            self._timers.cancel(("classic-session", group.group_id, member_id))
        group.members.settle_all(error)

    def _session_over(self, group: ClassicGroup, member_id: str) -> Write:
        if not self._is_current(group):
            return None
        member = group.members.get(member_id)
        if member_id in group.members.pending_join:
            logger.info("Group %s: %s never came back with its id", group.group_id, member_id)
            self.forget_member(group, member_id)
        elif member is None or member.has_satisfied_heartbeat:
            return None
        else:
            logger.info("Group %s: the session of %s is over", group.group_id, member_id)
            self.forget_member(group, member_id)
            if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
                return self.prepare(group, f"the session of {member_id} is over")
        if group.state is ClassicState.PREPARING_REBALANCE and group.members.all_joined:
            return self.complete_join(group)
        return None

    def _is_current(self, group: ClassicGroup) -> bool:
        return self._groups.get(group.group_id) is group


def _join_key(group: ClassicGroup) -> tuple[str, str]:
    return "classic-join", group.group_id


def _sync_key(group: ClassicGroup) -> tuple[str, str]:
    return "classic-sync", group.group_id


def _emptied(group: ClassicGroup, error: KafkaError | None) -> None:
    """A failure leaves the generation before in the log; loaded again, its members' sessions end soon."""
    if error is not None:
        logger.warning(
            "That group %s is empty could not be written: %s", group.group_id, told_error(error).code.name
        )
