"""UpdateMetadata, versions 5 to 8: the controller says what clients may know of the cluster.

Refused from an older controller or for an earlier life of this broker. Only in clusters.

Difference: versions before 5, of controllers before Kafka 2.2, are refused with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tidelog.broker.cluster.controller_requests import ControllerRequests
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.metadata.cluster_feed import LEADER_DURING_DELETE
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

API = ApiKey.UPDATE_METADATA
VERSIONS = (5, 8)


def handle(
    context: RequestContext, request: UpdateMetadataRequest, controller_requests: ControllerRequests
) -> UpdateMetadataResponse | Awaitable[UpdateMetadataResponse]:
    """Know what the controller knows."""
    if context.version < VERSIONS[0]:
        return UpdateMetadataResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    control = controller_requests
    topics = {
        each.topic_name: each.topic_id
        for each in request.topic_states
        if any(state.leader != LEADER_DURING_DELETE for state in each.partition_states)
    }
    return control.in_order(topics, lambda: control.update_metadata_in_slices(request))
