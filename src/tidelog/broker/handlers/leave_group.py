"""LeaveGroup 0 to 5: members leave, and their group rebalances.

Before version 3 there is one member and its error stands on top. Since then there are several, each with an
error of its own; an administrator names a static member by its ``group.instance.id`` alone (KIP-345). A group
that is not there makes every member unknown. More than a few hundred leave in parts.
"""

from __future__ import annotations

from collections.abc import Awaitable

from msgspec.structs import replace

from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.caller import caller_of
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.yielding import yielding_every
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

API = ApiKey.LEAVE_GROUP
VERSIONS = (0, 5)

_BATCHES_SINCE = 3
MEMBERS_AT_ONCE = 256


def handle(
    context: RequestContext, request: LeaveGroupRequest, groups: GroupCoordinator
) -> Promise[LeaveGroupResponse] | Awaitable[LeaveGroupResponse]:
    """Let them go."""
    if context.version < _BATCHES_SINCE:
        return groups.leave(caller_of(context), request).then(_of_one)
    if len(request.members) > MEMBERS_AT_ONCE:
        return _leave_in_parts(context, request, groups)
    return groups.leave(caller_of(context), request)


async def _leave_in_parts(
    context: RequestContext, request: LeaveGroupRequest, groups: GroupCoordinator
) -> LeaveGroupResponse:
    """Some members after the other, each part as if it had come alone."""
    whole = LeaveGroupResponse()
    starts = range(0, len(request.members), MEMBERS_AT_ONCE)
    async for start in yielding_every(1, starts):
        members = request.members[start : start + MEMBERS_AT_ONCE]
        part = await groups.leave(caller_of(context), replace(request, members=members))
        if part.error_code:
            return part
        whole.members += part.members
    return whole


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error = response.error_code or next((each.error_code for each in response.members), 0)
    return LeaveGroupResponse(error_code=error)
