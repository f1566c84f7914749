"""A cluster at a glance: health, rates, what changed lately; brokers; the topology; a stream of looks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping

import msgspec

from tidelog.client.resources import ConfigResource, ResourceType, TopicDescription
from tidelog.console.api.config_rows import ConfigChanges, ConfigRow, change_configs, config_rows
from tidelog.console.api.endpoint import Call, Nothing, changes, reads
from tidelog.console.api.event_stream import EventStream, event
from tidelog.console.refusal import Refusal, not_found
from tidelog.console.settings import Role
from tidelog.console.watching.changes import Event
from tidelog.console.watching.history import ALL_TOPICS, Point
from tidelog.console.watching.snapshot import Snapshot, is_internal_group
from tidelog.console.watching.spark_queries import query_rows
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition

_EVENTS = 200
_BEAT_S = 15.0
_TOPOLOGY_TOPICS = 40
_PRODUCER_PARTITIONS = 400
_ACTIVE_MS = 10 * 60_000
_SPARK_TASK = re.compile(
    r"__tidelog-spark-epochs\.(.+?)(?:-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?\.\d+"
)
"""The transactional id of a task: the sink's application, the id of the run, a number."""


class Overview(msgspec.Struct, frozen=True):
    """Health and rates of a cluster; counts are of what the person may see."""

    cluster_id: str | None
    at_ms: int
    controller: int | None
    brokers: int
    topics: int
    partitions: int
    under_replicated: int
    offline: int
    groups: int
    total_lag: int
    records_per_second: float
    bytes_per_second: float
    size_bytes: int
    fullest_disk: float | None
    """The part of the fullest disk that is used."""
    problems: list[str]
    problem: str | None
    problem_since_ms: int | None


class LogDirRow(msgspec.Struct, frozen=True):
    """One log directory."""

    path: str
    size_bytes: int
    usable_bytes: int | None
    total_bytes: int | None
    problem: str | None


class BrokerRow(msgspec.Struct, frozen=True):
    """One broker."""

    id: int
    address: str
    rack: str | None
    is_controller: bool
    leaders: int
    replicas: int
    in_sync: int
    size_bytes: int
    log_dirs: list[LogDirRow]


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How far back."""

    minutes: int = 60


class EventQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many."""

    limit: int = 50


class BrokerPage(msgspec.Struct, frozen=True):
    """What brokers tell of clients or requests over HTTP; problems say why others do not."""

    by_broker: dict[str, object]
    problems: list[str]


class TopologyNode(msgspec.Struct, frozen=True):
    """A producer, a topic, a group or a query of Spark."""

    id: str
    kind: str
    name: str
    lag: int | None = None
    records_per_second: float = 0.0
    state: str = ""


class TopologyEdge(msgspec.Struct, frozen=True):
    """Records that go from one to another."""

    source: str
    target: str
    records_per_second: float
    lag: int | None = None


class Topology(msgspec.Struct, frozen=True):
    """The busiest topics of a cluster with who writes and reads them; ``hidden`` topics are left out."""

    nodes: list[TopologyNode]
    edges: list[TopologyEdge]
    hidden: int


@reads("/clusters/{cluster}/overview", "Health and rates of a cluster.", Nothing)
async def overview(call: Call, asked: Nothing) -> Overview:
    """From the last look at it."""
    watched = call.cluster
    seen = await watched.seen()
    topics = [each for each in seen.topics.values() if call.sees(each.name)]
    partitions = [each for topic in topics for each in topic.partitions]
    used = [
        1 - each.usable_bytes / each.total_bytes
        for each in seen.disks
        if each.total_bytes and each.usable_bytes is not None
    ]
    names = {each.name for each in topics}
    return Overview(
        seen.cluster.cluster_id,
        seen.at_ms,
        None if seen.cluster.controller is None else seen.cluster.controller.id,
        len(seen.cluster.nodes),
        len(topics),
        len(partitions),
        sum(len(each.isr) < len(each.replicas) for each in partitions),
        sum(each.leader is None for each in partitions),
        sum(not is_internal_group(each) for each in seen.groups),
        sum(lag for lags in seen.lags.values() for place, lag in lags.items() if place.topic in names),
        sum(rate for name, rate in watched.rates.records.items() if name in names),
        sum(rate for name, rate in watched.rates.size_bytes.items() if name in names),
        sum(size for name, size in seen.size_by_topic.items() if name in names),
        max(used) if used else None,
        list(seen.problems),
        watched.problem,
        watched.problem_since_ms,
    )


@reads("/clusters/{cluster}/rates", "Records and bytes a second over time, of all topics.", HistoryQuery)
async def rates(call: Call, asked: HistoryQuery) -> list[Point]:
    """From the history."""
    return await call.cluster.history.rates(call.cluster.name, ALL_TOPICS, since_s(asked.minutes))


@reads("/clusters/{cluster}/events", "What changed lately, the newest first.", EventQuery)
async def events(call: Call, asked: EventQuery) -> list[Event]:
    """From the history; those about topics that the person may not see are left out."""
    found = await call.cluster.history.events(call.cluster.name, max(1, min(asked.limit, _EVENTS)))
    return [each for each in found if "topic" not in each.args or call.sees(str(each.args["topic"]))]


@reads(
    "/clusters/{cluster}/live", "A stream of server-sent events: one for each look at the cluster.", Nothing
)
async def live(call: Call, asked: Nothing) -> EventStream:
    """Pages fetch what they show anew with each look."""
    watched, stopping = call.cluster, call.console.stopping

    async def stream() -> AsyncIterator[bytes]:
        with watched.open_page():
            looks = watched.looks()
            next_look = asyncio.ensure_future(anext(looks))
            stop = asyncio.ensure_future(stopping.wait())
            try:
                while not stop.done():
                    await asyncio.wait(
                        {next_look, stop}, timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED
                    )
                    if next_look.done():
                        number = next_look.result()
                        state = {
                            "look": number,
                            "problem": watched.problem,
                            "since": watched.problem_since_ms,
                        }
                        yield event("look", state)
                        next_look = asyncio.ensure_future(anext(looks))
                    else:
                        yield b": still here\n\n"
            finally:
                for each in (next_look, stop):
                    each.cancel()
                await asyncio.gather(next_look, stop, return_exceptions=True)
                await looks.aclose()

    return EventStream(stream())


@reads("/clusters/{cluster}/brokers", "The brokers with their partitions and disks.", Nothing)
async def brokers(call: Call, asked: Nothing) -> list[BrokerRow]:
    """From the last look."""
    seen = await call.cluster.seen()
    partitions = [each for topic in seen.topics.values() for each in topic.partitions]
    controller = seen.cluster.controller
    rows = []
    for node in seen.cluster.nodes:
        disks = [each for each in seen.disks if each.broker == node.id]
        rows.append(
            BrokerRow(
                node.id,
                str(node),
                node.rack,
                controller is not None and controller.id == node.id,
                sum(each.leader == node.id for each in partitions),
                sum(node.id in each.replicas for each in partitions),
                sum(node.id in each.isr for each in partitions),
                sum(each.size_bytes for each in disks),
                [
                    LogDirRow(each.path, each.size_bytes, each.usable_bytes, each.total_bytes, each.problem)
                    for each in disks
                ],
            )
        )
    return rows


@reads(
    "/clusters/{cluster}/brokers/{broker}/configs",
    "The configs of a broker and where they come from.",
    Nothing,
)
async def broker_configs(call: Call, asked: Nothing) -> list[ConfigRow]:
    """Asked of the broker; what is secret stays there."""
    return await config_rows(call.cluster, ConfigResource(ResourceType.BROKER, str(_broker_id(call))))


@changes(
    "PUT",
    "/clusters/{cluster}/brokers/{broker}/configs",
    "Change configs of a broker.",
    ConfigChanges,
    action="alter broker configs",
    role=Role.ADMIN,
)
async def alter_broker_configs(call: Call, asked: ConfigChanges) -> list[ConfigRow]:
    """Configs that can be changed while it runs."""
    resource = ConfigResource(ResourceType.BROKER, str(_broker_id(call)))
    return await change_configs(call, resource, asked)


@reads("/clusters/{cluster}/clients", "Who is connected, as brokers of Tidelog tell it.", Nothing)
async def clients(call: Call, asked: Nothing) -> BrokerPage:
    """Of brokers that have a metrics listener."""
    return await _told(call, "/clients")


@reads("/clusters/{cluster}/requests", "Request times, as brokers of Tidelog tell them.", Nothing)
async def requests(call: Call, asked: Nothing) -> BrokerPage:
    """Of brokers that have a metrics listener."""
    return await _told(call, "/requests")


@reads("/clusters/{cluster}/topology", "Who writes and reads the busiest topics.", Nothing)
async def topology(call: Call, asked: Nothing) -> Topology:
    """Producers by their transactional ids or producer ids, topics, groups."""
    watched = call.cluster
    seen = await watched.seen()
    visible = [each for each in seen.topics.values() if not each.is_internal and call.sees(each.name)]
    visible.sort(key=lambda each: _interest(seen, watched.rates.records, each), reverse=True)
    shown = visible[:_TOPOLOGY_TOPICS]
    names = {each.name for each in shown}
    nodes = [
        TopologyNode(
            f"topic {each.name}",
            "topic",
            each.name,
            records_per_second=watched.rates.records.get(each.name, 0.0),
        )
        for each in shown
    ]
    edges: list[TopologyEdge] = []
    groups: dict[str, int] = {}
    for name in names:
        for group, lag in seen.groups_by_topic.get(name, {}).items():
            groups[group] = groups.get(group, 0) + lag
            rate = watched.rates.committed.get((group, name), 0.0)
            edges.append(TopologyEdge(f"topic {name}", f"group {group}", rate, lag))
    nodes += [
        TopologyNode(f"group {group}", "group", group, lag, state=seen.groups[group].state.value)
        for group, lag in groups.items()
        if group in seen.groups
    ]
    producers, writes = await _producers(call, shown)
    queries, reads_ = await _queries(call, names)
    return Topology([*producers, *nodes, *queries], [*writes, *edges, *reads_], len(visible) - len(shown))


def _interest(
    seen: Snapshot, by_topic: Mapping[str, float], topic: TopicDescription
) -> tuple[float, int, str]:
    return by_topic.get(topic.name, 0.0), len(seen.groups_by_topic.get(topic.name, {})), topic.name


async def _producers(
    call: Call, topics: list[TopicDescription]
) -> tuple[list[TopologyNode], list[TopologyEdge]]:
    """Producers that have written to the topics within minutes, of brokers that know them (Kafka 2.8)."""
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    ][:_PRODUCER_PARTITIONS]
    watched = call.cluster
    try:
        found = await watched.admin.describe_producers(partitions) if partitions else {}
        listed = await watched.admin.list_transactions()
    except KafkaError:
        return [], []  # an older broker, or no right to ask: the picture has topics and groups
    names = {each.producer_id: each.transactional_id for each in listed.transactions}
    since_ms = time.time_ns() // 1_000_000 - _ACTIVE_MS
    nodes: dict[str, TopologyNode] = {}
    edges: dict[tuple[str, str], TopologyEdge] = {}
    writers: dict[str, set[str]] = {}
    for partition, told in found.items():
        for each in told.producers if told.error is None else ():
            if each.last_timestamp_ms >= since_ms:
                name = _producer_name(names.get(each.producer_id), each.producer_id)
                nodes[name] = TopologyNode(f"producer {name}", "producer", name)
                writers.setdefault(partition.topic, set()).add(name)
    for topic, wrote in writers.items():
        rate = watched.rates.records.get(topic, 0.0) / len(wrote)
        for name in wrote:
            edges[name, topic] = TopologyEdge(f"producer {name}", f"topic {topic}", rate)
    return list(nodes.values()), list(edges.values())


def _producer_name(transactional_id: str | None, producer_id: int) -> str:
    """What people call a producer; all tasks of one of Spark's sinks are one."""
    if transactional_id is None:
        return f"producer {producer_id}"
    found = _SPARK_TASK.fullmatch(transactional_id)
    return f"Spark {found[1]}" if found else transactional_id


async def _queries(call: Call, topics: set[str]) -> tuple[list[TopologyNode], list[TopologyEdge]]:
    """Spark's queries by their checkpoints; pipelines are in the picture by their groups already."""
    checkpoints = call.console.settings.checkpoints
    if not checkpoints or not call.person.sees_all_topics(call.cluster.name):
        return [], []
    found = await asyncio.to_thread(query_rows, checkpoints, await call.cluster.seen())
    edges = [
        TopologyEdge(f"topic {each.topic}", f"query {query.path}", 0.0, each.lag)
        for query in found
        for each in query.topics
        if each.topic in topics
    ]
    drawn = {each.target for each in edges}
    nodes = [
        TopologyNode(f"query {query.path}", "query", query.name, query.lag)
        for query in found
        if f"query {query.path}" in drawn
    ]
    return nodes, edges


async def _told(call: Call, path: str) -> BrokerPage:
    if call.cluster.telling is None:
        raise Refusal("this console does not ask brokers over HTTP", 409, "NOT_ASKED")
    found, problems = await call.cluster.telling.page(path)
    return BrokerPage({str(broker): page for broker, page in found.items()}, problems)


def _broker_id(call: Call) -> int:
    text = call.path["broker"]
    if not text.isdecimal():
        raise not_found(f"{text!r} is no broker's number")
    return int(text)


def since_s(minutes: int) -> int:
    """The second that was so many minutes ago; a week at most."""
    return int(time.time()) - max(1, min(minutes, 7 * 24 * 60)) * 60


ENDPOINTS = (
    overview,
    rates,
    events,
    live,
    brokers,
    broker_configs,
    alter_broker_configs,
    clients,
    requests,
    topology,
)
