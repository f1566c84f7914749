"""Topics: the list, one of them with its partitions and configs, and what can be done to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from tidelog.client.resources import ConfigResource, NewTopic, OffsetSpec, ResourceType, TopicDescription
from tidelog.console.api.config_rows import ConfigChanges, ConfigRow, change_configs, config_rows
from tidelog.console.api.endpoint import Call, Nothing, changes, numbers_of, reads
from tidelog.console.api.overview_api import HistoryQuery, since_s
from tidelog.console.api.shapes import Done, TypedName, raise_errors, require_typed
from tidelog.console.refusal import Refusal
from tidelog.console.settings import Role
from tidelog.console.watching.history import Point
from tidelog.ids import TopicPartition, uuid_to_text

_PAGE = 100
_LARGEST_PAGE = 5000

Sort = Literal["name", "partitions", "rate", "size", "lag", "problems"]


class TopicRow(msgspec.Struct, frozen=True):
    """One topic in the list."""

    name: str
    internal: bool
    partitions: int
    replication_factor: int
    records_per_second: float
    bytes_per_second: float
    size_bytes: int | None
    groups: int
    lag: int | None
    under_replicated: int
    offline: int


class TopicPage(msgspec.Struct, frozen=True):
    """Some of the topics, and how many there are."""

    total: int
    matched: int
    topics: list[TopicRow]


class TopicQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which topics, in what order; ``names`` are favourites, separated by commas."""

    search: str = ""
    internal: bool = False
    names: str = ""
    sort: Sort = "name"
    descending: bool = False
    start: int = 0
    limit: int = _PAGE


class PartitionRow(msgspec.Struct, frozen=True):
    """One partition."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    problem: str | None


class TopicGroup(msgspec.Struct, frozen=True):
    """A group that reads the topic."""

    group: str
    state: str
    lag: int


class TopicDetail(msgspec.Struct, frozen=True):
    """One topic."""

    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionRow]
    groups: list[TopicGroup]
    records_per_second: float
    bytes_per_second: float
    role: str
    """What the person may do with it."""


class NewTopicRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create; -1 leaves a number to the brokers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = {}
    dry_run: bool = False


class PartitionTotal(msgspec.Struct, forbid_unknown_fields=True):
    """How many partitions the topic shall have."""

    partitions: int


class DeleteRecordsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """By partition, the offset before which all records go; -1 for all."""

    before: dict[str, int]


@reads("/clusters/{cluster}/topics", "Topics with rates, sizes and lag, in pages.", TopicQuery)
async def topics(call: Call, asked: TopicQuery) -> TopicPage:
    """From the last look; favourites and searches are by name."""
    seen = await call.cluster.seen()
    visible = [
        each
        for each in seen.topics.values()
        if (asked.internal or not each.is_internal) and call.sees(each.name)
    ]
    wanted = visible
    if asked.names:
        names = set(asked.names.split(","))
        wanted = [each for each in wanted if each.name in names]
    if asked.search:
        words = asked.search.lower().split()
        wanted = [each for each in wanted if all(word in each.name.lower() for word in words)]
    rows = [_row(call, each) for each in wanted]
    rows.sort(key=lambda each: each.name)
    if asked.sort != "name":
        rows.sort(key=_KEYS[asked.sort], reverse=asked.descending)
    elif asked.descending:
        rows.reverse()
    start = max(asked.start, 0)
    return TopicPage(len(visible), len(rows), rows[start : start + max(1, min(asked.limit, _LARGEST_PAGE))])


@reads("/clusters/{cluster}/topics/{topic}", "One topic with its partitions, offsets and groups.", Nothing)
async def topic(call: Call, asked: Nothing) -> TopicDetail:
    """Asked of the cluster, but for sizes and rates."""
    watched, name = call.cluster, call.topic
    described = await described_topic(call)
    seen = await watched.seen()
    led = [TopicPartition(name, each.partition) for each in described.partitions if each.leader is not None]
    starts = await watched.admin.list_offsets(dict.fromkeys(led, int(OffsetSpec.EARLIEST)))
    ends = await watched.admin.list_offsets(dict.fromkeys(led, int(OffsetSpec.LATEST)))
    rows = []
    for each in described.partitions:
        place = TopicPartition(name, each.partition)
        start, end = starts.get(place), ends.get(place)
        error = next((found.error for found in (start, end) if found is not None and found.error), None)
        rows.append(
            PartitionRow(
                each.partition,
                each.leader,
                each.leader_epoch,
                list(each.replicas),
                list(each.isr),
                start.offset if start is not None and start.error is None else None,
                end.offset if end is not None and end.error is None else None,
                seen.sizes.get(place),
                "no leader" if each.leader is None else None if error is None else error.message,
            )
        )
    groups = [
        TopicGroup(group, seen.groups[group].state.value, lag)
        for group, lag in sorted(seen.groups_by_topic.get(name, {}).items())
        if group in seen.groups
    ]
    return TopicDetail(
        name,
        uuid_to_text(described.topic_id),
        described.is_internal,
        rows,
        groups,
        watched.rates.records.get(name, 0.0),
        watched.rates.size_bytes.get(name, 0.0),
        call.person.role(watched.name, name).name.lower(),
    )


@reads("/clusters/{cluster}/topics/{topic}/rates", "Messages and bytes per second over time.", HistoryQuery)
async def topic_rates(call: Call, asked: HistoryQuery) -> list[Point]:
    """From the history."""
    return await call.cluster.history.rates(call.cluster.name, call.topic, since_s(asked.minutes))


@reads("/clusters/{cluster}/topics/{topic}/configs", "Configs with their docs and defaults.", Nothing)
async def topic_configs(call: Call, asked: Nothing) -> list[ConfigRow]:
    """Asked of the cluster."""
    return await config_rows(call.cluster, ConfigResource(ResourceType.TOPIC, call.topic))


@changes(
    "PUT",
    "/clusters/{cluster}/topics/{topic}/configs",
    "Change configs of a topic.",
    ConfigChanges,
    action="alter topic configs",
)
async def alter_topic_configs(call: Call, asked: ConfigChanges) -> list[ConfigRow]:
    """Set or take back single configs."""
    return await change_configs(call, ConfigResource(ResourceType.TOPIC, call.topic), asked)


@changes(
    "POST",
    "/clusters/{cluster}/topics",
    "Create a topic.",
    NewTopicRequest,
    action="create topic",
    role=Role.VIEWER,
)
async def create_topic(call: Call, asked: NewTopicRequest) -> Done:
    """Needs the role operator on topics of that name."""
    call.require(Role.OPERATOR, asked.name)
    call.details |= {
        "topic": asked.name,
        "partitions": asked.partitions,
        "configs": sorted(asked.configs),
        "dry_run": asked.dry_run,
    }
    new = NewTopic(asked.name, asked.partitions, asked.replication_factor, configs=asked.configs)
    (result,) = await call.cluster.admin.create_topics([new], validate_only=asked.dry_run)
    result.raise_for_error()
    if not asked.dry_run:
        await call.cluster.look_again()
    return Done()


@changes(
    "DELETE",
    "/clusters/{cluster}/topics/{topic}",
    "Delete a topic and all its messages.",
    TypedName,
    action="delete topic",
    role=Role.ADMIN,
)
async def delete_topic(call: Call, asked: TypedName) -> Done:
    """The name has to be typed again."""
    require_typed(asked.name, call.topic, "the topic's whole name", "to delete it")
    (result,) = await call.cluster.admin.delete_topics([call.topic])
    result.raise_for_error()
    await call.cluster.look_again()
    return Done()


@changes(
    "POST",
    "/clusters/{cluster}/topics/{topic}/partitions",
    "Add partitions.",
    PartitionTotal,
    action="add partitions",
)
async def add_partitions(call: Call, asked: PartitionTotal) -> Done:
    """To the given total; keys go to other partitions from then on."""
    call.details["partitions"] = asked.partitions
    (result,) = await call.cluster.admin.create_partitions({call.topic: asked.partitions})
    result.raise_for_error()
    await call.cluster.look_again()
    return Done()


@changes(
    "POST",
    "/clusters/{cluster}/topics/{topic}/delete-records",
    "Delete the oldest messages.",
    DeleteRecordsRequest,
    action="delete records",
    role=Role.ADMIN,
)
async def delete_records(call: Call, asked: DeleteRecordsRequest) -> dict[str, int]:
    """By partition; gives where each begins then."""
    call.details["before"] = dict(asked.before)
    remedy = "before must map partition numbers to offsets; messages before the offset are deleted"
    if not asked.before:
        raise Refusal(remedy)
    numbers = numbers_of(asked.before, remedy)
    before = {
        TopicPartition(call.topic, each): offset
        for each, offset in zip(numbers, asked.before.values(), strict=True)
    }
    done = await call.cluster.admin.delete_records(before)
    raise_errors(done.values())
    await call.cluster.look_again()
    return {str(place.partition): result.low_watermark for place, result in done.items()}


async def described_topic(call: Call, name: str | None = None) -> TopicDescription:
    """A topic as the cluster describes it now: one by its name, or that of the path."""
    wanted = call.topic if name is None else name
    described = (await call.cluster.admin.describe_topics([wanted]))[wanted]
    described.raise_for_error()
    return described


def _row(call: Call, topic_: TopicDescription) -> TopicRow:
    watched = call.cluster
    seen = watched.snapshot
    assert seen is not None
    groups = seen.groups_by_topic.get(topic_.name, {})
    return TopicRow(
        topic_.name,
        topic_.is_internal,
        len(topic_.partitions),
        topic_.replication_factor,
        watched.rates.records.get(topic_.name, 0.0),
        watched.rates.size_bytes.get(topic_.name, 0.0),
        seen.size_by_topic.get(topic_.name),
        len(groups),
        sum(groups.values()) if groups else None,
        sum(len(each.isr) < len(each.replicas) for each in topic_.partitions),
        sum(each.leader is None for each in topic_.partitions),
    )


_KEYS: dict[Sort, Callable[[TopicRow], float]] = {
    "partitions": lambda each: each.partitions,
    "rate": lambda each: each.records_per_second,
    "size": lambda each: each.size_bytes or 0,
    "lag": lambda each: -1 if each.lag is None else each.lag,
    "problems": lambda each: each.offline * 1_000_000 + each.under_replicated,
}

ENDPOINTS = (
    topics,
    topic,
    topic_rates,
    topic_configs,
    alter_topic_configs,
    create_topic,
    delete_topic,
    add_partitions,
    delete_records,
)
