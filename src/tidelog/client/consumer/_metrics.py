"""A consumer's figures, by the names and groups that Kafka gives them.

The fetcher counts per answer, the collector per take from one partition's answer, a consumer per poll;
nothing is counted per record. What one answer brought is told (``fetch-size``, ``records-per-request``) once
all of it was handed out, as in Java's client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from tidelog.client.metrics import (
    Family,
    Kind,
    Latency,
    LowStat,
    Metrics,
    Stat,
    Tags,
    gauge,
    meter,
    spread,
    total,
)
from tidelog.client.subscription._partition_state import PartitionState
from tidelog.client.subscription._subscription_state import SubscriptionState

_NS = 1e9
_NO_REPLICA = -1
_NEVER = -1.0


class TopicFetches:
    """What was handed out of one topic, or of all."""

    __slots__ = ("fetch_bytes", "records", "records_per_request")

    def __init__(self) -> None:
        self.records = 0
        self.fetch_bytes = Stat()
        """Bytes of records in one answer, once they are handed out."""
        self.records_per_request = Stat()


class FetchStats:
    """What the fetcher has done, for metrics."""

    __slots__ = (
        "all",
        "answered_at",
        "failed",
        "lag",
        "latency_ms",
        "lead",
        "on_change",
        "requests",
        "responses",
        "throttle_ms",
        "topics",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.failed = 0
        self.answered_at: float | None = None
        """When a broker last answered a fetch, by the monotonic clock."""
        self.latency_ms = Latency()
        self.throttle_ms = Stat()
        self.lag = Stat()
        self.lead = LowStat()
        self.all = TopicFetches()
        self.topics: dict[str, TopicFetches] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when a topic or partition has figures for the first time."""

    def topic(self, name: str) -> TopicFetches:
        """The counts of one topic."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicFetches()
            self.on_change()
        return found

    def note_place(self, state: PartitionState, *, read_committed: bool) -> None:
        """Records of a partition were handed out: how far it is now from both ends of the log."""
        position = state.position
        if position is None:
            return
        end = state.last_stable_offset if read_committed else state.high_watermark
        if end is not None:
            lag = max(end - position.offset, 0)
            self.lag.record(lag)
            state.lag.record(lag)
            if state.lag.count == 1:
                self.on_change()
        if state.log_start_offset is not None:
            lead = position.offset - state.log_start_offset
            self.lead.record(lead)
            state.lead.record(lead)

    def rows(self) -> dict[Tags, TopicFetches]:
        """The counts of all topics, by their tag."""
        return {(name,): each for name, each in list(self.topics.items())}


class FetchTally:
    """What one answer brought, partition by partition, until all of it was handed out."""

    __slots__ = ("_found", "_left", "_stats")

    def __init__(self, stats: FetchStats) -> None:
        self._stats = stats
        self._left = 0
        self._found: dict[str, tuple[int, int]] = {}

    def begin(self) -> None:
        """One more partition of the answer has records."""
        self._left += 1

    def drained(self, topic: str, records: int, size_bytes: int) -> None:
        """All records of a partition were handed out."""
        before = self._found.get(topic, (0, 0))
        self._found[topic] = (before[0] + records, before[1] + size_bytes)
        self._left -= 1
        if not self._left:
            self._tell()

    def _tell(self) -> None:
        all_records = all_bytes = 0
        for topic, (records, size_bytes) in self._found.items():
            counts = self._stats.topic(topic)
            counts.records_per_request.record(records)
            counts.fetch_bytes.record(size_bytes)
            all_records += records
            all_bytes += size_bytes
        self._stats.all.records_per_request.record(all_records)
        self._stats.all.fetch_bytes.record(all_bytes)


class ConsumerTimes:
    """When the application polls and what it waits for."""

    __slots__ = ("between_ms", "commit_sync_s", "committed_s", "idle_ratio", "last_poll_s")

    def __init__(self) -> None:
        self.last_poll_s = 0.0
        self.between_ms = Stat()
        self.idle_ratio = Stat()
        self.commit_sync_s = 0.0
        self.committed_s = 0.0

    def polled(self, began_s: float, ended_s: float) -> None:
        """A poll has ended."""
        # Without calls of ``record``: a poll may bring a single record.
        since_s = began_s - self.last_poll_s if self.last_poll_s else 0.0
        self.last_poll_s = began_s
        between = self.between_ms
        between.count += 1
        between.total += since_s * 1000
        if since_s * 1000 > between.longest:
            between.longest = since_s * 1000
        polling_s = ended_s - began_s
        all_s = polling_s + since_s
        if all_s > 0:
            idle, share = self.idle_ratio, polling_s / all_s
            idle.count += 1
            idle.total += share
            if share > idle.longest:
                idle.longest = share

    @property
    def last_poll_ago_s(self) -> float:
        """Seconds since the last poll began; -1: there was none."""
        return time.monotonic() - self.last_poll_s if self.last_poll_s else _NEVER


class FetchSource(NamedTuple):
    """Where the figures of fetching are read."""

    stats: FetchStats
    buffered_bytes: Callable[[], int]


class PartitionSource(NamedTuple):
    """Where the figures of an assigned partition are read."""

    state: PartitionState
    read_committed: bool

    @property
    def lag(self) -> int:
        """How many offsets lie before the end that the last fetch saw."""
        end = self.state.last_stable_offset if self.read_committed else self.state.high_watermark
        position = self.state.position
        return 0 if end is None or position is None else max(end - position.offset, 0)

    @property
    def lead(self) -> int:
        """How many offsets lie behind, down to the beginning of the log that the last fetch saw."""
        start, position = self.state.log_start_offset, self.state.position
        return 0 if start is None or position is None else position.offset - start

    @property
    def replica(self) -> int:
        """The follower that is read from; -1: the leader."""
        replica = self.state.preferred_read_replica
        return _NO_REPLICA if replica is None else replica


CONSUMER = Family(
    "consumer-metrics",
    [
        *spread("time-between-poll", attrgetter("between_ms"), "From one poll to the next, in ms"),
        *spread("poll-idle-ratio", attrgetter("idle_ratio"), "Share of time spent in `poll`", Kind.AVG),
        gauge(
            "last-poll-seconds-ago", attrgetter("last_poll_ago_s"), "Since the last poll began; -1: none yet"
        ),
        total("commit-sync-time-ns", lambda times: times.commit_sync_s * _NS, "Time in `commit`, in ns"),
        total("committed-time-ns", lambda times: times.committed_s * _NS, "Time in `committed`, in ns"),
    ],
)
"""Read from :class:`ConsumerTimes`."""

FETCHES = Family(
    "consumer-fetch-manager-metrics",
    [
        *meter("fetch", attrgetter("stats.responses"), "Fetches answered"),
        total("fetch-failed", attrgetter("stats.failed"), "Fetches without an answer"),
        *spread(
            "fetch-latency",
            attrgetter("stats.latency_ms"),
            "From a Fetch to its answer, in ms",
            Kind.AVG,
            Kind.MAX,
            Kind.P99,
        ),
        *spread(
            "fetch-throttle-time",
            attrgetter("stats.throttle_ms"),
            "Pause that a Fetch's answer asked for, in ms",
        ),
        *spread("fetch-size", attrgetter("stats.all.fetch_bytes"), "Bytes of records in an answer"),
        *meter("bytes-consumed", attrgetter("stats.all.fetch_bytes.total"), "Bytes of records handed out"),
        *meter("records-consumed", attrgetter("stats.all.records"), "Records handed out"),
        *spread(
            "records-per-request",
            attrgetter("stats.all.records_per_request"),
            "Records in an answer",
            Kind.AVG,
        ),
        *spread(
            "records-lag",
            attrgetter("stats.lag"),
            "Offsets before the end of a partition, after a poll",
            Kind.MAX,
        ),
        *spread(
            "records-lead",
            attrgetter("stats.lead"),
            "Offsets behind, down to the beginning of a log",
            Kind.MIN,
        ),
        gauge(
            "fetch-buffer-bytes",
            lambda source: source.buffered_bytes(),
            "Bytes fetched and not handed out yet",
        ),
    ],
)
"""Read from :class:`FetchSource`."""

TOPICS = Family(
    "consumer-fetch-manager-metrics",
    [
        *spread("fetch-size", attrgetter("fetch_bytes"), "Bytes of records in an answer"),
        *meter("bytes-consumed", attrgetter("fetch_bytes.total"), "Bytes of records handed out"),
        *meter("records-consumed", attrgetter("records"), "Records handed out"),
        *spread("records-per-request", attrgetter("records_per_request"), "Records in an answer", Kind.AVG),
    ],
    ("topic",),
)
"""Read from :class:`TopicFetches`."""

PARTITIONS = Family(
    "consumer-fetch-manager-metrics",
    [
        gauge("records-lag", attrgetter("lag"), "Offsets before the end that the last fetch saw"),
        *spread("records-lag", attrgetter("state.lag"), "Offsets before the end, after a poll"),
        gauge("records-lead", attrgetter("lead"), "Offsets behind, down to the beginning of the log"),
        *spread(
            "records-lead",
            attrgetter("state.lead"),
            "Offsets behind, down to the beginning of the log, after a poll",
            Kind.AVG,
            Kind.MIN,
        ),
        gauge(
            "preferred-read-replica", attrgetter("replica"), "The follower that is read from; -1: the leader"
        ),
    ],
    ("topic", "partition"),
)
"""Read from :class:`PartitionSource`."""


def consumer_metrics(
    metrics: Metrics,
    stats: FetchStats,
    times: ConsumerTimes,
    subscription: SubscriptionState,
    *,
    read_committed: bool,
    buffered_bytes: Callable[[], int],
) -> None:
    """Add what fetching does, and how far behind the consumer is, to a client's figures; times are in ms."""

    def partitions() -> dict[Tags, PartitionSource]:
        return {
            (topic, str(number)): PartitionSource(state, read_committed)
            for (topic, number), state in list(subscription.states())
            if state.high_watermark is not None
        }

    metrics.add_one(CONSUMER, times)
    metrics.add_one(FETCHES, FetchSource(stats, buffered_bytes))
    metrics.add(TOPICS, stats.rows)
    metrics.add(PARTITIONS, partitions)
