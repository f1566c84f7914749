"""DescribeGroups 0 to 6: classic groups with their members, metadata and assignments.

Metadata and protocol are there while the group is stable. A group that does not exist, or is a consumer
group, is ``Dead``; since version 6 it also has GROUP_ID_NOT_FOUND and a message (KIP-1043). Since 3 the
operations that the client may perform are added where it asks for them: all, without an authorizer.
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import GROUP_OPERATIONS
from tidelog.broker.context import RequestContext
from tidelog.coordinator.reply import Reply
from tidelog.coordinator.slices import Slices
from tidelog.errors import KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

API = ApiKey.DESCRIBE_GROUPS
VERSIONS = (0, 6)


def handle(context: RequestContext, request: DescribeGroupsRequest) -> Slices[Reply[DescribeGroupsResponse]]:
    """Describe each group that is named."""
    groups = context.broker.coordinators.groups

    operations = GROUP_OPERATIONS if request.include_authorized_operations else None
    reply = yield from groups.describe_groups(request.groups, context.version, operations)
    return reply.then(lambda found: DescribeGroupsResponse(groups=found))


def refuse(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    """The same error for every group."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=each, error_code=error.code) for each in request.groups]
    )
