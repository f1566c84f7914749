"""What clients push of themselves (KIP-714), and the subscriptions by which they do.

Brokers of Tidelog keep the last minutes of each client and tell them over HTTP; Apache Kafka hands them to a
plugin and tells nobody. Subscriptions are configs, of every Kafka that has them (3.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from tidelog.client.resources import ConfigEntry, ConfigResource, ResourceType
from tidelog.console.api.config_rows import alterations
from tidelog.console.api.endpoint import Call, Nothing, changes, reads, require_whole_cluster
from tidelog.console.api.shapes import Done, raise_errors
from tidelog.console.refusal import Refusal, not_found
from tidelog.console.settings import Role

_PREFIX = "kafka_client_"
_HEADLINES = frozenset(
    {
        "producer_record_send_rate",
        "producer_byte_rate",
        "producer_record_error_total",
        "producer_node_request_latency_avg",
        "producer_node_request_latency_max",
        "producer_record_queue_time_avg",
        "producer_produce_throttle_time_avg",
        "consumer_fetch_manager_records_consumed_rate",
        "consumer_fetch_manager_bytes_consumed_rate",
        "consumer_fetch_manager_records_lag_max",
        "consumer_fetch_manager_fetch_latency_avg",
        "consumer_coordinator_assigned_partitions",
        "consumer_coordinator_commit_latency_avg",
        "consumer_coordinator_rebalance_latency_max",
        "consumer_node_request_latency_avg",
        "consumer_poll_idle_ratio_avg",
    }
)
_ADDED_UP = ("_rate", "_total", "_partitions")
_OPTIONS = ("metrics", "interval.ms", "match")
_DEFAULT_INTERVAL_MS = 300_000


class _Metric(msgspec.Struct):
    name: str
    labels: str
    value: float | None


class _Client(msgspec.Struct):
    """A client as a broker tells of it."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    pushes: int
    last_push_ms_ago: int
    about: dict[str, str]
    metrics: list[_Metric]


class _Page(msgspec.Struct):
    clients: list[_Client]
    left_out: int = 0


class PushingClient(msgspec.Struct, frozen=True):
    """A client with its most telling figures; those of one name are added up, or the largest is taken."""

    broker: int
    instance_id: str
    client_id: str
    software: str
    address: str
    kind: Literal["producer", "consumer", "other"]
    about: dict[str, str]
    """What it says of itself: its rack, its group, its transactional id."""
    pushes: int
    pushed_ms_ago: int
    series: int
    figures: dict[str, float]


class TelemetryPage(msgspec.Struct, frozen=True):
    """Clients that have pushed of late; problems say which brokers do not tell."""

    clients: list[PushingClient]
    problems: list[str]


class Figure(msgspec.Struct, frozen=True):
    """One figure; labels as Prometheus writes them."""

    name: str
    labels: str
    value: float


class Subscription(msgspec.Struct, frozen=True):
    """Which figures clients push, how often, and which clients."""

    name: str
    metrics: list[str]
    interval_ms: int
    match: list[str]


class SubscriptionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A subscription as it shall be; ``metrics`` are prefixes of names, ``*`` is all."""

    metrics: list[str]
    interval_ms: int = _DEFAULT_INTERVAL_MS
    match: list[str] = []
    """``selector=regular expression``; all have to match, none is every client."""


@reads("/clusters/{cluster}/telemetry", "Clients that push metrics, with the most important ones.", Nothing)
async def telemetry(call: Call, asked: Nothing) -> TelemetryPage:
    """As brokers of Tidelog tell it that have a metrics listener."""
    require_whole_cluster(call)
    found, problems = await _clients(call)
    rows = [_row(broker, each) for broker, each in found]
    rows.sort(key=lambda each: (each.client_id, each.instance_id))
    return TelemetryPage(rows, problems)


@reads("/clusters/{cluster}/telemetry/{id}", "All metrics pushed by one client.", Nothing)
async def client_figures(call: Call, asked: Nothing) -> list[Figure]:
    """By its instance id; by name."""
    require_whole_cluster(call)
    wanted = call.path["id"]
    found, _ = await _clients(call)
    figures = {
        (metric.name, metric.labels): metric.value
        for _, client in found
        if client.client_instance_id == wanted
        for metric in client.metrics
        if metric.value is not None
    }
    if not figures:
        raise not_found(f"client {wanted} has pushed no metrics recently")
    return [Figure(*name, value) for name, value in sorted(figures.items())]


@reads("/clusters/{cluster}/client-metrics", "Client metrics subscriptions.", Nothing)
async def subscriptions(call: Call, asked: Nothing) -> list[Subscription]:
    """By name."""
    require_whole_cluster(call)
    admin = call.cluster.admin
    resources = await admin.list_config_resources([ResourceType.CLIENT_METRICS])
    if not resources:
        return []
    rows = []
    for found in await admin.describe_configs(resources):
        found.raise_for_error()
        values = {each.name: each for each in found.entries}
        interval = values.get("interval.ms")
        rows.append(
            Subscription(
                found.resource.name,
                _listed(values.get("metrics")),
                int(interval.value) if interval is not None and interval.value else _DEFAULT_INTERVAL_MS,
                _listed(values.get("match")),
            )
        )
    return sorted(rows, key=lambda each: each.name)


@changes(
    "PUT",
    "/clusters/{cluster}/client-metrics/{id}",
    "Add or change a client metrics subscription.",
    SubscriptionRequest,
    action="set client metrics",
    role=Role.ADMIN,
)
async def set_subscription(call: Call, asked: SubscriptionRequest) -> Done:
    """Clients hear of it within the interval that they have now."""
    if not asked.metrics or not all(asked.metrics):
        raise Refusal(
            'metrics must list the prefixes of the metrics to push, such as "org.apache.kafka.", or "*"'
        )
    call.details |= {"metrics": asked.metrics, "interval_ms": asked.interval_ms, "match": asked.match}
    values = {
        "metrics": ",".join(asked.metrics),
        "interval.ms": str(asked.interval_ms),
        "match": ",".join(asked.match) or None,
    }
    await _alter(call, values)
    return Done()


@changes(
    "DELETE",
    "/clusters/{cluster}/client-metrics/{id}",
    "Remove a client metrics subscription.",
    Nothing,
    action="remove client metrics",
    role=Role.ADMIN,
)
async def remove_subscription(call: Call, asked: Nothing) -> Done:
    """It is gone with its last config."""
    known = await call.cluster.admin.list_config_resources([ResourceType.CLIENT_METRICS])
    if call.path["id"] not in {each.name for each in known}:
        raise not_found(f"subscription {call.path['id']} does not exist")
    await _alter(call, dict.fromkeys(_OPTIONS))
    return Done()


async def _alter(call: Call, values: dict[str, str | None]) -> None:
    resource = ConfigResource(ResourceType.CLIENT_METRICS, call.path["id"])
    raise_errors(await call.cluster.admin.alter_configs({resource: alterations(values)}))


async def _clients(call: Call) -> tuple[list[tuple[int, _Client]], list[str]]:
    pages, problems = await call.cluster.told("/telemetry")
    found: list[tuple[int, _Client]] = []
    for broker, page in pages.items():
        try:
            told = msgspec.convert(page, _Page)
        except msgspec.ValidationError as error:
            problems = [*problems, f"cannot read the client metrics of broker {broker}: {error}"]
            continue
        found += [(broker, each) for each in told.clients]
        if told.left_out:
            problems = [*problems, f"broker {broker} omitted {told.left_out} more clients"]
    return found, problems


def _row(broker: int, client: _Client) -> PushingClient:
    figures: dict[str, float] = {}
    for name, value in _headlines(client):
        if name not in figures:
            figures[name] = value
        else:
            figures[name] = figures[name] + value if name.endswith(_ADDED_UP) else max(figures[name], value)
    names = {each.name for each in client.metrics}
    is_producer, is_consumer = (
        any(each.startswith(f"{_PREFIX}{kind}_") for each in names) for kind in ("producer", "consumer")
    )
    return PushingClient(
        broker,
        client.client_instance_id,
        client.client_id,
        f"{client.client_software_name} {client.client_software_version}".strip(),
        client.client_source_address,
        "producer" if is_producer else "consumer" if is_consumer else "other",
        client.about,
        client.pushes,
        client.last_push_ms_ago,
        len(client.metrics),
        figures,
    )


def _headlines(client: _Client) -> Iterator[tuple[str, float]]:
    for each in client.metrics:
        name = each.name.removeprefix(_PREFIX)
        if name in _HEADLINES and each.value is not None:
            yield name, each.value


def _listed(entry: ConfigEntry | None) -> list[str]:
    return [each.strip() for each in (entry.value or "").split(",") if each.strip()] if entry else []


ENDPOINTS = (telemetry, client_figures, subscriptions, set_subscription, remove_subscription)
