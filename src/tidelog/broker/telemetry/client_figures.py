"""What clients have pushed of themselves, as far as it is kept: the latest figures, for some minutes.

A figure is known by the name and the labels that it has on the page ``/metrics``. OTLP's names become
Prometheus': ``org.apache.kafka.producer.record.send.total`` is ``kafka_client_producer_record_send_total``.
All begin with ``kafka_client_``, which no figure of a broker does, whatever a client calls its own. Sums that
only grow are counters and end in ``_total``; pushes bring what was added since the last one, which is added
up here. Of histograms and summaries there are ``_count`` and ``_sum``.

Invariant: whatever clients push, no more than ``max_series`` figures are kept, ``SERIES_OF_A_CLIENT`` of one
of them, with names, labels and values of bounded length; those who are there keep their places, what finds
none is counted in ``left_out``, and no two figures of a page have the same name and labels.

Filled by ``client_telemetry``; read by ``broker/metrics``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.clock import Clock
from tidelog.ids import Uuid, uuid_to_text
from tidelog.metrics.catalog import CLIENT_INFO
from tidelog.metrics.metric import Kind, Metric
from tidelog.metrics.otlp import (
    Attributes,
    Data,
    Gauge,
    NumberPoint,
    ResourceMetrics,
    Sum,
    Summary,
    Temporality,
)
from tidelog.metrics.page import escaped

PREFIX = "kafka_client_"
SERIES_OF_A_CLIENT = 2000
KEPT_MS = 300_000.0
"""How long figures are kept of a client that is silent, unless it pushes even less often."""

_OF_KAFKA = "org.apache.kafka."
_UNUSABLE = re.compile(r"[^a-z0-9_]+")
_LONGEST_NAME = 160
_LONGEST_VALUE = 128
_MOST_LABELS = 12
_MOST_CLIENTS = 16384
_OWN_ENDINGS = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
_OWN_LABELS = frozenset(
    (
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "le",
        "quantile",
    )
)


class Client(NamedTuple):
    """Who has pushed."""

    instance_id: Uuid
    client_id: str
    software_name: str
    software_version: str
    address: str

    @property
    def labels(self) -> str:
        """What all of its figures are labelled with, without the brackets."""
        named = {
            "client_id": self.client_id,
            "client_instance_id": uuid_to_text(self.instance_id),
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
        }
        return ",".join(f'{name}="{escaped(value[:_LONGEST_VALUE])}"' for name, value in named.items())


class SeriesKey(NamedTuple):
    """A figure of a client."""

    name: str
    labels: str
    """Those of the figure itself, without the brackets."""


class ClientFigures:
    """The figures of one client."""

    __slots__ = ("client", "keep_ms", "label_text", "pushed_at_ms", "pushes", "resource", "series")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.label_text = client.labels
        self.series: dict[SeriesKey, int | float] = {}
        self.resource: dict[str, str] = {}
        """What the client says of itself besides: its rack, its group, its transactional id."""
        self.pushed_at_ms = 0.0
        self.pushes = 0
        self.keep_ms = KEPT_MS


class AllFigures:
    """The figures of all clients of this broker."""

    def __init__(self, clock: Clock, max_series: int) -> None:
        self._clock = clock
        self._max_series = max_series
        self._clients: dict[Uuid, ClientFigures] = {}
        self.series = 0
        """How many there are."""
        self.left_out = 0
        """How many found no room, or could not be used, one by one and push by push."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ClientFigures]:
        """Everybody who has pushed of late."""
        self.forget_silent()
        return iter(list(self._clients.values()))

    def take(self, client: Client, interval_ms: int, found: list[ResourceMetrics]) -> Iterator[None]:
        """Keep what a client has pushed; yields where others may have their turn."""
        figures = self._clients.get(client.instance_id)
        if figures is None or figures.client != client:
            self._forget(client.instance_id)
            self.forget_silent()
            if len(self._clients) >= _MOST_CLIENTS:
                self.left_out += 1
                return
            figures = self._clients[client.instance_id] = ClientFigures(client)
        figures.pushed_at_ms = self._clock.monotonic_ms()
        figures.keep_ms = max(KEPT_MS, 3.0 * interval_ms)
        figures.pushes += 1
        for resource in found:
            figures.resource = dict(_labels_of(resource.attributes))
            for scope in resource.scopes:
                for metric in scope.metrics:
                    name = family_name(metric.name)
                    if name is None or metric.data is None:
                        self.left_out += 1
                    else:
                        yield from self._take_metric(figures, name, metric.data)
                    yield

    def _take_metric(self, figures: ClientFigures, name: str, data: Data) -> Iterator[None]:
        if isinstance(data, Gauge):
            for point in data.points:
                self._put(figures, _gauge_name(name), point.attributes, point.value, adds=False)
                yield
        elif isinstance(data, Sum):
            yield from self._take_sum(figures, name, data)
        else:
            adds = not isinstance(data, Summary) and data.temporality is Temporality.DELTA
            for distribution in data.points:
                for ending, value in (("_count", distribution.count), ("_sum", distribution.sum)):
                    self._put(figures, name + ending, distribution.attributes, value, adds=adds)
                yield

    def _take_sum(self, figures: ClientFigures, name: str, data: Sum) -> Iterator[None]:
        full_name = name.removesuffix("_total") + "_total" if data.is_monotonic else _gauge_name(name)
        for point in data.points:
            if data.is_monotonic and not _may_be_added(point):
                self.left_out += 1
            else:
                adds = data.temporality is Temporality.DELTA
                self._put(figures, full_name, point.attributes, point.value, adds=adds)
            yield

    def _put(
        self,
        figures: ClientFigures,
        name: str,
        attributes: Attributes,
        value: int | float | None,
        *,
        adds: bool,
    ) -> None:
        if value is None:
            return
        text = ",".join(f'{label}="{escaped(value)}"' for label, value in _labels_of(attributes))
        key = SeriesKey(name, text)
        known = figures.series.get(key)
        if known is None:
            if self.series >= self._max_series or len(figures.series) >= SERIES_OF_A_CLIENT:
                self.left_out += 1
                return
            self.series += 1
        figures.series[key] = known + value if adds and known is not None else value

    def forget_silent(self) -> None:
        """Drop those of whom nothing has come for long."""
        now_ms = self._clock.monotonic_ms()
        silent = [
            instance_id
            for instance_id, figures in self._clients.items()
            if now_ms - figures.pushed_at_ms > figures.keep_ms
        ]
        for instance_id in silent:
            self._forget(instance_id)

    def _forget(self, instance_id: Uuid) -> None:
        figures = self._clients.pop(instance_id, None)
        if figures is not None:
            self.series -= len(figures.series)


def families(everybody: AllFigures) -> Iterator[Family | None]:
    """All figures by name, as the page wants them; None where others may have their turn."""
    by_name: dict[str, Family] = {}
    for figures in everybody:
        yield None
        for number, (key, value) in enumerate(list(figures.series.items()), 1):
            family = by_name.get(key.name)
            if family is None:
                family = by_name[key.name] = Family(_metric_of(key.name), [])
            comma = "," if key.labels else ""
            family.samples.append((f"{{{figures.label_text}{comma}{key.labels}}}", value))
            if not number % 100:
                yield None
    for name in sorted(by_name):
        # OpenMetrics calls the family of a counter x_total x: what else is called so is left out.
        if f"{name}_total" not in by_name and name.removesuffix("_total") != CLIENT_INFO.name:
            yield by_name[name]


class Family(NamedTuple):
    """A name with its series."""

    metric: Metric
    samples: list[tuple[str, float]]


def _metric_of(name: str) -> Metric:
    kind: Kind = "counter" if name.endswith(("_total", "_count")) else "gauge"
    text = f"As clients have pushed it: {name.removeprefix(PREFIX).replace('_', '.')}."
    return Metric(name, kind, (), text, name)


def family_name(name: str) -> str | None:
    """A figure's name on the page; None if nothing usable is left of it."""
    if len(name) > _LONGEST_NAME:
        return None
    usable = _UNUSABLE.sub("_", name.removeprefix(_OF_KAFKA).lower()).strip("_")
    return PREFIX + usable if usable else None


def _gauge_name(name: str) -> str:
    # Names with these endings are those of counters and their like: no family may be both.
    return f"{name}_value" if name.endswith(_OWN_ENDINGS) else name


def _may_be_added(point: NumberPoint) -> bool:
    return point.value is not None and math.isfinite(point.value) and point.value >= 0


def _labels_of(attributes: Attributes) -> Iterator[tuple[str, str]]:
    """Attributes as labels, sorted, each name once; those that are ours are not theirs to set."""
    found: dict[str, str] = {}
    for name in sorted(attributes):
        value = attributes[name]
        label = _UNUSABLE.sub("_", name[:_LONGEST_VALUE].lower()).strip("_")
        if not label or label in _OWN_LABELS or isinstance(value, tuple | Mapping | bytes):
            continue
        if label[0].isdigit():
            label = f"_{label}"
        if value is not None and len(found) < _MOST_LABELS:
            found.setdefault(label, _text(value))
    return iter(found.items())


def _text(value: str | bool | int | float) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:_LONGEST_VALUE]
