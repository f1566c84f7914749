"""ListPartitionReassignments, version 0: the partitions that are being moved.

In a cluster the controller knows, and others answer NOT_CONTROLLER; a broker alone has nowhere to move
anything.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tidelog.broker.context import RequestContext
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse | Awaitable[ListPartitionReassignmentsResponse]:
    """Those that were asked for, or all."""
    if context.broker.in_cluster:
        return _listed(context, request)
    return ListPartitionReassignmentsResponse(error_message=None)


async def _listed(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    under_way = await context.broker.membership.controller.list_reassignments()
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    topics: dict[str, OngoingTopicReassignment] = {}
    for name, assignment in under_way.items():
        if wanted is None or name in wanted:
            topic = topics.setdefault(name.topic, OngoingTopicReassignment(name=name.topic))
            topic.partitions.append(
                OngoingPartitionReassignment(
                    partition_index=name.partition,
                    replicas=list(assignment.replicas),
                    adding_replicas=list(assignment.adding),
                    removing_replicas=list(assignment.removing),
                )
            )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
