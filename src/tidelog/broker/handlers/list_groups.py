"""ListGroups 0 to 5: the groups that this broker coordinates, of all types.

Since version 4 filtered by state and with their state, since 5 by type and with their type; names are taken
in any case, and a state or type that does not exist matches nothing. While a shard is being loaded the answer
is COORDINATOR_LOAD_IN_PROGRESS, so that nobody takes a part for the whole.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

API = ApiKey.LIST_GROUPS
VERSIONS = (0, 5)


def handle(
    context: RequestContext,
    request: ListGroupsRequest,
    groups: GroupCoordinator,
    authorization: Authorization,
) -> Slices[Promise[ListGroupsResponse]]:
    """List them."""
    session = context.session
    all_visible = authorization.allows(session, Operation.DESCRIBE, ResourceType.CLUSTER, instead=True)

    def is_visible(group_id: str) -> bool:
        return all_visible or authorization.allows(
            session, Operation.DESCRIBE, ResourceType.GROUP, group_id, quiet=True
        )

    reply = yield from groups.list_groups(request.states_filter, request.types_filter, is_visible)
    return reply.then(lambda found: ListGroupsResponse(groups=found))
