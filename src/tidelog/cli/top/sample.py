"""What a cluster says of itself at one moment: offsets, sizes, committed offsets, brokers.

Made of what every Kafka has: Metadata, ListOffsets, DescribeLogDirs, ListGroups and OffsetFetch, asked at the
same time, and of what brokers tell beside that (``watched``). What may not be seen, or is not told, is left
out and noted in ``problems``. A broker that has not answered is asked again the next time, but hardly waited
for: the cluster tells of a dead one for a while. ``loads`` makes rates of two samples.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tidelog.cli.broker_pages import BrokerPages
from tidelog.cli.failure import sentence
from tidelog.cli.top.watched import Watched
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import BrokerLogDirs
from tidelog.client.admin.group_resources import CommittedOffset, GroupListing
from tidelog.client.resources import ClusterDescription, OffsetSpec, TopicDescription
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.spark.report.reported_queries import is_spark_group

_BRIEF_S = 2.0
"""So long a broker is waited for that did not answer the last time."""
_NO_ANSWER = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)


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


@dataclass(frozen=True)
class _Report:
    """What some brokers tell: of partitions that they lead, their disks, groups that they coordinate."""

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_dirs: list[BrokerLogDirs] = field(default_factory=list)
    groups: tuple[GroupListing, ...] = ()
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


async def take_sample(admin: AsyncAdmin, pages: BrokerPages, silent: set[int] | None = None) -> Sample:
    """Ask the cluster; raises what makes a picture impossible.

    ``silent`` are the brokers that have not answered the last time, and afterwards those that have not now.
    """
    silent = set() if silent is None else silent
    listed, cluster = await asyncio.gather(admin.list_topics(include_internal=True), admin.describe_cluster())
    topics = tuple(listed)
    brokers = {node.id for node in cluster.nodes}
    silent &= brokers
    at_s, at_ms = time.monotonic(), time.time_ns() // 1_000_000

    def led(leads: Callable[[int], bool]) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, each.partition)
            for topic in topics
            for each in topic.partitions
            if each.leader is not None and leads(each.leader)
        ]

    asked = [
        _told(admin, brokers - silent, led(lambda leader: leader not in silent)),
        *(_told_soon(admin, each, led(each.__eq__)) for each in sorted(silent)),
    ]
    told, watched = await asyncio.gather(asyncio.gather(*asked), _watched(pages, frozenset(silent)))
    log_dirs = [directory for each in told for directory in each.log_dirs]
    silent.difference_update(each.broker_id for each in log_dirs)
    silent |= {each.broker_id for each in log_dirs if each.error and each.error.code in _NO_ANSWER}
    committed = {name: offsets for each in told for name, offsets in each.committed.items()}
    return Sample(
        at_s,
        cluster,
        topics,
        {partition: end for each in told for partition, end in each.ends.items()},
        {
            (broker.broker_id, replica.partition): replica.size_bytes
            for broker in log_dirs
            for directory in broker.log_dirs
            for replica in directory.replicas
            if not replica.is_future
        },
        {broker.broker_id: _disk(broker) for broker in log_dirs if broker.log_dirs},
        tuple(group for each in told for group in each.groups),
        {
            name: {each: at.offset for each, at in offsets.items() if at.error is None and at.offset >= 0}
            for name, offsets in committed.items()
        },
        tuple(problem for each in told for problem in each.problems),
        watched,
        at_ms,
        {
            name: tuple(each.metadata for each in offsets.values() if each.metadata)
            for name, offsets in committed.items()
            if is_spark_group(name)
        },
    )


async def _told(admin: AsyncAdmin, brokers: Collection[int], led: list[TopicPartition]) -> _Report:
    ends, (log_dirs, disk_problems), (groups, committed, problems) = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST)),
        _log_dirs(admin, brokers),
        _groups(admin, brokers),
    )
    return _Report(
        {each: result.offset for each, result in ends.items() if result.error is None},
        log_dirs,
        groups,
        committed,
        [*disk_problems, *problems],
    )


async def _told_soon(admin: AsyncAdmin, broker: int, led: list[TopicPartition]) -> _Report:
    """The same of one broker, if it answers at once."""
    try:
        async with asyncio.timeout(_BRIEF_S):
            told = await _told(admin, [broker], led)
    except (TimeoutError, TidelogError):
        told = _Report()
    return told if told.log_dirs else _Report(problems=[f"broker {broker} does not respond"])


async def _watched(pages: BrokerPages, silent: Collection[int]) -> Watched:
    requests = await pages.read("/requests", silent)
    throttled = await pages.read("/throttled", silent)
    reasons = dict.fromkeys((*requests.problems, *throttled.problems))
    return Watched.of(requests.by_broker, throttled.by_broker, tuple(reasons), tuple(requests.silent))


async def _log_dirs(admin: AsyncAdmin, brokers: Collection[int]) -> tuple[list[BrokerLogDirs], list[str]]:
    try:
        found = list((await admin.describe_log_dirs(brokers)).values())
    except TidelogError as error:
        return [], [f"cannot read log directories: {sentence(error)}"]
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
    admin: AsyncAdmin, brokers: Collection[int]
) -> tuple[tuple[GroupListing, ...], dict[str, Mapping[TopicPartition, CommittedOffset]], list[str]]:
    try:
        listed = await admin.list_groups(broker_ids=brokers)
    except TidelogError as error:
        return (), {}, [sentence(error)]
    found = await admin.list_group_offsets([each.group_id for each in listed.groups])
    committed = {name: offsets.offsets for name, offsets in found.items() if offsets.error is None}
    return listed.groups, committed, [sentence(each) for each in listed.errors]
