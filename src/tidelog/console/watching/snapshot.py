"""What a cluster says of itself at one moment, by what every Kafka answers.

Metadata, ListOffsets, DescribeLogDirs, ListGroups and OffsetFetch, asked at the same time. What may not be
seen is left out and noted in ``problems``. ``watched_cluster`` takes them, ``rates`` and
``changes`` compare two.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import BrokerLogDirs, LogDirDescription
from tidelog.client.admin.group_resources import CommittedOffset, GroupListing
from tidelog.client.resources import ClusterDescription, OffsetSpec, TopicDescription
from tidelog.console.refusal import sentence
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.spark.report.reported_queries import ReportedQuery, is_spark_group, reported_queries

_INTERNAL_GROUPS = "__tidelog-"


@dataclass(frozen=True)
class Disk:
    """One log directory of one broker."""

    broker: int
    path: str
    size_by_topic: Mapping[str, int]
    usable_bytes: int | None
    total_bytes: int | None
    problem: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """One moment; ``at_s`` is on the monotonic clock, ``at_ms`` on that of the wall."""

    at_s: float
    at_ms: int
    cluster: ClusterDescription
    topics: Mapping[str, TopicDescription]
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    """Bytes of the leaders' replicas."""
    disks: tuple[Disk, ...]
    groups: Mapping[str, GroupListing]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    problems: tuple[str, ...] = field(default=())
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What stands beside the offsets of groups in which Spark's queries tell of themselves."""

    @cached_property
    def spark_queries(self) -> list[ReportedQuery]:
        """The queries of Spark that have told of themselves within a day."""
        return reported_queries(self.committed, self.notes, self.at_ms)

    @cached_property
    def lags(self) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Records that groups have still to read, of partitions whose end is known."""
        return {
            group: {
                partition: max(self.ends[partition] - offset, 0)
                for partition, offset in committed.items()
                if partition in self.ends
            }
            for group, committed in self.committed.items()
        }

    @cached_property
    def groups_by_topic(self) -> Mapping[str, Mapping[str, int]]:
        """The groups that have committed offsets of a topic, with their lag there; internal ones left out."""
        found: dict[str, dict[str, int]] = {}
        for group, lags in self.lags.items():
            if is_internal_group(group):
                continue
            for partition, lag in lags.items():
                by_group = found.setdefault(partition.topic, {})
                by_group[group] = by_group.get(group, 0) + lag
        return found

    @cached_property
    def size_by_topic(self) -> Mapping[str, int]:
        """Bytes of the leaders' replicas; topics of which nobody tells are left out."""
        found: dict[str, int] = {}
        for partition, size in self.sizes.items():
            found[partition.topic] = found.get(partition.topic, 0) + size
        return found


def is_internal_group(group: str) -> bool:
    """Whether only Tidelog itself uses a group: Spark's queries keep notes there."""
    return group.startswith(_INTERNAL_GROUPS)


async def take_snapshot(admin: AsyncAdmin) -> Snapshot:
    """Ask the cluster; raises what makes a picture impossible."""
    topics = {each.name: each for each in await admin.list_topics(include_internal=True)}
    leaders = {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in topics.values()
        for each in topic.partitions
        if each.leader is not None
    }
    at_s, at_ms = time.monotonic(), time.time_ns() // 1_000_000
    cluster, ends, log_dirs, (groups, found, problems) = await asyncio.gather(
        admin.describe_cluster(),
        admin.list_offsets(dict.fromkeys(leaders, int(OffsetSpec.LATEST))),
        _log_dirs(admin),
        _groups(admin),
    )
    dirs, more = log_dirs
    return Snapshot(
        at_s,
        at_ms,
        cluster,
        topics,
        {each: result.offset for each, result in ends.items() if result.error is None},
        {
            replica.partition: replica.size_bytes
            for broker in dirs
            for directory in broker.log_dirs
            for replica in directory.replicas
            if not replica.is_future and leaders.get(replica.partition) == broker.broker_id
        },
        tuple(_disk(broker.broker_id, each) for broker in dirs for each in broker.log_dirs),
        groups,
        {
            name: {each: at.offset for each, at in offsets.items() if at.error is None and at.offset >= 0}
            for name, offsets in found.items()
        },
        (*problems, *more),
        {
            name: tuple(each.metadata for each in offsets.values() if each.metadata)
            for name, offsets in found.items()
            if is_spark_group(name)
        },
    )


def _disk(broker: int, directory: LogDirDescription) -> Disk:
    sizes: dict[str, int] = {}
    for each in directory.replicas:
        sizes[each.partition.topic] = sizes.get(each.partition.topic, 0) + each.size_bytes
    return Disk(
        broker,
        directory.path,
        sizes,
        directory.usable_bytes,
        directory.total_bytes,
        None if directory.error is None else sentence(directory.error),
    )


async def _log_dirs(admin: AsyncAdmin) -> tuple[list[BrokerLogDirs], list[str]]:
    try:
        found = list((await admin.describe_log_dirs()).values())
    except TidelogError as error:
        return [], [f"cannot read log directories: {sentence(error)}"]
    return found, [sentence(each.error) for each in found if each.error is not None]


async def _groups(
    admin: AsyncAdmin,
) -> tuple[dict[str, GroupListing], dict[str, Mapping[TopicPartition, CommittedOffset]], list[str]]:
    try:
        listed = await admin.list_groups()
    except TidelogError as error:
        return {}, {}, [f"cannot read groups: {sentence(error)}"]
    groups = {each.group_id: each for each in listed.groups}
    found = await admin.list_group_offsets(list(groups)) if groups else {}
    committed = {name: offsets.offsets for name, offsets in found.items() if offsets.error is None}
    return groups, committed, [sentence(each) for each in listed.errors]
