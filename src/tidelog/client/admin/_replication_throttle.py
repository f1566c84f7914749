"""A limit on what moving partitions copy, and its removal.

Set as kafka-reassign-partitions does it, so that either tool removes what the other has set: the replicas
that partitions are copied from and to become throttled (options of their topics), and every broker that takes
part gets the rate. Removal looks through the whole cluster and takes everything of the kind away, but not
while moves are under way. Used by ``tidelog partitions reassign`` and the console.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.admin._reassignment_plan import Assignment
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from tidelog.errors import KafkaError

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_OWN = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)


class RemovedThrottle(NamedTuple):
    """What became of throttles; with ``moving`` partitions on their way they stay."""

    found: bool = False
    moving: int = 0
    errors: tuple[KafkaError, ...] = ()


def throttled_replicas(before: Assignment, planned: Assignment) -> dict[str, tuple[list[str], list[str]]]:
    """By topic: the replicas that copies come from and go to, as ``PARTITION:BROKER``."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for partition in sorted(before):
        added = [each for each in planned[partition] if each not in before[partition]]
        if added:
            leaders, followers = found.setdefault(partition.topic, ([], []))
            leaders += [f"{partition.partition}:{each}" for each in before[partition]]
            followers += [f"{partition.partition}:{each}" for each in added]
    return found


async def set_throttle(
    admin: AsyncAdmin, before: Assignment, planned: Assignment, bytes_per_second: int
) -> bool:
    """Throttle the moves from ``before`` to ``planned``; whether any is. Raises what is refused."""
    moving = {each: before[each] for each in planned}
    replicas = throttled_replicas(moving, planned)
    brokers = {each for assignment in (moving, planned) for found in assignment.values() for each in found}
    changes = {
        ConfigResource(ResourceType.TOPIC, topic): [
            AlterConfigOp(LEADERS, ",".join(leaders), AlterConfigOpType.APPEND),
            AlterConfigOp(FOLLOWERS, ",".join(followers), AlterConfigOpType.APPEND),
        ]
        for topic, (leaders, followers) in replicas.items()
    }
    if not changes:
        return False
    for broker in sorted(brokers):
        changes[ConfigResource(ResourceType.BROKER, str(broker))] = [
            AlterConfigOp(name, str(bytes_per_second)) for name in RATES
        ]
    for result in await admin.alter_configs(changes):
        if result.error is not None:
            raise result.error
    return True


async def remove_throttle(admin: AsyncAdmin) -> RemovedThrottle:
    """Take all throttles away, unless something is moving still."""
    changes = await throttled(admin)
    if not changes:
        return RemovedThrottle()
    under_way = await admin.list_partition_reassignments()
    if under_way:
        return RemovedThrottle(True, len(under_way))
    errors = (each.error for each in await admin.alter_configs(changes))
    return RemovedThrottle(True, 0, tuple(each for each in errors if each is not None))


async def throttled(admin: AsyncAdmin) -> Mapping[ConfigResource, list[AlterConfigOp]]:
    """Every broker and topic that has an option of a throttle, and how to remove it."""
    topics = [each.name for each in await admin.list_topics(include_internal=True)]
    brokers = [str(node.id) for node in (await admin.describe_cluster()).nodes]
    return {
        **await _set_options(admin, ResourceType.TOPIC, topics, (LEADERS, FOLLOWERS)),
        **await _set_options(admin, ResourceType.BROKER, brokers, RATES),
    }


async def _set_options(
    admin: AsyncAdmin, kind: ResourceType, names: Iterable[str], options: tuple[str, ...]
) -> dict[ConfigResource, list[AlterConfigOp]]:
    resources = [ConfigResource(kind, name) for name in names]
    if not resources:
        return {}
    found: dict[ConfigResource, list[AlterConfigOp]] = {}
    for result in await admin.describe_configs(resources, names=options):
        if kind is ResourceType.BROKER:
            # What it has set may be the very throttle that is to go.
            result.raise_for_error()
        removals = [
            AlterConfigOp(entry.name, None, AlterConfigOpType.DELETE)
            for entry in result.entries
            if entry.source in _OWN
        ]
        if removals:
            found[result.resource] = removals
    return found
