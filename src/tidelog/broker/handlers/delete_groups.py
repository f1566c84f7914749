"""DeleteGroups 0 to 2: forget groups without members, of any type, and their offsets.

Each group has its own answer: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or none. A group that is named twice is
answered once.

Difference: Kafka deletes the groups of one shard with one batch, and refuses what does not fit. Here groups
are deleted in several batches, and one that has very many offsets loses them first, some with each; should a
member join meanwhile, the group stays, and the answer is NON_EMPTY_GROUP.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.errors import ErrorCode
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

API = ApiKey.DELETE_GROUPS
VERSIONS = (0, 2)


def handle(
    context: RequestContext,
    request: DeleteGroupsRequest,
    groups: GroupCoordinator,
    authorization: Authorization,
) -> Slices[Promise[DeleteGroupsResponse]]:
    """Delete each group that is named."""
    refused: list[DeletableGroupResult] = []
    names: list[str] = []
    for name in dict.fromkeys(request.groups_names):
        if authorization.allows(context.session, Operation.DELETE, ResourceType.GROUP, name):
            names.append(name)
        else:
            refused.append(
                DeletableGroupResult(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            )
        yield
    reply = yield from groups.delete_groups(names)
    return reply.then(lambda found: DeleteGroupsResponse(results=[*found, *refused]))
