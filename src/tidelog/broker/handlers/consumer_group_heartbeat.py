"""ConsumerGroupHeartbeat 0 to 1: members join consumer groups, are assigned partitions, and leave (KIP-848).

Member epoch 0 joins, -1 leaves, -2 is a static member that will be back; any other is the member's last known
one. Version 1 adds regular-expression subscriptions and requires that clients make up their member ids
(KIP-1082); in version 0 an empty one is answered with a new one. UNSUPPORTED_VERSION where the protocol is
not served, then INVALID_REQUEST and UNSUPPORTED_ASSIGNOR, then what the group has to say. A shard that is
being loaded answers COORDINATOR_LOAD_IN_PROGRESS. Of the topics that a regular expression matches, those that
the client may not describe are left out.

Differences: see ``coordinator/group/consumer`` (regular expressions, the order of members in assignments).
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.caller import caller_of
from tidelog.coordinator.group.consumer.validation import check_heartbeat, check_served
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.scheduling.promise import Promise
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = (0, 1)


def handle(
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
    groups: GroupCoordinator,
    authorization: Authorization,
) -> Promise[ConsumerGroupHeartbeatResponse]:
    """One heartbeat."""
    check_served(groups.support)
    for topic in request.subscribed_topic_names or ():
        authorization.require(context.session, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    check_heartbeat(request, context.version, groups.config.list("group.consumer.assignors"))
    caller = caller_of(context, authorization)
    return groups.write(request.group_id, lambda shard: shard.consumer.consumer_heartbeat(caller, request))
