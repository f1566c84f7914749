"""``tidelog partitions reassign --throttle``: a limit on what moving partitions copy, and its removal.

Set as kafka-reassign-partitions does it, so that either tool removes what the other has set: the replicas
that partitions are copied from and to become throttled (options of their topics), and every broker that takes
part gets the rate. Removal looks through the whole cluster and takes everything of the kind away, but not
while moves are under way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidelog.cli.failure import WrongUsage
from tidelog.cli.output import counted, remark
from tidelog.cli.partitions.plan import Assignment
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
_RATE = re.compile(r"(\d+)\s*((?:[kmg]i?)?)b?")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_OWN = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)


def parse_rate(text: str) -> int:
    """Bytes a second: a number, perhaps with k, M, G (thousands) or Ki, Mi, Gi (1024s) and B behind it."""
    found = _RATE.fullmatch(text.strip().lower())
    if found is None or not int(found[1]):
        raise WrongUsage(f"--throttle {text!r} is no rate: write bytes a second, such as 50MB or 1000000")
    return int(found[1]) * _UNITS[found[2]]


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
) -> None:
    """Throttle the moves from ``before`` to ``planned``; raises what is refused."""
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
        return
    for broker in sorted(brokers):
        changes[ConfigResource(ResourceType.BROKER, str(broker))] = [
            AlterConfigOp(name, str(bytes_per_second)) for name in RATES
        ]
    for result in await admin.alter_configs(changes):
        if result.error is not None:
            raise result.error
    remark(f"each broker copies at most {bytes_per_second} bytes a second until the moves are done")


async def remove_throttle(admin: AsyncAdmin) -> list[KafkaError]:
    """Take all throttles away, unless something is moving still; returns what could not be done."""
    changes = await _throttled(admin)
    if not changes:
        return []
    under_way = await admin.list_partition_reassignments()
    if under_way:
        remark(
            f"the throttle stays: {counted(len(under_way), 'partition')} still on the way "
            "(`tidelog partitions reassign --verify` removes it when they have arrived)"
        )
        return []
    errors = [each.error for each in await admin.alter_configs(changes) if each.error is not None]
    if not errors:
        remark("removed the throttle")
    return errors


async def _throttled(admin: AsyncAdmin) -> dict[ConfigResource, list[AlterConfigOp]]:
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
        removals = [
            AlterConfigOp(entry.name, None, AlterConfigOpType.DELETE)
            for entry in result.entries
            if entry.source in _OWN
        ]
        if removals:
            found[result.resource] = removals
    return found
