"""What a client has done, in numbers, under the names of Kafka's metrics where there are counterparts.

Hot paths add to plain attributes (``Counter.value``, :class:`Traffic`) or call ``Latency.record``;
everything else, rates and averages included, is worked out when somebody calls ``Metrics.snapshot``, so
that it costs nothing when nobody does. Not thread-safe: a client's figures belong to its loop.

    -total    since the client was made -rate     per second, -avg, -max and -p99: since the snapshot before
    (at least a second ago), or the beginning

A name with a tag is written ``request-total{node-id=node-1}``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

_MIN_WINDOW_S = 1.0
_BUCKETS = 48

Gauge = Callable[[], float]


class Counter:
    """A number that grows; hot paths add to ``value`` directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount


class Latency:
    """Durations, or sizes: how many, how long in all, the longest, and a histogram by powers of two."""

    __slots__ = ("buckets", "count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0
        self.buckets = [0] * _BUCKETS

    def record(self, value: float) -> None:
        self.count += 1
        self.total += value
        if value > self.longest:
            self.longest = value
        self.buckets[min(int(value * 1024).bit_length(), _BUCKETS - 1)] += 1


class Traffic:
    """What went to and came from one broker, over all of its connections."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections_closed",
        "connections_opened",
        "failed_authentications",
        "latency_ms",
        "requests",
        "responses",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.connections_opened = 0
        self.connections_closed = 0
        self.failed_authentications = 0
        self.latency_ms = Latency()


class _Window:
    """What a latency said at the beginning of the window; the rest is what has happened since."""

    def __init__(self, source: Latency) -> None:
        self.source = source
        self.count = 0
        self.total = 0.0
        self.buckets = [0] * _BUCKETS

    def figures(self) -> dict[str, float]:
        count = self.source.count - self.count
        if not count:
            return {"avg": 0.0, "max": 0.0, "p99": 0.0}
        recent = [now - before for now, before in zip(self.source.buckets, self.buckets, strict=True)]
        return {
            "avg": (self.source.total - self.total) / count,
            "max": self.source.longest,
            "p99": min(_quantile(recent, count, 0.99), self.source.longest),
        }

    def restart(self) -> None:
        self.count, self.total = self.source.count, self.source.total
        self.buckets = list(self.source.buckets)
        self.source.longest = 0.0


class Metrics:
    """The figures of one client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._gauges: dict[str, Gauge] = {}
        self._totals: dict[str, tuple[Gauge, bool]] = {}
        self._latencies: dict[str, _Window] = {}
        self._parts: list[Callable[[], Iterable[tuple[str, float]]]] = []
        self._began = clock()
        self._before: dict[str, float] = {}

    def counter(self, name: str, *, rate: bool = True) -> Counter:
        """A counter shown as ``name-total``, and ``name-rate`` where asked for."""
        counter = Counter()
        self.total(name, lambda: counter.value, rate=rate)
        return counter

    def total(self, name: str, read: Gauge, *, rate: bool = True) -> None:
        """A number that grows and is kept elsewhere."""
        self._totals[name] = (read, rate)

    def gauge(self, name: str, read: Gauge) -> None:
        """A number that goes up and down, read when it is asked for."""
        self._gauges[name] = read

    def latency(self, name: str) -> Latency:
        """Durations shown as ``name-avg``, ``name-max`` and ``name-p99``, in the unit they are given in."""
        latency = Latency()
        self._latencies[name] = _Window(latency)
        return latency

    def part(self, read: Callable[[], Iterable[tuple[str, float]]]) -> None:
        """More figures, whose names are not known beforehand (per broker, per topic)."""
        self._parts.append(read)

    def snapshot(self) -> dict[str, float]:
        """All figures now, by name."""
        now = self._clock()
        elapsed = now - self._began
        found: dict[str, float] = {name: float(read()) for name, read in self._gauges.items()}
        for name, (read, rate) in self._totals.items():
            value = float(read())
            found[f"{name}-total"] = value
            if rate:
                grown = value - self._before.get(name, 0.0)
                found[f"{name}-rate"] = grown / elapsed if elapsed > 0 else 0.0
        for name, window in self._latencies.items():
            found.update((f"{name}-{key}", value) for key, value in window.figures().items())
        for part in self._parts:
            found.update(part())
        if elapsed >= _MIN_WINDOW_S:
            self._restart(now)
        return found

    def _restart(self, now: float) -> None:
        self._began = now
        self._before = {name: float(read()) for name, (read, _) in self._totals.items()}
        for window in self._latencies.values():
            window.restart()


def tagged(name: str, **tags: object) -> str:
    """``tagged("request-total", node_id="node-1")``: the name of one of several figures of a kind."""
    inner = ",".join(f"{key.replace('_', '-')}={value}" for key, value in tags.items())
    return f"{name}{{{inner}}}"


def network_metrics(metrics: Metrics, traffic: Callable[[], Mapping[str, Traffic]]) -> None:
    """The figures of a client's connections; ``traffic`` tells them by broker (``node-1``)."""

    def of_all(attribute: str) -> Gauge:
        return lambda: sum(getattr(each, attribute) for each in traffic().values())

    metrics.total("request", of_all("requests"))
    metrics.total("response", of_all("responses"))
    metrics.total("outgoing-byte", of_all("bytes_sent"))
    metrics.total("incoming-byte", of_all("bytes_received"))
    metrics.total("connection-creation", of_all("connections_opened"))
    metrics.total("connection-close", of_all("connections_closed"))
    metrics.total("failed-authentication", of_all("failed_authentications"))
    metrics.gauge("connection-count", lambda: sum(map(_open_connections, traffic().values())))

    def by_node() -> Iterable[tuple[str, float]]:
        for node, each in traffic().items():
            yield tagged("request-total", node_id=node), float(each.requests)
            yield tagged("response-total", node_id=node), float(each.responses)
            yield tagged("outgoing-byte-total", node_id=node), float(each.bytes_sent)
            yield tagged("incoming-byte-total", node_id=node), float(each.bytes_received)
            latency = each.latency_ms
            average = latency.total / latency.count if latency.count else 0.0
            yield tagged("request-latency-avg", node_id=node), average
            yield tagged("request-latency-max", node_id=node), latency.longest

    metrics.part(by_node)


def _open_connections(traffic: Traffic) -> int:
    return traffic.connections_opened - traffic.connections_closed


def _quantile(buckets: list[int], count: int, share: float) -> float:
    """The upper edge of the bucket in which the quantile lies."""
    wanted = share * count
    seen = 0
    for number, inside in enumerate(buckets):
        seen += inside
        if seen >= wanted:
            return float(1 << number) / 1024
    return 0.0
