"""Removing members from a group by force: static ones by their instance ids (KIP-345), or all.

They are told with their next heartbeat; those that live join again. Called by ``AsyncAdmin``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.coordinators import CoordinatorType, ask_coordinators, will_pass
from tidelog.client.admin._groups import describe_groups
from tidelog.client.admin.group_resources import MemberResult
from tidelog.client.errors import error_from
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_MANY_MEMBERS_SINCE = 3
_MAX_REASON_CHARACTERS = 255
_BY_ADMIN = "removed by an administrator"


@dataclass(frozen=True, slots=True)
class _Removal:
    """The coordinator's answer."""

    members: tuple[MemberResult, ...] = ()
    refusal: KafkaError | None = None

    @property
    def error(self) -> KafkaError | None:
        """What concerns the group: its refusal, or the first member's error that will pass."""
        passing = (each.error for each in self.members if each.error and will_pass(each.error.code))
        return self.refusal or next(passing, None)


async def remove_group_members(
    cluster: Cluster, group_id: str, instance_ids: Collection[str] | None, reason: str | None
) -> list[MemberResult]:
    """See :meth:`AsyncAdmin.remove_group_members`."""
    deadline = cluster.deadline()
    told = (f"{_BY_ADMIN}: {reason}" if reason else _BY_ADMIN)[:_MAX_REASON_CHARACTERS]
    if instance_ids is None:
        leaving = await _all_members(cluster, group_id, told)
    else:
        leaving = [MemberIdentity(group_instance_id=each, reason=told) for each in instance_ids]
    if not leaving:
        return []

    def build(version: int) -> LeaveGroupRequest:
        if version < _MANY_MEMBERS_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "this broker is older than Kafka 2.4 and removes no members from outside",
            )
        return LeaveGroupRequest(group_id=group_id, members=leaving)

    async def ask(node: Node, wanted: list[str]) -> dict[str, _Removal]:
        response = await cluster.request_node_once(node, build, LeaveGroupResponse, deadline)
        return {group_id: _removal(group_id, response)}

    def refuse(group_id: str, error: KafkaError) -> _Removal:
        return _Removal(refusal=error)

    found = await ask_coordinators(cluster, CoordinatorType.GROUP, [group_id], ask, refuse, deadline)
    removal = found[group_id]
    if removal.refusal is not None:
        raise removal.refusal
    return list(removal.members)


async def _all_members(cluster: Cluster, group_id: str, reason: str) -> list[MemberIdentity]:
    described = (await describe_groups(cluster, [group_id]))[group_id]
    described.raise_for_error()
    return [
        # A static member goes by its instance id alone, so that one that has just rejoined goes too.
        MemberIdentity(
            member_id="" if each.instance_id else each.member_id,
            group_instance_id=each.instance_id,
            reason=reason,
        )
        for each in described.members
    ]


def _removal(group_id: str, response: LeaveGroupResponse) -> _Removal:
    members = tuple(
        MemberResult(
            each.member_id,
            each.group_instance_id,
            error_from(
                each.error_code,
                None,
                f"member {each.group_instance_id or each.member_id!r} of group {group_id!r}",
            ),
        )
        for each in response.members
    )
    return _Removal(members, error_from(response.error_code, None, f"group {group_id!r}"))
