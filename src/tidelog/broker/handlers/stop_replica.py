"""StopReplica, versions 3 and 4: the controller has replicas stopped, and perhaps deleted.

Refused from an older controller or for an earlier life of this broker. Only in clusters.

Difference: versions before 3, of controllers before Kafka 2.6, are refused with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tidelog.broker.cluster.controller_requests import ControllerRequests
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

API = ApiKey.STOP_REPLICA
VERSIONS = (3, 4)


def handle(
    context: RequestContext, request: StopReplicaRequest, controller_requests: ControllerRequests
) -> StopReplicaResponse | Awaitable[StopReplicaResponse]:
    """Stop as told."""
    if context.version < VERSIONS[0]:
        return StopReplicaResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    control = controller_requests
    return control.in_order({}, lambda: control.stop_replica_in_slices(request))
