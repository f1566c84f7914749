"""ListConfigResources, versions 0 and 1: the names of everything that can have configs.

Version 0 asks for the subscriptions to clients' metrics. Version 1 names types; none means all. A type that
does not exist is UNSUPPORTED_VERSION, as in Kafka. Of groups those are listed that have options of their own.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.controller.config_changes import ResourceType
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

API = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS = (0, 1)


def handle(
    context: RequestContext, request: ListConfigResourcesRequest, image: MetadataImage
) -> ListConfigResourcesResponse:
    """List the resources of the types asked for."""
    if context.version == 0:
        return ListConfigResourcesResponse(
            config_resources=[ConfigResource(resource_name=name) for name in image.client_metrics]
        )
    known = set(ResourceType.__members__.values())
    if not known.issuperset(request.resource_types):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    brokers = [str(broker_id) for broker_id in image.brokers]
    names = {
        ResourceType.TOPIC: list(image.topics),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.CLIENT_METRICS: list(image.client_metrics),
        ResourceType.GROUP: list(image.group_configs),
    }
    wanted = request.resource_types or list(names)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(set(wanted))
            for name in names.get(ResourceType(kind), ())
        ]
    )
