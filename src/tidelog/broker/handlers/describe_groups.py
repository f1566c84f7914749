"""DescribeGroups 0 to 6: classic groups with their members, metadata and assignments.

Metadata and protocol are there while the group is stable. A group that does not exist, or is a consumer
group, is ``Dead``; since version 6 it also has GROUP_ID_NOT_FOUND and a message (KIP-1043). Since 3 the
operations that the client may perform are added where it asks for them: all, without an authorizer.
Groups that it may not describe are GROUP_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.authorized_operations import group_operations
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

API = ApiKey.DESCRIBE_GROUPS
VERSIONS = (0, 6)


def handle(
    context: RequestContext,
    request: DescribeGroupsRequest,
    groups: GroupCoordinator,
    authorization: Authorization,
) -> Slices[Promise[DescribeGroupsResponse]]:
    """Describe each group that is named."""
    session = context.session
    allowed: list[str] = []
    denied: list[DescribedGroup] = []
    for group_id in request.groups:
        if authorization.allows(session, Operation.DESCRIBE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            denied.append(DescribedGroup(group_id=group_id, error_code=code))
        yield

    def operations(group_id: str) -> int:
        return group_operations(authorization, session, group_id)

    reply = yield from groups.describe_groups(
        allowed, context.version, operations if request.include_authorized_operations else None
    )
    return reply.then(lambda found: DescribeGroupsResponse(groups=[*found, *denied]))


def refuse(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    """The same error for every group."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=each, error_code=error.code) for each in request.groups]
    )
