"""AlterConfigs, versions 0 to 2: replaces all entries of topics, groups and brokers.

An entry that the request does not name is gone afterwards; IncrementalAlterConfigs is what clients should
use. Changes are durable and in effect when the answer leaves. Loggers cannot be changed this way.

Deviation: client metrics have no configs in this release and are INVALID_REQUEST.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.controller.config_changes import ConfigResource, check_entries
from tidelog.controller.config_requests import alter_each, alter_resource
from tidelog.errors import KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace resource by resource."""

    async def alter(position: int) -> None:
        entries = [(config.name, config.value) for config in request.resources[position].configs]
        check_entries(entries)
        await alter_resource(
            context.broker.controller,
            context.broker.config.node_id,
            resources[position],
            lambda now: {name: value for name, value in entries if value is not None},
            validate_only=request.validate_only,
        )

    resources = [ConfigResource(each.resource_type, each.resource_name) for each in request.resources]
    outcomes = await alter_each(resources, alter)
    return AlterConfigsResponse(
        responses=[_response(each, error) for each, error in zip(request.resources, outcomes, strict=True)]
    )


def refuse(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    """The same error for every resource."""
    return AlterConfigsResponse(responses=[_response(each, error) for each in request.resources])


def _response(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
