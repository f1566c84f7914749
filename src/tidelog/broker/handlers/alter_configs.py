"""AlterConfigs, versions 0 to 2: replaces all entries of topics, groups, brokers and
subscriptions to clients' metrics.

An entry that the request does not name is gone afterwards; IncrementalAlterConfigs is what clients should
use. Changes are durable and in effect when the answer leaves. Loggers cannot be changed this way.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.config_access import require_config_access
from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.config_changes import ConfigResource, check_entries
from tidelog.controller.config_requests import alter_each, alter_resource, idle_remark
from tidelog.errors import KafkaError
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)

_BATCH_SIZE = 64


async def handle(
    context: RequestContext,
    request: AlterConfigsRequest,
    admin: Admin,
    config: BrokerConfig,
    authorization: Authorization,
) -> AlterConfigsResponse:
    """Replace resource by resource."""

    async def alter(position: int) -> None:
        kind, name = resources[position]
        require_config_access(authorization, context.session, Operation.ALTER_CONFIGS, kind, name)
        entries = [(config.name, config.value) for config in request.resources[position].configs]
        check_entries(entries)
        await alter_resource(
            admin,
            config.node_id,
            resources[position],
            lambda now: {name: value for name, value in entries if value is not None},
            validate_only=request.validate_only,
        )

    resources: list[ConfigResource] = []
    async for each in yielding_every(_BATCH_SIZE, request.resources):
        resources.append(ConfigResource(each.resource_type, each.resource_name))
    outcomes = await alter_each(resources, alter)
    response = AlterConfigsResponse()
    async for each, error in yielding_every(_BATCH_SIZE, zip(request.resources, outcomes, strict=True)):
        response.responses.append(_response(each, error, None if error else _remark(each, config)))
    return response


def _remark(resource: AlterConfigsResource, config: BrokerConfig) -> str | None:
    names = [each.name for each in resource.configs if each.value is not None]
    is_alone = config.optional_str("zookeeper.connect") is None
    named = ConfigResource(resource.resource_type, resource.resource_name)
    return idle_remark(named, names, is_alone=is_alone)


def _response(
    resource: AlterConfigsResource, error: KafkaError | None, remark: str | None = None
) -> AlterConfigsResourceResponse:
    """The outcome of a resource; ``remark`` is said of what has gone well."""
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else error.code,
        error_message=remark if error is None else error.message or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
