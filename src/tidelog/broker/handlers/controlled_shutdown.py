"""ControlledShutdown, versions 0 to 3: a broker asks the controller to take over what it leads, before it
stops.

The answer lists what it leads still. Elsewhere than at the controller NOT_CONTROLLER. Only in clusters.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.controller.cluster.controller import ClusterController
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

API = ApiKey.CONTROLLED_SHUTDOWN
VERSIONS = (0, 3)


async def handle(
    context: RequestContext, request: ControlledShutdownRequest, cluster_controller: ClusterController
) -> ControlledShutdownResponse:
    """Hand over, and say what is left."""
    left = await cluster_controller.shut_down_broker(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=each.topic, partition_index=each.partition) for each in left
        ]
    )
