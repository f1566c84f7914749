"""Access to configs: those of topics and groups are theirs, everything else is the cluster's.

``require_config_access`` is called by the handler of DescribeConfigs; ``change_each`` by those of
AlterConfigs and IncrementalAlterConfigs, which differ in how they change one resource alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tidelog.broker.access.authorization import Authorization
from tidelog.broker.responses import refused_element
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.config_changes import ConfigResource
from tidelog.controller.config_changes import ResourceType as ConfigType
from tidelog.controller.config_requests import alter_each, idle_remark
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.security.session import Session
from tidelog.wire.schema import Message

E = TypeVar("E", bound=Message)

_BATCH_SIZE = 64


def require_config_access(
    authorization: Authorization, session: Session, operation: Operation, config_type: int, name: str
) -> None:
    """Raise the refusal unless a client may read or change the configs of a resource."""
    if config_type == ConfigType.TOPIC:
        authorization.require(session, operation, ResourceType.TOPIC, name)
    elif config_type == ConfigType.GROUP:
        authorization.require(session, operation, ResourceType.GROUP, name)
    elif config_type in ConfigType.__members__.values():
        authorization.require(session, operation, ResourceType.CLUSTER)


async def change_each(
    change: Callable[[ConfigResource, Any], Awaitable[None]],
    resources: Sequence[Any],
    result: type[E],
    config: BrokerConfig,
    authorization: Authorization,
    session: Session,
) -> list[E]:
    """The outcome of each resource of a request, which ``change`` changes if the client may do it."""
    named: list[ConfigResource] = []
    async for each in yielding_every(_BATCH_SIZE, resources):
        named.append(ConfigResource(each.resource_type, each.resource_name))

    async def change_one(position: int) -> None:
        kind, name = named[position]
        require_config_access(authorization, session, Operation.ALTER_CONFIGS, kind, name)
        await change(named[position], resources[position])

    results: list[E] = []
    is_alone = config.optional_str("zookeeper.connect") is None
    outcomes = await alter_each(named, change_one)
    async for resource, each, error in yielding_every(
        _BATCH_SIZE, zip(named, resources, outcomes, strict=True)
    ):
        if error is not None:
            results.append(refused_element(result, each, error))
            continue
        given = [entry.name for entry in each.configs if entry.value is not None]
        remark = idle_remark(resource, given, is_alone=is_alone)
        results.append(result(error_message=remark, resource_type=resource.type, resource_name=resource.name))
    return results
