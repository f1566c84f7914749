"""ConsumerGroupDescribe 0 to 1: consumer groups with their members, what they own and what they are to own.

A group that does not exist or is a classic one is GROUP_ID_NOT_FOUND, an empty id INVALID_GROUP_ID, each for
itself. Version 1 tells which protocol a member uses (KIP-1099). What a member is giving up counts as owned.
The operations that the client may perform are added where it asks for them: all, without an authorizer.
UNSUPPORTED_VERSION for all groups where the protocol is not served.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.authorized_operations import GROUP_OPERATIONS
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.consumer.validation import check_served
from tidelog.coordinator.reply import Reply, gather
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

API = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = (0, 1)


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Reply[ConsumerGroupDescribeResponse]:
    """Describe each group that is named."""
    check_served(context.broker.coordinators.groups.support)

    def respond(groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    return gather([_describe(context, group_id) for group_id in request.group_ids]).then(respond)


def refuse(request: ConsumerGroupDescribeRequest, error: KafkaError) -> ConsumerGroupDescribeResponse:
    """The same error for every group."""
    return ConsumerGroupDescribeResponse(groups=[_refused(each, error) for each in request.group_ids])


def _describe(context: RequestContext, group_id: str) -> Reply[DescribedGroup]:
    if not group_id:
        return Reply.of(DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID))
    groups = context.broker.coordinators.groups
    reply = groups.read(group_id, lambda shard: shard.consumer.describe(group_id))
    return reply.recover(partial(_refused, group_id))


def _refused(group_id: str, error: Exception) -> DescribedGroup:
    if not isinstance(error, KafkaError):
        raise error
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message or None)
