"""ListPartitionReassignments, version 0: the partitions that are being moved.

In a cluster the controller knows, and others answer NOT_CONTROLLER; a broker alone has nowhere to move
anything.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest, admin: Admin
) -> ListPartitionReassignmentsResponse:
    """Those that were asked for, or all."""
    under_way = await admin.list_reassignments()
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
