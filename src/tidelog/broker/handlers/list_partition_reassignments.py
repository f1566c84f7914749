"""ListPartitionReassignments, version 0: none is ever under way on a cluster of one broker.

Replicas have nowhere else to go, so the list is always empty, as Kafka's is there.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Nothing is being moved."""
    return ListPartitionReassignmentsResponse(error_message=None)
