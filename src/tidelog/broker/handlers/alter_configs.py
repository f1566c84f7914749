"""AlterConfigs, versions 0 to 2: replaces all entries of topics, groups, brokers and
subscriptions to clients' metrics.

An entry that the request does not name is gone afterwards; IncrementalAlterConfigs is what clients should
use. Changes are durable and in effect when the answer leaves. Loggers cannot be changed this way.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.config_access import change_each
from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.config_changes import ConfigResource, check_entries
from tidelog.controller.config_requests import alter_resource
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)


async def handle(
    context: RequestContext,
    request: AlterConfigsRequest,
    admin: Admin,
    config: BrokerConfig,
    authorization: Authorization,
) -> AlterConfigsResponse:
    """Replace resource by resource."""

    async def replace(resource: ConfigResource, requested: AlterConfigsResource) -> None:
        entries = [(each.name, each.value) for each in requested.configs]
        check_entries(entries)
        await alter_resource(
            admin,
            config.node_id,
            resource,
            lambda now: {name: value for name, value in entries if value is not None},
            validate_only=request.validate_only,
        )

    result = AlterConfigsResourceResponse
    responses = await change_each(replace, request.resources, result, config, authorization, context.session)
    return AlterConfigsResponse(responses=responses)
