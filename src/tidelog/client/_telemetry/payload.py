"""What a client pushes: its figures in OTLP, under KIP-714's names.

``request-latency-avg`` of group ``producer-node-metrics`` is
``org.apache.kafka.producer.node.request.latency.avg``; totals are sums, everything else is a gauge.

Decision: all figures of a push are one resource and figures of one name one metric with several points, where
Java's clients write a resource for every point; it is the same to a reader of OTLP and a third of the bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tidelog.client._telemetry.subscription import Subscription
from tidelog.client.metrics import Kind, MetricName, Metrics
from tidelog.metrics import otlp
from tidelog.records.compression import Codec, compress

_DOMAIN = "org.apache.kafka"
# The broker knows it, and says it to whoever gets the figures.
_HIDDEN_TAGS = frozenset({"client-id"})


class Payloads:
    """Makes one push after another of a client's figures; ``labels`` say who it is."""

    def __init__(self, metrics: Metrics, labels: Callable[[], Mapping[str, str]]) -> None:
        self._metrics = metrics
        self._labels = labels
        self._ledger = Ledger()

    def next(self, wanted: Subscription) -> tuple[Codec, bytes]:
        """The figures that are ``wanted``, in the codec that the broker likes best."""
        codec = next(iter(wanted.codecs), Codec.NONE)
        return codec, compress(codec, otlp.encode([self._resource(wanted)]))

    def forget(self) -> None:
        """Sums are told in another way from now on."""
        self._ledger.forget()

    def _resource(self, wanted: Subscription) -> otlp.ResourceMetrics:
        now_ns = time.time_ns()
        found: dict[str, otlp.Metric] = {}
        for metric, value in self._metrics.measured():
            name = telemetry_name(metric.name)
            if not wanted.wants(name):
                continue
            is_sum = metric.kind is Kind.TOTAL
            each = found.get(name)
            if each is None:
                temporality = otlp.Temporality.DELTA if wanted.delta else otlp.Temporality.CUMULATIVE
                data = otlp.Sum([], temporality) if is_sum else otlp.Gauge([])
                each = found[name] = otlp.Metric(name, data)
            start_ns = 0
            if is_sum:
                value, start_ns = self._ledger.point(metric.name, value, now_ns, delta=wanted.delta)
            assert isinstance(each.data, otlp.Sum | otlp.Gauge)
            each.data.points.append(otlp.NumberPoint(value, _attributes(metric.name), now_ns, start_ns))
        return otlp.ResourceMetrics([otlp.ScopeMetrics(list(found.values()))], dict(self._labels()))


class Ledger:
    """What was pushed of sums, and since when they are counted."""

    def __init__(self) -> None:
        self._last: dict[MetricName, tuple[float, int]] = {}
        self._began_ns = time.time_ns()

    def point(self, name: MetricName, value: float, now_ns: int, *, delta: bool) -> tuple[float, int]:
        """The value to push of a sum, and since when it counts."""
        if not delta:
            return value, self._began_ns
        before, since_ns = self._last.get(name, (0.0, self._began_ns))
        self._last[name] = (value, now_ns)
        # Something else may have taken the name since (a partition that was lost and came back).
        return (value - before if value >= before else value), since_ns

    def forget(self) -> None:
        """Begin anew: sums are told in another way from now on."""
        self._last.clear()


def telemetry_name(name: MetricName) -> str:
    """KIP-714's name of a figure."""
    group = name.group.lower().replace("-", ".").replace(".metrics", "")
    return f"{_DOMAIN}.{group}.{name.name.lower().replace('-', '.')}"


def _attributes(name: MetricName) -> dict[str, otlp.AttributeValue]:
    return {
        key.lower().replace("-", "_"): value for key, value in name.tags.items() if key not in _HIDDEN_TAGS
    }
