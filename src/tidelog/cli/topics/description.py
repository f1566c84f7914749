"""What ``tidelog topics describe`` finds out about a topic, and how it prints it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidelog.cli.output import counted, is_terminal, print_table, printable
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import ConfigResource, ConfigSource, OffsetResult, OffsetSpec, ResourceType
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition, uuid_to_text

_COLUMNS = ("partition", "leader", "epoch", "replicas", "isr", "start", "end")
_NUMBERS = ("partition", "leader", "epoch", "start", "end")


@dataclass(frozen=True)
class DescribedPartition:
    """One partition; offsets are None where no leader could tell them."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None


@dataclass(frozen=True)
class DescribedTopic:
    """One topic; ``configs`` are those set for this topic."""

    name: str
    topic_id: str
    internal: bool
    configs: dict[str, str | None]
    partitions: list[DescribedPartition]


async def describe_topics(
    cluster: Cluster, names: list[str]
) -> tuple[list[DescribedTopic], list[KafkaError]]:
    """The topics that exist, and why the others cannot be described."""
    admin = AsyncAdmin.of(cluster)
    described = await admin.describe_topics(names)
    errors = [topic.error for topic in described.values() if topic.error is not None]
    topics = [topic for topic in described.values() if topic.error is None]
    led = [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    ]
    starts, ends, configs = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST)),
        admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST)),
        admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]),
    )
    own = {
        result.resource.name: {
            entry.name: entry.value
            for entry in result.entries
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        for result in configs
    }
    found = [
        DescribedTopic(
            topic.name,
            uuid_to_text(topic.topic_id),
            topic.is_internal,
            own.get(topic.name, {}),
            [
                DescribedPartition(
                    each.partition,
                    each.leader,
                    each.leader_epoch,
                    each.replicas,
                    each.isr,
                    each.offline_replicas,
                    _offset(starts, TopicPartition(topic.name, each.partition)),
                    _offset(ends, TopicPartition(topic.name, each.partition)),
                )
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]
    return found, errors


def _offset(found: dict[TopicPartition, OffsetResult], partition: TopicPartition) -> int | None:
    result = found.get(partition)
    return None if result is None or result.error is not None else result.offset


def print_description(topic: DescribedTopic) -> None:
    """Print a topic: for people with a heading, for pipes as rows that begin with the topic's name."""
    rows = [
        (
            each.partition,
            each.leader,
            each.leader_epoch,
            each.replicas,
            each.isr,
            each.start_offset,
            each.end_offset,
        )
        for each in topic.partitions
    ]
    if not is_terminal():
        print_table(("topic", *_COLUMNS), [(topic.name, *row) for row in rows])
        return
    configs = "  ".join(f"{name}={value}" for name, value in topic.configs.items())
    print(f"{topic.name}  ({counted(len(rows), 'partition')}, id {topic.topic_id})")
    print(f"configs: {printable(configs) or 'all defaults'}")
    print_table(_COLUMNS, rows, right=_NUMBERS)
