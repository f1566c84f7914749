"""JoinGroup 0 to 9: become a member of a group, and wait until the rest of it has joined as well.

The answer comes when the join phase ends: the generation, the chosen protocol, and for the leader all members
with their metadata. INVALID_GROUP_ID and INVALID_SESSION_TIMEOUT (outside ``group.min.session.timeout.ms`` to
``group.max.session.timeout.ms``) are told before anything else. Version 0 has no rebalance timeout: its
session timeout counts for both. Since 4 a new dynamic member gets MEMBER_ID_REQUIRED and its id (KIP-394);
since 5 there are static members (KIP-345); since 9 a static leader that comes again is told to skip assigning
(KIP-814). A protocol name that is not there is null since version 7, and empty before.

Differences: a client without a client id gets a member id that begins with a dash, in Kafka with ``null-``.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.broker.coordination.caller import caller_of
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.errors import KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

API = ApiKey.JOIN_GROUP
VERSIONS = (0, 9)

_NULL_PROTOCOL_SINCE = 7


def handle(
    context: RequestContext,
    request: JoinGroupRequest,
    groups: GroupCoordinator,
    authorization: Authorization,
) -> Promise[JoinGroupResponse]:
    """Join, or be told why not."""
    reply = groups.join(caller_of(context, authorization), request)
    none = None if context.version >= _NULL_PROTOCOL_SINCE else ""

    def in_version(response: JoinGroupResponse) -> JoinGroupResponse:
        if not response.protocol_name:
            response.protocol_name = none
        return response

    return reply.recover(_refused).then(in_version)


def _refused(error: Exception) -> JoinGroupResponse:
    if isinstance(error, KafkaError):
        return JoinGroupResponse(error_code=error.code)
    raise error
