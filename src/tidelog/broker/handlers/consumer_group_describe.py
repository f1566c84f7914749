"""ConsumerGroupDescribe 0 to 1: consumer groups with their members, what they own and what they are to own.

A group that does not exist or is a classic one is GROUP_ID_NOT_FOUND, an empty id INVALID_GROUP_ID, each for
itself. Version 1 tells which protocol a member uses (KIP-1099). What a member is giving up counts as owned.
The operations that the client may perform are added where it asks for them: all, without an authorizer.
UNSUPPORTED_VERSION for all groups where the protocol is not served.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.authorized_operations import group_operations
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.consumer.validation import check_served
from tidelog.coordinator.group.service import GroupCoordinator
from tidelog.coordinator.group.shard import GroupShard
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

API = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = (0, 1)

_HIDDEN_TOPIC = "The group has been assigned topics that the client may not describe."


def handle(
    context: RequestContext,
    request: ConsumerGroupDescribeRequest,
    groups: GroupCoordinator,
    authorization: Authorization,
) -> Slices[Promise[ConsumerGroupDescribeResponse]]:
    """Describe each group that is named."""
    check_served(groups.support)
    session = context.session
    allowed: list[str] = []
    denied: list[DescribedGroup] = []
    for name in request.group_ids:
        try:
            authorization.require(session, Operation.DESCRIBE, ResourceType.GROUP, name)
        except KafkaError as error:
            denied.append(DescribedGroup(group_id=name, error_code=error.code, error_message=error.message))
        else:
            allowed.append(name)
        yield

    def describe(shard: GroupShard, group_id: str) -> DescribedGroup:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = shard.consumer.describe(group_id)
        if not all(authorization.allows_topic(session, Operation.DESCRIBE, each) for each in _topics(group)):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN_TOPIC)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = group_operations(authorization, session, group_id)
        return group

    reply = yield from groups.read_each(allowed, describe, _refused)
    return reply.then(lambda found: ConsumerGroupDescribeResponse(groups=[*found, *denied]))


def _topics(group: DescribedGroup) -> set[str]:
    """The topics that a description tells of."""
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def refuse(request: ConsumerGroupDescribeRequest, error: KafkaError) -> ConsumerGroupDescribeResponse:
    """The same error for every group."""
    return ConsumerGroupDescribeResponse(groups=[_refused(each, error) for each in request.group_ids])


def _refused(group_id: str, error: KafkaError) -> DescribedGroup:
    if not group_id:
        # What is the matter with it, whoever coordinates it.
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message or None)
