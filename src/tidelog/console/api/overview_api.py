"""A cluster at a glance: health, rates, what changed lately; brokers; a stream of looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec

from tidelog.client.resources import ConfigResource, ResourceType
from tidelog.console.api.config_rows import ConfigChanges, ConfigRow, change_configs, config_rows
from tidelog.console.api.endpoint import (
    Call,
    Nothing,
    changes,
    numbers_of,
    reads,
    require_whole_cluster,
    sees_group,
)
from tidelog.console.api.event_stream import EventStream, event
from tidelog.console.settings import Role
from tidelog.console.watching.changes import LEADERS_MOVED, Event
from tidelog.console.watching.history import ALL_TOPICS, Point
from tidelog.console.watching.rebalances import topics_of
from tidelog.console.watching.snapshot import is_internal_group

_EVENTS = 200
_SEARCHED_EVENTS = 2000
"""Among so many of the last ones are those looked for that a person may see."""
_BEAT_S = 15.0


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
    """One log directory; its size is that of topics that the person may see, others are of the disk."""

    path: str
    size_bytes: int
    usable_bytes: int | None
    total_bytes: int | None
    problem: str | None


class BrokerRow(msgspec.Struct, frozen=True):
    """One broker; partitions and sizes are those of topics that the person may see."""

    id: int
    address: str
    rack: str | None
    is_controller: bool
    leaders: int
    replicas: int
    in_sync: int
    size_bytes: int
    log_dirs: list[LogDirRow]
    certificate_expires_ms: int | None
    """Of the certificate that the broker shows to the console, over TLS."""


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How far back."""

    minutes: int = 60


class EventQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The maximum number of results."""

    limit: int = 50


class BrokerPage(msgspec.Struct, frozen=True):
    """What brokers tell of clients or requests over HTTP; problems say why others do not."""

    by_broker: dict[str, object]
    problems: list[str]


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
        sum(not is_internal_group(each) and sees_group(call, seen, each) for each in seen.groups),
        sum(
            lag
            for group, lags in seen.lags.items()
            if not is_internal_group(group)
            for place, lag in lags.items()
            if place.topic in names
        ),
        sum(rate for name, rate in watched.rates.records.items() if name in names),
        sum(rate for name, rate in watched.rates.size_bytes.items() if name in names),
        sum(size for name, size in seen.size_by_topic.items() if name in names),
        max(used) if used else None,
        [*seen.problems, *watched.history.problems],
        watched.problem,
        watched.problem_since_ms,
    )


@reads(
    "/clusters/{cluster}/rates",
    "Messages and bytes per second over time, of all topics that the user may see.",
    HistoryQuery,
)
async def rates(call: Call, asked: HistoryQuery) -> list[Point]:
    """From the history, which has the sum of all topics; that of some is made of theirs."""
    watched, begin_s = call.cluster, since_s(asked.minutes)
    if call.person.sees_all_topics(watched.name):
        return await watched.history.rates(watched.name, ALL_TOPICS, begin_s)
    topics = [each for each in (await watched.seen()).topics if call.sees(each)]
    return await watched.history.rates_together(watched.name, topics, begin_s)


@reads("/clusters/{cluster}/events", "Recent changes, newest first.", EventQuery)
async def events(call: Call, asked: EventQuery) -> list[Event]:
    """From the history; those about topics and groups that the person may not see are left out."""
    watched, limit = call.cluster, max(1, min(asked.limit, _EVENTS))
    if call.person.sees_all_topics(watched.name):
        return await watched.history.events(watched.name, limit)
    found = await watched.history.events(watched.name, _SEARCHED_EVENTS)
    return [each for each in found if _sees_event(call, each)][:limit]


def _sees_event(call: Call, event_: Event) -> bool:
    if event_.kind == LEADERS_MOVED:
        return False  # it counts partitions of all topics
    if not all(map(call.sees, topics_of(event_))):
        return False
    return "group" not in event_.args or sees_group(call, call.cluster.snapshot, str(event_.args["group"]))


@reads(
    "/clusters/{cluster}/live", "A stream of server-sent events, one for each poll of the cluster.", Nothing
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
                            "history_fails": bool(watched.history.problems),
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
    topics = [each for each in seen.topics.values() if call.sees(each.name)]
    partitions = [each for topic in topics for each in topic.partitions]
    controller = seen.cluster.controller
    rows = []
    for node in seen.cluster.nodes:
        dirs = [
            LogDirRow(
                each.path,
                sum(size for topic, size in each.size_by_topic.items() if call.sees(topic)),
                each.usable_bytes,
                each.total_bytes,
                each.problem,
            )
            for each in seen.disks
            if each.broker == node.id
        ]
        rows.append(
            BrokerRow(
                node.id,
                str(node),
                node.rack,
                controller is not None and controller.id == node.id,
                sum(each.leader == node.id for each in partitions),
                sum(node.id in each.replicas for each in partitions),
                sum(node.id in each.isr for each in partitions),
                sum(each.size_bytes for each in dirs),
                dirs,
                call.cluster.certificates.expires_ms.get(node.id),
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


@reads("/clusters/{cluster}/clients", "Connected clients, as reported by Tidelog brokers.", Nothing)
async def clients(call: Call, asked: Nothing) -> BrokerPage:
    """Of brokers that have a metrics listener; for those who may see all topics."""
    require_whole_cluster(call)
    return await _told(call, "/clients")


@reads("/clusters/{cluster}/requests", "Request times, as reported by Tidelog brokers.", Nothing)
async def requests(call: Call, asked: Nothing) -> BrokerPage:
    """Of brokers that have a metrics listener."""
    return await _told(call, "/requests")


async def _told(call: Call, path: str) -> BrokerPage:
    found, problems = await call.cluster.told(path)
    return BrokerPage({str(broker): page for broker, page in found.items()}, problems)


def _broker_id(call: Call) -> int:
    text = call.path["broker"]
    return numbers_of([text], f"invalid broker id {text[:50]!r}")[0]


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
)
