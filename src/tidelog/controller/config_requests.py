"""The common part of AlterConfigs and IncrementalAlterConfigs: each resource once, each with its outcome.

``alter`` takes what a request says about each resource as a function from the resource's entries to its new
ones, checks what Kafka's brokers check before they ask the controller, and has the controller change the
resource. Resources succeed and fail one by one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tidelog.config.options.broker_options import option_of
from tidelog.config.options.unsupported_options import is_unsupported
from tidelog.controller.config_changes import ConfigResource, ResourceType
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.dynamic_config import Edit

_BATCH_SIZE = 64
_OF_REPLICATION = {
    f"{side}.replication.throttled.{what}" for side in ("leader", "follower") for what in ("rate", "replicas")
}
"""What a broker alone, which replicates nothing, has no use for."""


class ConfigWriter(Protocol):
    """Who keeps configs: the controller of a broker alone, or any broker of a cluster."""

    async def change_topic_config(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a topic's overrides with what ``edit`` makes of them."""

    async def change_group_config(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a group's options with what ``edit`` makes of them."""

    async def change_client_metrics(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Replace a subscription to clients' metrics with what ``edit`` makes of it."""

    async def change_broker_config(
        self, edit: Edit, *, every_broker: bool, validate_only: bool = False
    ) -> None:
        """Replace the dynamic options of this or of every broker with what ``edit`` makes of them."""


async def alter_each(
    resources: Sequence[ConfigResource], alter: Callable[[int], Awaitable[None]]
) -> list[KafkaError | None]:
    """Run ``alter`` for the position of every resource that is named once; returns all outcomes in order.

    Others have their turn in between, even if nothing is altered.
    """
    counts: Counter[ConfigResource] = Counter()
    for start in range(0, len(resources), _BATCH_SIZE):
        counts.update(resources[start : start + _BATCH_SIZE])
        await asyncio.sleep(0)
    outcomes: list[KafkaError | None] = []
    for position, resource in enumerate(resources):
        if position and not position % _BATCH_SIZE:
            await asyncio.sleep(0)
        try:
            if counts[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await alter(position)
        except KafkaError as error:
            outcomes.append(error.without_history())
        else:
            outcomes.append(None)
    return outcomes


async def alter_resource(
    controller: ConfigWriter, broker_id: int, resource: ConfigResource, edit: Edit, *, validate_only: bool
) -> None:
    """Change the entries of a topic, a group, a subscription, of this broker, or of every broker."""
    if resource.type == ResourceType.TOPIC:
        await controller.change_topic_config(resource.name, edit, validate_only=validate_only)
    elif resource.type == ResourceType.BROKER:
        if resource.name:
            check_node_id(resource.name, broker_id, "Unexpected broker id, expected")
        await controller.change_broker_config(
            edit, every_broker=not resource.name, validate_only=validate_only
        )
    elif resource.type == ResourceType.GROUP:
        await controller.change_group_config(resource.name, edit, validate_only=validate_only)
    elif resource.type == ResourceType.CLIENT_METRICS:
        await controller.change_client_metrics(resource.name, edit, validate_only=validate_only)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")


def idle_remark(resource: ConfigResource, names: Sequence[str], *, is_alone: bool) -> str | None:
    """What an answer says of options that are kept and have no effect; None if all have one."""
    if resource.type not in (ResourceType.BROKER, ResourceType.TOPIC):
        return None
    idle = [name for name in names if is_unsupported(name) and option_of(name) is None]
    if is_alone:
        idle += [name for name in names if name in _OF_REPLICATION]
    return f"kept without effect on this broker: {', '.join(sorted(idle))}" if idle else None


def check_node_id(name: str, broker_id: int, unexpected: str) -> None:
    """Refuse the name of a broker that is not this one."""
    try:
        named = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
        ) from None
    if named != broker_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{unexpected} {broker_id}, but received {name}")
