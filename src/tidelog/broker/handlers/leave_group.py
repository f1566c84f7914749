"""LeaveGroup 0 to 5: members leave, and their group rebalances.

Before version 3 there is one member and its error stands on top. Since then there are several, each with an
error of its own; an administrator names a static member by its ``group.instance.id`` alone (KIP-345). A group
that is not there makes every member unknown.
"""

from __future__ import annotations

from tidelog.broker.caller import caller_of
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.promise import Promise
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

API = ApiKey.LEAVE_GROUP
VERSIONS = (0, 5)

_BATCHES_SINCE = 3


def handle(
    context: RequestContext, request: LeaveGroupRequest, groups: GroupCoordinator
) -> Promise[LeaveGroupResponse]:
    """Let them go."""
    reply = groups.leave(caller_of(context), request)
    return reply if context.version >= _BATCHES_SINCE else reply.then(_of_one)


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error = response.error_code or next((each.error_code for each in response.members), 0)
    return LeaveGroupResponse(error_code=error)
