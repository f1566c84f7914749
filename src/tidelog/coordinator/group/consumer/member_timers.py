"""The timers of members: who is silent, or does not do what it has to in time, is fenced.

Four of them: the *session* of every member; the *rebalance* timer of one that has to give partitions up; and
for members of the classic protocol the time to *join* when a rebalance has begun, and then to *sync*. Timers
are not in records: whoever loads a group gives its members their whole time again. If the log refuses what
fences a member, it is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidelog.coordinator.group.consumer.group import ConsumerGroup
from tidelog.coordinator.group.consumer.member import ConsumerMember, MemberState
from tidelog.coordinator.group.groups import Groups, GroupSupport
from tidelog.coordinator.runtime import Result, ShardContext

logger = logging.getLogger(__name__)

Fence = Callable[[ConsumerGroup, ConsumerMember], Result[None]]

_SESSION, _REBALANCE, _JOIN, _SYNC = (
    "consumer-session",
    "consumer-rebalance",
    "consumer-join",
    "consumer-sync",
)


class MemberTimers:
    """The timers of all members of one shard; ``fence`` is set once there is somebody who fences."""

    fence: Fence

    def __init__(self, context: ShardContext, support: GroupSupport, groups: Groups) -> None:
        self._timers = context.timers
        self._configs = support.group_configs
        self._groups = groups

    def loaded(self, group: ConsumerGroup) -> None:
        """Give the members of a group that was just loaded their time."""
        for member in group.members.values():
            self.expect_heartbeat(group.group_id, member)
            self.watch_revocation(group.group_id, member)

    def expect_heartbeat(self, group_id: str, member: ConsumerMember) -> None:
        """The member is alive; it has a session timeout to call again."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._configs.int(group_id, "consumer.session.timeout.ms")
        self._schedule(_SESSION, group_id, member.member_id, timeout_ms, "its session expired")

    def watch_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """The member has a rebalance timeout to leave its epoch, if it has partitions to give up."""
        key = _REBALANCE, group_id, member.member_id
        if member.uses_classic_protocol:
            return
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(key)
            return
        why = f"it did not leave epoch {member.epoch} within {member.rebalance_timeout_ms} ms"
        self._timers.schedule(
            key,
            member.rebalance_timeout_ms,
            lambda: self._expired(group_id, member.member_id, why, only_at=member.epoch),
            retry=True,
        )

    def expect_join(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has been told to rejoin; the time runs from the first time that it was."""
        if (_JOIN, group_id, member.member_id) not in self._timers:
            timeout_ms = member.rebalance_timeout_ms
            self._schedule(_JOIN, group_id, member.member_id, timeout_ms, "it did not rejoin in time")

    def joined(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has rejoined, and has to sync next."""
        self._timers.cancel((_JOIN, group_id, member.member_id))
        self.expect_heartbeat(group_id, member)
        timeout_ms = member.rebalance_timeout_ms
        self._schedule(_SYNC, group_id, member.member_id, timeout_ms, "it did not sync in time")

    def synced(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has got its assignment."""
        self._timers.cancel((_SYNC, group_id, member.member_id))
        self.expect_heartbeat(group_id, member)

    def cancel(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        for kind in (_SESSION, _REBALANCE, _JOIN, _SYNC):
            self._timers.cancel((kind, group_id, member_id))

    def cancel_for_absent(self, group_id: str, member_ids: Iterable[str]) -> None:
        """Those of the members are gone who are not in the group any more."""
        group = self._groups.get(group_id)
        present = group.members if isinstance(group, ConsumerGroup) else {}
        for member_id in member_ids:
            if member_id not in present:
                self.cancel(group_id, member_id)

    def _schedule(self, kind: str, group_id: str, member_id: str, timeout_ms: int, why: str) -> None:
        self._timers.schedule(
            (kind, group_id, member_id),
            timeout_ms,
            lambda: self._expired(group_id, member_id, why),
            retry=True,
        )

    def _expired(
        self, group_id: str, member_id: str, why: str, *, only_at: int | None = None
    ) -> Result[None] | None:
        group = self._groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None:
            return None
        if only_at is not None and member.epoch != only_at:
            return None
        logger.info("Group %s: member %s is fenced, %s", group_id, member_id, why)
        return self.fence(group, member)
