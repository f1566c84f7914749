"""The topology of a cluster: who writes to the busiest topics, who reads them, and where that goes on to.

Producers are those that brokers know by their producer ids (``DescribeProducers``, Kafka 2.8 and later, so
idempotent ones); brokers of Tidelog with a metrics listener also tell which client that is. Readers are
groups, Spark's queries and the pipelines; a query that commits to a group is drawn once, as a query. Sinks
are what queries and pipelines write to: topics, the lake, tables.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from tidelog.client.resources import TopicDescription
from tidelog.console.api.endpoint import Call, Nothing, reads
from tidelog.console.api.spark_api import PipelineRow, files_for, read_spark
from tidelog.console.watching.producer_clients import ProducerClients
from tidelog.console.watching.snapshot import Snapshot
from tidelog.console.watching.spark_queries import QueryRow
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition
from tidelog.spark.report.epoch_record import EPOCH_TOPIC

_TOPOLOGY_TOPICS = 40
_TOPOLOGY_GROUPS = 60
_TOPOLOGY_PRODUCERS = 60
_PRODUCER_PARTITIONS = 400
_ACTIVE_MS = 10 * 60_000
_SPARK_TASK = re.compile(
    r"__tidelog-spark-epochs\.(.+?)(?:-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?\.\d+"
)
"""The transactional id of a task: the sink's application, the id of the run, a number."""
_SPARK_QUERY = re.compile(r"__tidelog-spark-epochs\.(.+)\.\d+")


class TopologyNode(msgspec.Struct, frozen=True):
    """One box of the picture."""

    id: str
    kind: str
    """``producer``, ``topic``, ``group``, ``query``, ``pipeline``, or of sinks ``topic sink``, ``lake``,
    ``sqlite``, ``cassandra``."""
    name: str
    page: list[str]
    """Where it is shown: the parts of the place within the cluster; empty if nowhere."""
    detail: str = ""
    """Of a producer its software and host, of a query its application."""
    lag: int | None = None
    records_per_second: float = 0.0
    state: str = ""
    """Of a group; of queries and pipelines ``running`` or ``not running``."""


class TopologyEdge(msgspec.Struct, frozen=True):
    """Records that go from one to another."""

    source: str
    target: str
    records_per_second: float
    lag: int | None = None


class Topology(msgspec.Struct, frozen=True):
    """The busiest topics of a cluster with the busiest of those who write and read them."""

    nodes: list[TopologyNode]
    edges: list[TopologyEdge]
    hidden: int
    """So many topics are left out."""
    hidden_groups: int
    """So many groups of the topics that are shown."""
    hidden_producers: int


class _Picture:
    """Boxes and lines, each once."""

    def __init__(self) -> None:
        self.nodes: dict[str, TopologyNode] = {}
        self.edges: dict[tuple[str, str], TopologyEdge] = {}

    def node(self, node: TopologyNode) -> str:
        self.nodes.setdefault(node.id, node)
        return node.id

    def edge(self, source: str, target: str, records_per_second: float, lag: int | None = None) -> None:
        self.add(TopologyEdge(source, target, records_per_second, lag))

    def add(self, edge: TopologyEdge) -> None:
        self.edges[edge.source, edge.target] = edge


@reads("/clusters/{cluster}/topology", "Producers and consumers of the busiest topics.", Nothing)
async def topology(call: Call, asked: Nothing) -> Topology:
    """Of the last look at the cluster; producers are asked for now."""
    watched = call.cluster
    seen = await watched.seen()
    visible = [
        each
        for each in seen.topics.values()
        if not each.is_internal and each.name != EPOCH_TOPIC and call.sees(each.name)
    ]
    visible.sort(key=lambda each: _interest(seen, watched.rates.records, each), reverse=True)
    shown = visible[:_TOPOLOGY_TOPICS]
    names = {each.name for each in shown}
    pipelines, queries = await _spark(call, seen)
    picture = _Picture()
    hidden_producers = await _draw_producers(call, shown, queries, picture)
    for each in shown:
        rate = watched.rates.records.get(each.name, 0.0)
        picture.node(_topic(each.name, "topic", rate))
    own_groups = {each.group for each in pipelines} | {each.commit_group for each in queries}
    hidden_groups = _draw_groups(call, seen, names, own_groups, picture)
    for pipeline in pipelines:
        _draw_pipeline(call, seen, names, pipeline, picture)
    for query in queries:
        _draw_query(call, names, query, picture)
    return Topology(
        [*picture.nodes.values()],
        [*picture.edges.values()],
        len(visible) - len(shown),
        hidden_groups,
        hidden_producers,
    )


def _interest(
    seen: Snapshot, by_topic: Mapping[str, float], topic: TopicDescription
) -> tuple[float, int, str]:
    return by_topic.get(topic.name, 0.0), len(seen.groups_by_topic.get(topic.name, {})), topic.name


def _topic(name: str, kind: str, rate: float = 0.0) -> TopologyNode:
    return TopologyNode(f"{kind} {name}", kind, name, ["topics", name], records_per_second=rate)


def _draw_groups(
    call: Call, seen: Snapshot, topics: Iterable[str], own: set[str | None], picture: _Picture
) -> int:
    """Those that read most, or are furthest behind; gives how many are left out.

    Groups that are no more than the progress of a query or pipeline are drawn as those.
    """
    found: dict[str, list[TopologyEdge]] = {}
    for name in topics:
        for group, lag in seen.groups_by_topic.get(name, {}).items():
            if group not in own and group in seen.groups:
                rate = call.cluster.rates.committed.get((group, name), 0.0)
                found.setdefault(group, []).append(TopologyEdge(f"topic {name}", f"group {group}", rate, lag))
    shown = _busiest(found, _TOPOLOGY_GROUPS)
    for group in shown:
        for edge in found[group]:
            picture.add(edge)
        state = seen.groups[group].state.value
        lag = sum(edge.lag or 0 for edge in found[group])
        picture.node(TopologyNode(f"group {group}", "group", group, ["groups", group], lag=lag, state=state))
    return len(found) - len(shown)


def _busiest(edges: Mapping[str, list[TopologyEdge]], most: int) -> list[str]:
    """The names with the most records a second, or else the greatest lag, each in its own order again."""

    def interest(name: str) -> tuple[float, int]:
        return (
            sum(each.records_per_second for each in edges[name]),
            sum(each.lag or 0 for each in edges[name]),
        )

    kept = set(sorted(edges, key=interest, reverse=True)[:most])
    return [name for name in edges if name in kept]


# Spark


async def _spark(call: Call, seen: Snapshot) -> tuple[list[PipelineRow], list[QueryRow]]:
    """For those who see all topics, as the page of Spark."""
    if not call.person.sees_all_topics(call.cluster.name):
        return [], []
    pipelines, queries = await asyncio.to_thread(read_spark, *files_for(call), seen)
    return [each for each in pipelines if each.running or each.lag is not None], queries


def _draw_pipeline(
    call: Call, seen: Snapshot, topics: set[str], pipeline: PipelineRow, picture: _Picture
) -> None:
    node_id = f"pipeline {pipeline.name}"
    by_topic: dict[str, int] = {}
    for place, lag in seen.lags.get(pipeline.group, {}).items():
        by_topic[place.topic] = by_topic.get(place.topic, 0) + lag
    inputs = [each for each in {**dict.fromkeys(pipeline.inputs), **by_topic} if each in topics]
    if not inputs:
        return
    state = "running" if pipeline.running else "not running"
    picture.node(
        TopologyNode(
            node_id, "pipeline", pipeline.name, ["spark"], pipeline.host or "", pipeline.lag, state=state
        )
    )
    for name in inputs:
        rate = call.cluster.rates.committed.get((pipeline.group, name), 0.0)
        picture.edge(f"topic {name}", node_id, rate, by_topic.get(name))
    for output in pipeline.outputs:
        kind, _, name = output.partition(" ")
        if kind == "topic":
            picture.node(_topic(name, "topic sink"))
            picture.edge(node_id, f"topic sink {name}", call.cluster.rates.records.get(name, 0.0))
        else:
            picture.node(TopologyNode(output, kind, name, ["spark"]))
            picture.edge(node_id, output, 0.0)


def _draw_query(call: Call, topics: set[str], query: QueryRow, picture: _Picture) -> None:
    inputs = [each for each in query.topics if each.topic in topics]
    outputs = [each for sink in query.sinks for each in sink.topics]
    if query.running is False or not (inputs or outputs):
        return  # one that has ended is on the page of Spark
    state = "" if query.running is None else "running"
    detail = " · ".join(part for part in (query.application, query.host) if part)
    node_id = f"query {query.key}"
    picture.node(TopologyNode(node_id, "query", query.name, ["spark"], detail, query.lag, state=state))
    for each in inputs:
        rate = call.cluster.rates.committed.get((query.key, each.topic))
        share = (query.rows_per_second or 0.0) / len(inputs)
        picture.edge(f"topic {each.topic}", node_id, share if rate is None else rate, each.lag)
    for name in outputs:
        picture.node(_topic(name, "topic sink"))
        picture.edge(node_id, f"topic sink {name}", call.cluster.rates.records.get(name, 0.0))


# Producers


class _Writer(NamedTuple):
    """Who writes, as people call it."""

    name: str
    detail: str
    page: tuple[str, ...]


async def _draw_producers(
    call: Call, topics: list[TopicDescription], queries: Iterable[QueryRow], picture: _Picture
) -> int:
    """Producers that have written to the topics within minutes, of brokers that know them (Kafka 2.8).

    Gives how many are left out.
    """
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    ][:_PRODUCER_PARTITIONS]
    watched = call.cluster
    try:
        found = await watched.admin.describe_producers(partitions) if partitions else {}
        clients, transactional = await _names_of_producers(call)
    except KafkaError:
        return 0  # an older broker, or no right to ask: the picture has topics and groups
    names = {sink.name: query.name for query in queries for sink in query.sinks}
    since_ms = time.time_ns() // 1_000_000 - _ACTIVE_MS
    writers: dict[str, set[_Writer]] = {}
    for partition, told in found.items():
        for each in told.producers if told.error is None else ():
            if each.last_timestamp_ms >= since_ms:
                writer = _writer(clients, each.producer_id, transactional.get(each.producer_id), names)
                writers.setdefault(partition.topic, set()).add(writer)
    nodes: dict[str, TopologyNode] = {}
    edges: dict[str, list[TopologyEdge]] = {}
    for topic, wrote in writers.items():
        rate = watched.rates.records.get(topic, 0.0) / len(wrote)
        for writer in sorted(wrote):
            node_id = f"producer {writer.name} {writer.detail}"
            nodes[node_id] = TopologyNode(node_id, "producer", writer.name, list(writer.page), writer.detail)
            edges.setdefault(node_id, []).append(TopologyEdge(node_id, f"topic {topic}", rate))
    shown = _busiest(edges, _TOPOLOGY_PRODUCERS)
    for node_id in shown:
        picture.node(nodes[node_id])
        for edge in edges[node_id]:
            picture.add(edge)
    return len(edges) - len(shown)


async def _names_of_producers(call: Call) -> tuple[ProducerClients, dict[int, str]]:
    """Clients and transactional ids, by producer id: for those who see all topics, as the pages of both."""
    watched = call.cluster
    if not call.person.sees_all_topics(watched.name):
        return ProducerClients(), {}
    listed = await watched.admin.list_transactions()
    if watched.telling is not None:
        pages, _ = await watched.telling.page("/clients")
        watched.producer_clients.note(pages)
    transactional = {each.producer_id: each.transactional_id for each in listed.transactions}
    return watched.producer_clients, transactional


def _writer(
    clients: ProducerClients, producer_id: int, transactional_id: str | None, queries: Mapping[str, str]
) -> _Writer:
    """All tasks of one of Spark's sinks are one; so are producers of one client on one host."""
    task = None if transactional_id is None else _SPARK_QUERY.fullmatch(transactional_id)
    if transactional_id is not None and task is not None:
        short = _SPARK_TASK.fullmatch(transactional_id)
        name = queries.get(task[1]) or (short[1] if short else task[1])
        return _Writer(f"Spark {name}", "", ("spark",))
    client = clients.get(producer_id)
    if client is not None:
        parts = (
            transactional_id if transactional_id != client.client_id else None,
            client.software,
            client.host,
        )
        detail = " · ".join(part for part in parts if part)
        return _Writer(client.client_id or client.software or client.host, detail, ("clients",))
    if transactional_id is not None:
        return _Writer(transactional_id, "", ("transactions",))
    return _Writer(f"producer {producer_id}", "", ())


ENDPOINTS = (topology,)
