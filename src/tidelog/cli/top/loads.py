"""Rates of brokers, topics and groups, of two samples of a cluster. Pure; ``command`` prints it.

Rates are differences of offsets: records written, and commits of groups. A topic that was made anew between
the samples, or a partition that was cut, counts nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tidelog.cli.cluster.state import BrokerState, state_of
from tidelog.cli.groups.command import INTERNAL_PREFIX
from tidelog.cli.top.queries import QueryLoad, query_loads
from tidelog.cli.top.sample import Disk, Sample
from tidelog.cli.top.watched import RequestLoad, ThrottledLoad, request_loads, throttled_loads
from tidelog.client.resources import TopicDescription
from tidelog.ids import TopicPartition

Key = TypeVar("Key")


@dataclass(frozen=True)
class BrokerLoad:
    """One broker; what is written to partitions that it leads, and what lies on its disks."""

    id: int
    address: str | None
    rack: str | None
    alive: bool
    controller: bool
    partitions_led: int
    partitions_hosted: int
    partitions_in_sync: int
    records_per_second: float
    bytes_per_second: float | None
    size_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None


@dataclass(frozen=True)
class TopicLoad:
    """One topic; bytes are those of the leaders, as they lie on disk."""

    name: str
    internal: bool
    partitions: int
    records_per_second: float
    bytes_per_second: float | None
    size_bytes: int | None
    busiest_partition: int | None
    busiest_share: float
    """The part of the topic's records that goes to its busiest partition."""


@dataclass(frozen=True)
class GroupLoad:
    """One group; None where it has committed nothing that could be compared."""

    group: str
    state: str
    type: str
    partitions: int
    lag: int | None
    lag_per_second: float | None
    committed_per_second: float


@dataclass(frozen=True)
class ClusterLoad:
    """The whole cluster between two moments; the busiest first, groups that are furthest behind first."""

    cluster_id: str | None
    controller: int | None
    seconds: float
    records_per_second: float
    bytes_per_second: float | None
    partitions: int
    under_replicated: int
    offline: int
    total_lag: int
    brokers: list[BrokerLoad]
    topics: list[TopicLoad]
    groups: list[GroupLoad]
    requests: list[RequestLoad]
    throttled: list[ThrottledLoad]
    queries: list[QueryLoad]
    """Spark's, of the last day."""
    unwatched: str
    """Why requests and throttled clients are not known of all brokers; empty if they are."""
    problems: list[str]


def load_between(before: Sample, now: Sample) -> ClusterLoad:
    """What happened from one sample to a later one."""
    seconds = max(now.at_s - before.at_s, 1e-9)
    written = _grown(before.ends, now.ends, seconds)
    leaders = {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in now.topics
        for each in topic.partitions
    }
    grown = _grown(before.sizes, now.sizes, seconds)
    led_bytes = {
        partition: rate for (broker, partition), rate in grown.items() if leaders.get(partition) == broker
    }
    records_in = _by_leader(written, leaders)
    bytes_in = _by_leader(led_bytes, leaders)
    state = state_of(now.cluster, now.topics, {})
    groups = [_group(before, now, name, seconds) for name in {each.group_id for each in now.groups}]
    topics = [_topic(each, now, written, led_bytes) for each in now.topics]
    return ClusterLoad(
        state.cluster_id,
        state.controller,
        seconds,
        sum(written.values()),
        sum(led_bytes.values()) if now.sizes else None,
        state.partitions,
        state.under_replicated,
        state.offline,
        sum(each.lag or 0 for each in groups),
        [
            _broker(each, records_in.get(each.id, 0.0), bytes_in.get(each.id, 0.0), now.disks.get(each.id))
            for each in state.brokers
        ],
        sorted(topics, key=lambda each: (-each.records_per_second, -(each.size_bytes or 0), each.name)),
        sorted(groups, key=lambda each: (-(each.lag or 0), -each.committed_per_second, each.group)),
        request_loads(before.watched, now.watched, seconds),
        throttled_loads(before.watched, now.watched, seconds),
        query_loads(before, now, seconds),
        now.watched.missing,
        list(now.problems),
    )


def _grown(before: Mapping[Key, int], now: Mapping[Key, int], seconds: float) -> dict[Key, float]:
    """By how much each grew a second; what is new, or has shrunk, did not."""
    return {key: max(value - before.get(key, value), 0) / seconds for key, value in now.items()}


def _by_leader(
    rates: Mapping[TopicPartition, float], leaders: Mapping[TopicPartition, int | None]
) -> dict[int | None, float]:
    found: dict[int | None, float] = defaultdict(float)
    for partition, rate in rates.items():
        found[leaders.get(partition)] += rate
    return found


def _broker(
    state: BrokerState, records_per_second: float, bytes_per_second: float, disk: Disk | None
) -> BrokerLoad:
    return BrokerLoad(
        state.id,
        state.address,
        state.rack,
        state.alive,
        state.controller,
        state.partitions_led,
        state.partitions_hosted,
        state.partitions_in_sync,
        records_per_second,
        bytes_per_second if disk else None,
        disk.size_bytes if disk else None,
        disk.free_bytes if disk else None,
        disk.total_bytes if disk else None,
    )


def _topic(
    topic: TopicDescription,
    now: Sample,
    written: Mapping[TopicPartition, float],
    led_bytes: Mapping[TopicPartition, float],
) -> TopicLoad:
    partitions = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    rates = {each: written.get(each, 0.0) for each in partitions}
    rate = sum(rates.values())
    busiest = max(rates, key=rates.__getitem__) if rate else None
    sizes = [
        now.sizes.get((each.leader, TopicPartition(topic.name, each.partition)))
        for each in topic.partitions
        if each.leader is not None
    ]
    known = [size for size in sizes if size is not None]
    return TopicLoad(
        topic.name,
        topic.is_internal,
        len(partitions),
        rate,
        sum(led_bytes.get(each, 0.0) for each in partitions) if known else None,
        sum(known) if known else None,
        None if busiest is None else busiest.partition,
        rates[busiest] / rate if busiest is not None else 0.0,
    )


def _group(before: Sample, now: Sample, name: str, seconds: float) -> GroupLoad:
    listing = next(each for each in now.groups if each.group_id == name)
    committed = now.committed.get(name, {})
    earlier = before.lags(name)
    lags = now.lags(name)
    both = earlier.keys() & lags.keys()
    change = sum(lags[each] - earlier[each] for each in both)
    return GroupLoad(
        name,
        str(listing.state),
        str(listing.type),
        len(committed),
        sum(lags.values()) if lags else None,
        change / seconds if both else None,
        sum(_grown(before.committed.get(name, {}), committed, seconds).values()),
    )


def visible(load: ClusterLoad, *, internal: bool) -> ClusterLoad:
    """Without what only Tidelog and Kafka themselves use, unless it is asked for."""
    if internal:
        return load
    groups = [each for each in load.groups if not each.group.startswith(INTERNAL_PREFIX)]
    return replace(
        load,
        topics=[each for each in load.topics if not each.internal],
        groups=groups,
        total_lag=sum(each.lag or 0 for each in groups),
    )
