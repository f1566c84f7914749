"""IncrementalAlterConfigs, versions 0 and 1: sets, deletes, appends to and subtracts from single entries.

Behaviour as in Kafka: resources succeed and fail one by one, and all edits of a resource or none; lists
alone can be appended to; a value may be missing only to delete. Changes are durable and in effect when the
answer leaves. Levels of loggers are set and deleted this way too; they last until the broker stops.

Deviation: an unknown operation is INVALID_REQUEST for topics too, where Kafka answers UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tidelog.broker import log_levels
from tidelog.broker.access.authorization import Authorization
from tidelog.broker.access.config_access import change_each
from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.client_metrics import CLIENT_METRICS_OPTIONS
from tidelog.config.options.broker_options import BROKER_OPTIONS
from tidelog.config.options.group_options import GROUP_OPTIONS
from tidelog.config.options.topic_options import TOPIC_OPTIONS
from tidelog.controller.config_changes import (
    ConfigOp,
    ConfigResource,
    OpType,
    ResourceType,
    check_ops,
    edit_broker_configs,
    edit_topic_configs,
)
from tidelog.controller.config_requests import alter_resource, check_node_id
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = (0, 1)

logger = logging.getLogger(__name__)


async def handle(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    admin: Admin,
    config: BrokerConfig,
    authorization: Authorization,
) -> IncrementalAlterConfigsResponse:
    """Edit resource by resource."""

    async def change(resource: ConfigResource, requested: AlterConfigsResource) -> None:
        ops = [ConfigOp(each.name, each.config_operation, each.value) for each in requested.configs]
        check_ops(ops)
        broker_id = config.node_id
        if resource.type == ResourceType.BROKER_LOGGER:
            check_node_id(resource.name, broker_id, "Unexpected node id. Expected")
            _alter_loggers(ops, validate_only=request.validate_only)
            return

        def edit(now: Mapping[str, str]) -> Mapping[str, str]:
            if resource.type == ResourceType.TOPIC:
                return edit_topic_configs(now, ops, TOPIC_OPTIONS)
            if resource.type == ResourceType.GROUP:
                return edit_topic_configs(now, ops, GROUP_OPTIONS)
            if resource.type == ResourceType.CLIENT_METRICS:
                return edit_topic_configs(now, ops, CLIENT_METRICS_OPTIONS)
            return edit_broker_configs(now, ops, BROKER_OPTIONS)

        await alter_resource(admin, broker_id, resource, edit, validate_only=request.validate_only)

    result = AlterConfigsResourceResponse
    responses = await change_each(change, request.resources, result, config, authorization, context.session)
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter_loggers(ops: Sequence[ConfigOp], *, validate_only: bool) -> None:
    """Check all edits, then carry them out."""
    for op in ops:
        if op.op == OpType.SET:
            log_levels.check_level(op.name, op.value or "")
        elif op.op == OpType.DELETE:
            log_levels.check_unset(op.name)
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{OpType(op.op).name} operation is not allowed for the BROKER_LOGGER resource",
            )
    for op in ops if not validate_only else ():
        if op.op == OpType.SET:
            log_levels.set_level(op.name, op.value or "")
            logger.warning("Updated the log level of %s to %s", op.name, op.value)
        else:
            log_levels.unset_level(op.name)
            logger.warning("Unset the log level of %s", op.name)
