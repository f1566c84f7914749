"""SyncGroup 0 to 5: a member's assignment, and from the leader everybody's.

Waits, while the group completes its rebalance, until the leader's assignment is in the log. Since version 5
the protocol's type and name are mandatory and must be the group's: INCONSISTENT_GROUP_PROTOCOL (KIP-559).
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.caller import caller_of
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.scheduling.promise import Promise
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

API = ApiKey.SYNC_GROUP
VERSIONS = (0, 5)


def handle(
    context: RequestContext, request: SyncGroupRequest, groups: GroupCoordinator
) -> Promise[SyncGroupResponse]:
    """Hand in and out assignments."""
    return groups.sync(caller_of(context), request)
