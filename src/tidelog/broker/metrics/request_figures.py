"""Figures of requests and connections, and of the loop that serves them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.metrics import catalog, request_times
from tidelog.metrics.connection_counts import ConnectionCounts
from tidelog.metrics.histogram import Histogram, Recent, cumulative_us, quantiles
from tidelog.metrics.metric import Metric
from tidelog.metrics.page import Page, Sample, labels
from tidelog.metrics.request_errors import RequestErrors
from tidelog.metrics.request_times import COUNT_AT, FOLLOWER_FETCH, MAX_KEY, MAX_VERSION, SUM_AT, RequestTimes
from tidelog.wire.api import API_TABLE, ApiKey

if TYPE_CHECKING:
    from tidelog.broker.metrics.observed import ObservedBroker

_TICK_S = 0.5
_MINUTE_TICKS = 120
_WINDOW_S = 150.0
_RATE_WINDOW_S = 60.0
_CONTROL_PLANE = "control plane"
_MOST_SOFTWARE = 200
_FETCH = int(ApiKey.FETCH)
_FETCHES = ("FetchConsumer", "FetchFollower")
_PARTS: tuple[tuple[int, Metric, Metric, float], ...] = (
    (request_times.TOTAL, catalog.TOTAL_TIME, catalog.TOTAL_TIME_COUNT, 1000),
    (request_times.QUEUE, catalog.QUEUE_TIME, catalog.QUEUE_TIME_COUNT, 1000),
    (request_times.LOCAL, catalog.LOCAL_TIME, catalog.LOCAL_TIME_COUNT, 1000),
    (request_times.REMOTE, catalog.REMOTE_TIME, catalog.REMOTE_TIME_COUNT, 1000),
    (request_times.THROTTLE, catalog.THROTTLE_TIME, catalog.THROTTLE_TIME_COUNT, 1000),
    (request_times.RESPONSE_QUEUE, catalog.RESPONSE_QUEUE_TIME, catalog.RESPONSE_QUEUE_TIME_COUNT, 1000),
    (request_times.SEND, catalog.SEND_TIME, catalog.SEND_TIME_COUNT, 1000),
    (request_times.BYTES, catalog.REQUEST_BYTES, catalog.REQUEST_BYTES_COUNT, 1),
)


class LoopTicks:
    """Looks twice a second how late the loop is, and how much of the time it works."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lag_us = Histogram()
        self._loop = loop
        self._cpu_clock = time.pthread_getcpuclockid(threading.get_ident())
        self._began = time.monotonic(), time.clock_gettime(self._cpu_clock)
        self._idle_ns = 0
        self._seen: deque[tuple[float, float]] = deque(maxlen=_MINUTE_TICKS)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look; called on the loop."""
        self._look(time.monotonic())

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, due_s: float) -> None:
        now_s = time.monotonic()
        self.lag_us.add((now_s - due_s) * 1_000_000)
        self._seen.append((now_s, time.clock_gettime(self._cpu_clock)))
        # A loop may count in whole milliseconds, and ring a moment early.
        self._timer = self._loop.call_later(_TICK_S, self._look, now_s + _TICK_S)

    @property
    def idle_ns(self) -> int:
        """How long the loop had nothing to do since the first look."""
        began_s, began_cpu_s = self._began
        passed_s = time.monotonic() - began_s
        idle_ns = int((passed_s - (time.clock_gettime(self._cpu_clock) - began_cpu_s)) * 1e9)
        # Two clocks, read one after the other: while there is no pause it may seem to have become less.
        self._idle_ns = max(self._idle_ns, idle_ns)
        return self._idle_ns

    @property
    def idle(self) -> float:
        """The part of the last minute in which the loop had nothing to do."""
        (first_s, first_cpu_s), (last_s, last_cpu_s) = self._seen[0], self._seen[-1]
        if last_s <= first_s:
            return 1.0
        return min(max(1 - (last_cpu_s - first_cpu_s) / (last_s - first_s), 0.0), 1.0)


Counts = tuple[float, ...]
"""Counters that are read together."""


class Rates:
    """How fast counters grew in the last minute, as far as they were noted."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, Counts]]] = deque()

    def note(self, now_s: float, counts: dict[str, Counts]) -> None:
        """Keep ``counts`` to compare later ones with, at most once a second."""
        if self._seen and now_s - self._seen[-1][0] < 1.0:
            return
        self._seen.append((now_s, counts))
        while len(self._seen) > 1 and now_s - self._seen[1][0] >= _RATE_WINDOW_S:
            self._seen.popleft()

    def of(self, name: str, now_s: float, counts: Counts) -> Counts:
        """By how much each of ``counts`` grew per second."""
        if not self._seen or now_s <= self._seen[0][0]:
            return (0.0,) * len(counts)
        began_s, before = self._seen[0]
        first = before.get(name) or (0,) * len(counts)
        return tuple((now - then) / (now_s - began_s) for now, then in zip(counts, first, strict=True))


class RequestFigures:
    """Reads what was counted of requests and connections."""

    def __init__(self, broker: ObservedBroker, times: RequestTimes, errors: RequestErrors) -> None:
        self._broker = broker
        self._times = times
        self._errors = errors
        self._none: dict[str, int] = {}
        """By API how often it was told that there was no error."""
        self._recent = Recent()
        self._recent_since_s = time.monotonic()
        self.ticks = LoopTicks(asyncio.get_running_loop())
        self._rates = Rates()
        self._traffic_rates = Rates()
        self._busy_rates = Rates()

    def look(self) -> None:
        """Called every five seconds."""
        now_s = time.monotonic()
        self._rates.note(now_s, _counts_of(self._broker.network.counts))
        busy = self._broker.network.apart_busy
        if busy is not None:
            self._busy_rates.note(now_s, {_CONTROL_PLANE: (busy.total_s,)})
        if now_s - self._recent_since_s >= _WINDOW_S:
            self._recent_since_s = now_s
            rows: dict[object, Sequence[int]] = {}
            for key in self._keys():
                for part in range(len(request_times.PARTS)):
                    rows[key, part] = self._times.row(key, part)
            self._recent.turn(rows)

    def _keys(self) -> list[int]:
        return [key for key in range(MAX_KEY + 1) if self._times.row(key, request_times.BYTES)[COUNT_AT]]

    def lately(self) -> Iterator[tuple[str, int, list[list[int]]]]:
        """By API how many requests there were, and the rows of all parts for the last minutes."""
        for key in self._keys():
            rows = [self._times.row(key, part) for part in range(len(request_times.PARTS))]
            lately = [self._recent.of((key, part), row) for part, row in enumerate(rows)]
            yield _name_of(key), rows[request_times.BYTES][COUNT_AT], lately

    def render(self, page: Page) -> Iterator[str]:
        """The families of requests, of connections and of the loop."""
        rows: list[tuple[str, list[list[int]], list[list[int]]]] = []
        by_key: dict[int, tuple[list[list[int]], list[list[int]]]] = {}
        for key in self._keys():
            since_start = [list(self._times.row(key, part)) for part in range(len(request_times.PARTS))]
            lately = [self._recent.of((key, part), row) for part, row in enumerate(since_start)]
            by_key[key] = since_start, lately
            rows.append((_name_of(key), since_start, lately))
            yield ""
        fetches = [by_key[key] for key in (_FETCH, FOLLOWER_FETCH) if key in by_key]
        if fetches:
            # As Kafka: consumers, followers, and both together.
            rows.append(("Fetch", _sum([each[0] for each in fetches]), _sum([each[1] for each in fetches])))
        yield from page.family(catalog.REQUESTS, self._versions())
        yield from page.family(catalog.REQUEST_ERRORS, self._error_samples(rows))
        for part, times, count, unit in _PARTS:
            yield from page.family(times, _quantile_samples(rows, part, unit))
            yield from page.family(
                count,
                ((labels(request=name), since[request_times.BYTES][COUNT_AT]) for name, since, _ in rows),
            )
        yield from page.histogram(
            catalog.REQUEST_SECONDS,
            (
                (
                    labels(request=name),
                    cumulative_us(since[request_times.TOTAL]),
                    since[request_times.TOTAL][SUM_AT] / 1_000_000,
                    since[request_times.TOTAL][COUNT_AT],
                )
                for name, since, _ in rows
                if name != "Fetch"
            ),
        )
        yield from self._loop(page)
        yield from self._connections(page)

    def _versions(self) -> Iterator[Sample]:
        fetches: Counter[int] = Counter()
        for key in self._keys():
            start = key * (MAX_VERSION + 1)
            for version, count in enumerate(self._times.versions[start : start + MAX_VERSION + 1]):
                if count:
                    yield labels(request=_name_of(key), version=version), count
                    if key in (_FETCH, FOLLOWER_FETCH):
                        fetches[version] += count
        for version, count in sorted(fetches.items()):
            yield labels(request="Fetch", version=version), count

    def _error_samples(self, rows: list[tuple[str, list[list[int]], list[list[int]]]]) -> Iterator[Sample]:
        for name, since, _ in rows:
            if name in _FETCHES:
                # Told of both together, as in Kafka.
                continue
            found = dict(self._errors.by_request.get(name, {}))
            # Nobody looks into answers of produce and fetch that have no error, nor into those of a cache:
            # each of them is one NONE.
            others = since[request_times.TOTAL][COUNT_AT] - self._errors.counted[name]
            none = found.pop("NONE", 0) + max(others, 0)
            # An answer is counted a moment before it is out; a counter must not fall for that long.
            self._none[name] = max(none, self._none.get(name, 0))
            yield labels(request=name, error="NONE"), self._none[name]
            for error, count in found.items():
                yield labels(request=name, error=error), count

    def _loop(self, page: Page) -> Iterator[str]:
        yield from page.family(catalog.NETWORK_IDLE, [("", self.ticks.idle)])
        yield from page.family(catalog.HANDLER_IDLE, [("", self.ticks.idle)])
        yield from page.family(catalog.HANDLER_IDLE_NS, [("", self.ticks.idle_ns)])
        busy = self._broker.network.apart_busy
        if busy is not None:
            (busy_part,) = self._busy_rates.of(_CONTROL_PLANE, time.monotonic(), (busy.total_s,))
            idle = min(max(1 - busy_part, 0.0), 1.0)
            yield from page.family(catalog.CONTROL_NETWORK_IDLE, [("", idle)])
            yield from page.family(catalog.CONTROL_HANDLER_IDLE, [("", idle)])
        lag = self.ticks.lag_us.row
        yield from page.histogram(
            catalog.LOOP_LAG, [("", cumulative_us(lag), lag[SUM_AT] / 1_000_000, lag[COUNT_AT])]
        )
        watchdog = self._broker.loop_watchdog
        if watchdog is not None:
            yield from page.family(catalog.LOOP_HOLD_UPS, [("", watchdog.count)])
            yield from page.family(catalog.LOOP_HELD_UP, [("", watchdog.total_ms / 1000)])

    def _connections(self, page: Page) -> Iterator[str]:
        open_now: Counter[str] = Counter()
        software: Counter[tuple[str, str, str]] = Counter()
        ciphers: Counter[tuple[str, str, str]] = Counter()
        waiting = unsent = 0
        counts = self._broker.network.counts
        # Before the open connections are read: one that closes meanwhile counts once.
        traffic = {
            name: [each.past_requests, each.past_received_bytes, each.past_sent_bytes]
            for name, each in counts.items()
        }
        for number, connection in enumerate(self._broker.network.all_connections(), 1):
            open_now[connection.listener] += 1
            name, version = connection.client_software or ("unknown", "unknown")
            software[name, version, connection.listener] += 1
            cipher = connection.cipher
            if cipher is not None:
                ciphers[(*cipher, connection.listener)] += 1
            sums = traffic.setdefault(connection.listener, [0, 0, 0])
            sums[2] += connection.sent_bytes
            if connection.times is not None:
                sums[0] += connection.times.requests
                sums[1] += connection.times.received_bytes
            waiting += connection.has_waiting_requests
            unsent += connection.has_unsent_answers
            if not number % 200:
                yield ""
        yield from page.family(catalog.REQUEST_QUEUE_SIZE, [("", waiting)])
        yield from page.family(catalog.RESPONSE_QUEUE_SIZE, [("", unsent)])
        now_s = time.monotonic()
        where = {name: labels(listener=name, networkProcessor=0) for name in counts}
        rates = {name: self._rates.of(name, now_s, each) for name, each in _counts_of(counts).items()}
        totals: dict[str, Counts] = {name: tuple(sums) for name, sums in traffic.items()}
        traffic_rates = {name: self._traffic_rates.of(name, now_s, each) for name, each in totals.items()}
        self._traffic_rates.note(now_s, totals)
        latencies = {name: each.reauthentication.read(now_s) for name, each in counts.items()}
        families: tuple[tuple[Metric, dict[str, float]], ...] = (
            (catalog.CONNECTIONS, {name: open_now[name] for name in counts}),
            (catalog.CREATIONS, {name: each.created for name, each in counts.items()}),
            (catalog.CREATION_RATE, _column(rates, 0)),
            (catalog.CLOSES, {name: each.closed for name, each in counts.items()}),
            (catalog.CLOSE_RATE, _column(rates, 1)),
            (catalog.REQUESTS_RECEIVED, _column(totals, 0)),
            (catalog.REQUEST_RATE, _column(traffic_rates, 0)),
            (catalog.INCOMING_BYTES, _column(totals, 1)),
            (catalog.INCOMING_RATE, _column(traffic_rates, 1)),
            (catalog.OUTGOING_BYTES, _column(totals, 2)),
            (catalog.OUTGOING_RATE, _column(traffic_rates, 2)),
            (catalog.AUTH_SUCCEEDED, {name: each.succeeded for name, each in counts.items()}),
            (catalog.AUTH_FAILED, {name: each.failed for name, each in counts.items()}),
            (catalog.REAUTH_SUCCEEDED, {name: each.succeeded_again for name, each in counts.items()}),
            (catalog.REAUTH_RATE, _column(rates, 2)),
            (catalog.REAUTH_FAILED, {name: each.failed_again for name, each in counts.items()}),
            (catalog.REAUTH_FAILED_RATE, _column(rates, 3)),
            (catalog.REAUTH_LATENCY_AVG, _column(latencies, 0)),
            (catalog.REAUTH_LATENCY_MAX, _column(latencies, 1)),
            (catalog.EXPIRED_KILLED, {name: each.expired for name, each in counts.items()}),
        )
        for metric, values in families:
            yield from page.family(metric, ((where[name], value) for name, value in values.items()))
        yield from page.family(catalog.TLS_INFO, _cipher_samples(ciphers))
        yield from page.family(catalog.SOFTWARE, _software_samples(software))


def _counts_of(counts: Mapping[str, ConnectionCounts]) -> dict[str, Counts]:
    return {
        name: (each.created, each.closed, each.succeeded_again, each.failed_again)
        for name, each in counts.items()
    }


def _column(rows: Mapping[str, Counts], place: int) -> dict[str, float]:
    return {name: row[place] for name, row in rows.items()}


def _cipher_samples(ciphers: Counter[tuple[str, str, str]]) -> Iterator[Sample]:
    for (cipher, protocol, listener), count in ciphers.items():
        yield labels(cipher=cipher, protocol=protocol, listener=listener, networkProcessor=0), count


def _software_samples(software: Counter[tuple[str, str, str]]) -> Iterator[Sample]:
    """The commonest; clients may call themselves whatever they like."""
    others: Counter[str] = Counter()
    for number, ((name, version, listener), count) in enumerate(software.most_common()):
        if number < _MOST_SOFTWARE:
            text = labels(
                clientSoftwareName=name, clientSoftwareVersion=version, listener=listener, networkProcessor=0
            )
            yield text, count
        else:
            others[listener] += count
    for listener, count in others.items():
        yield (
            labels(
                clientSoftwareName="other", clientSoftwareVersion="", listener=listener, networkProcessor=0
            ),
            count,
        )


def _quantile_samples(
    rows: list[tuple[str, list[list[int]], list[list[int]]]], part: int, unit: float
) -> Iterator[Sample]:
    for name, _, lately in rows:
        # Parts that took no time are not counted one by one.
        count = lately[request_times.BYTES][COUNT_AT]
        for quantile, value in quantiles(lately[part], count=count):
            yield labels(request=name, quantile=quantile), value / unit


def _sum(rows: list[list[list[int]]]) -> list[list[int]]:
    return [[sum(cells) for cells in zip(*parts, strict=True)] for parts in zip(*rows, strict=True)]


def _name_of(key: int) -> str:
    if key == _FETCH:
        return "FetchConsumer"
    if key == FOLLOWER_FETCH:
        return "FetchFollower"
    return API_TABLE[ApiKey(key)].name if key in ApiKey.__members__.values() else str(key)
