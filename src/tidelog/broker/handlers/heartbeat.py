"""Heartbeat 0 to 4: a member of a classic group lives, and learns whether it has to rejoin.

REBALANCE_IN_PROGRESS asks it to; UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION and FENCED_INSTANCE_ID say that it is
out. While the group is being loaded every heartbeat is good.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.caller import caller_of
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.scheduling.promise import Promise
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API = ApiKey.HEARTBEAT
VERSIONS = (0, 4)


def handle(
    context: RequestContext, request: HeartbeatRequest, groups: GroupCoordinator
) -> Promise[HeartbeatResponse]:
    """Take note of it."""
    return groups.heartbeat(caller_of(context), request)
