"""What a cluster says of itself at one moment: offsets, sizes, committed offsets, brokers.

Made of what every Kafka has: Metadata, ListOffsets, DescribeLogDirs, ListGroups and OffsetFetch, asked at the
same time, and of what brokers tell beside that (``watched``). What may not be seen, or is not told, is left
out and noted in ``problems``. ``loads`` makes rates of two samples.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.cli.broker_pages import BrokerPages
from tidelog.cli.failure import sentence
from tidelog.cli.top.watched import Watched
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import BrokerLogDirs
from tidelog.client.admin.group_resources import CommittedOffset, GroupListing
from tidelog.client.resources import ClusterDescription, OffsetSpec, TopicDescription
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.spark.reported_queries import is_spark_group


@dataclass(frozen=True)
class Disk:
    """The log directories of one broker, together."""

    size_bytes: int
    free_bytes: int | None
    total_bytes: int | None


@dataclass(frozen=True)
class Sample:
    """One moment; ``at_s`` is on the monotonic clock."""

    at_s: float
    cluster: ClusterDescription
    topics: tuple[TopicDescription, ...]
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[tuple[int, TopicPartition], int]
    """Bytes by broker and partition; without replicas that are being moved to another directory."""
    disks: Mapping[int, Disk]
    groups: tuple[GroupListing, ...]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    problems: tuple[str, ...] = ()
    watched: Watched = field(default_factory=Watched)
    at_ms: int = 0
    """The same moment on the clock of the wall."""
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What stands beside the offsets of groups in which Spark's queries tell of themselves."""

    def lags(self, group: str) -> dict[TopicPartition, int]:
        """Records that a group has still to read, of partitions whose end is known."""
        return {
            partition: max(self.ends[partition] - offset, 0)
            for partition, offset in self.committed.get(group, {}).items()
            if partition in self.ends
        }


async def take_sample(admin: AsyncAdmin, pages: BrokerPages) -> Sample:
    """Ask the cluster; raises what makes a picture impossible."""
    topics = tuple(await admin.list_topics(include_internal=True))
    led = [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    ]
    at_s, at_ms = time.monotonic(), time.time_ns() // 1_000_000
    cluster, ends, (log_dirs, disk_problems), (groups, found, problems), watched = await asyncio.gather(
        admin.describe_cluster(),
        admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST)),
        _log_dirs(admin),
        _groups(admin),
        _watched(pages),
    )
    return Sample(
        at_s,
        cluster,
        topics,
        {each: result.offset for each, result in ends.items() if result.error is None},
        {
            (broker.broker_id, replica.partition): replica.size_bytes
            for broker in log_dirs
            for directory in broker.log_dirs
            for replica in directory.replicas
            if not replica.is_future
        },
        {broker.broker_id: _disk(broker) for broker in log_dirs if broker.log_dirs},
        groups,
        {
            name: {each: at.offset for each, at in offsets.items() if at.error is None and at.offset >= 0}
            for name, offsets in found.items()
        },
        (*disk_problems, *problems),
        watched,
        at_ms,
        {
            name: tuple(each.metadata for each in offsets.values() if each.metadata)
            for name, offsets in found.items()
            if is_spark_group(name)
        },
    )


async def _watched(pages: BrokerPages) -> Watched:
    requests = await pages.read("/requests")
    throttled = await pages.read("/throttled")
    reasons = dict.fromkeys((*requests.problems, *throttled.problems))
    return Watched.of(requests.by_broker, throttled.by_broker, tuple(reasons), tuple(requests.silent))


async def _log_dirs(admin: AsyncAdmin) -> tuple[list[BrokerLogDirs], list[str]]:
    try:
        found = list((await admin.describe_log_dirs()).values())
    except TidelogError as error:
        return [], [f"log directories are not told: {sentence(error)}"]
    return found, _log_dir_problems(found)


def _disk(broker: BrokerLogDirs) -> Disk:
    dirs = [each for each in broker.log_dirs if each.error is None]
    free = [each.usable_bytes for each in dirs if each.usable_bytes is not None]
    total = [each.total_bytes for each in dirs if each.total_bytes is not None]
    return Disk(
        sum(replica.size_bytes for each in dirs for replica in each.replicas),
        # Directories of one disk would count twice: the fullest one is what matters.
        min(free) if free else None,
        min(total) if total else None,
    )


def _log_dir_problems(log_dirs: list[BrokerLogDirs]) -> list[str]:
    problems = [sentence(each.error) for each in log_dirs if each.error is not None]
    problems += [
        f"log directory {directory.path} of broker {each.broker_id} is offline"
        for each in log_dirs
        for directory in each.log_dirs
        if directory.error is not None
    ]
    return problems


async def _groups(
    admin: AsyncAdmin,
) -> tuple[tuple[GroupListing, ...], dict[str, Mapping[TopicPartition, CommittedOffset]], list[str]]:
    try:
        listed = await admin.list_groups()
    except TidelogError as error:
        return (), {}, [sentence(error)]
    found = await admin.list_group_offsets([each.group_id for each in listed.groups])
    committed = {name: offsets.offsets for name, offsets in found.items() if offsets.error is None}
    return listed.groups, committed, [sentence(each) for each in listed.errors]
