"""DescribeCluster, versions 0 to 2: the cluster's id, controller and brokers.

Endpoints are those of the listener that the request came in by. A broker is no controller endpoint: since
version 1 a client that wants one gets MISMATCHED_ENDPOINT_TYPE. No broker is ever fenced here.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.authorized_operations import NOT_ASKED, cluster_operations
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

API = ApiKey.DESCRIBE_CLUSTER
VERSIONS = (0, 2)

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    context: RequestContext,
    request: DescribeClusterRequest,
    image: MetadataImage,
    authorization: Authorization,
) -> DescribeClusterResponse:
    """Describe what the image knows."""
    _check_endpoint_type(request.endpoint_type, context.version)
    brokers = [
        DescribeClusterBroker(
            broker_id=each.broker_id, host=endpoint.host, port=endpoint.port, rack=each.rack
        )
        for each in image.brokers.values()
        for endpoint in each.endpoints
        if endpoint.name == context.listener
    ]
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=image.cluster_id or "",
        controller_id=image.controller_id if image.controller_id in image.brokers else -1,
        brokers=brokers,
        cluster_authorized_operations=(
            cluster_operations(authorization, context.session) if asked else NOT_ASKED
        ),
    )


def _check_endpoint_type(endpoint_type: int, version: int) -> None:
    if endpoint_type == _BROKERS:
        return
    if endpoint_type == _CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    raise KafkaError(ErrorCode.INVALID_REQUEST if version == 0 else code, message)
