"""A producer's figures under Kafka's names: ``producer-metrics`` and, by topic, ``producer-topic-metrics``.

The sender and ``batch_outcomes`` count per batch and per request, never per record. Sizes and queue times are
those of batches as they are sent, a second attempt included. As in Java's client, ``record-size-avg`` is the
average of the largest records of batches, and compression rates are sizes behind the codec through those
before it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from tidelog.client.metrics import (
    Family,
    Figure,
    Kind,
    Latency,
    Metrics,
    Stat,
    Tags,
    gauge,
    meter,
    spread,
    total,
)
from tidelog.client.producer._buffer_pool import BufferPool
from tidelog.client.producer._producer_batch import ProducerBatch

_NS = 1e9


class TopicStats:
    """What one topic's batches came to."""

    __slots__ = ("bytes_sent", "compression", "records_failed", "records_retried", "records_sent")

    def __init__(self) -> None:
        self.records_sent = 0
        self.bytes_sent = 0
        self.records_failed = 0
        self.records_retried = 0
        self.compression = Stat()


class ProducerStats:
    """Plain counts that ``metrics`` reads when somebody asks."""

    __slots__ = (
        "abort_s",
        "acknowledged_at_s",
        "batch_bytes",
        "batches_expired",
        "batches_split",
        "begin_s",
        "commit_s",
        "compression",
        "flush_s",
        "init_s",
        "largest_record_bytes",
        "latency_ms",
        "metadata_wait_s",
        "on_topic",
        "prepare_s",
        "queue_ms",
        "records_failed",
        "records_per_request",
        "records_retried",
        "send_offsets_s",
        "throttle_ms",
        "topics",
    )

    def __init__(self) -> None:
        self.acknowledged_at_s: float | None = None
        """When the last batch was acknowledged."""
        self.records_failed = 0
        self.records_retried = 0
        self.batches_split = 0
        self.batches_expired = 0
        self.batch_bytes = Stat()
        """Sizes of batches on the wire."""
        self.compression = Stat()
        self.largest_record_bytes = Stat()
        """The largest record of each batch, before it is compressed."""
        self.queue_ms = Stat()
        self.records_per_request = Stat()
        self.latency_ms = Latency()
        self.throttle_ms = Stat()
        self.flush_s = self.metadata_wait_s = 0.0
        self.init_s = self.begin_s = self.send_offsets_s = 0.0
        self.prepare_s = self.commit_s = self.abort_s = 0.0
        self.topics: dict[str, TopicStats] = {}
        self.on_topic: Callable[[], None] = lambda: None
        """Called when a topic is new."""

    @property
    def records_sent(self) -> int:
        """How many were sent, second attempts included."""
        return int(self.records_per_request.total)

    def topic(self, name: str) -> TopicStats:
        """The counts of one topic."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicStats()
            self.on_topic()
        return found

    def sent(self, batches: list[ProducerBatch]) -> None:
        """A request with these batches leaves."""
        records = 0
        for batch in batches:
            size, count = batch.size_bytes, batch.record_count
            records += count
            self.batch_bytes.record(size)
            self.compression.record(batch.compression_rate)
            self.largest_record_bytes.record(batch.largest_record_bytes)
            self.queue_ms.record((batch.drained_s - batch.created_s) * 1000)
            topic = self.topic(batch.topic_partition.topic)
            topic.records_sent += count
            topic.bytes_sent += size
            topic.compression.record(batch.compression_rate)
        self.records_per_request.record(records)

    def retried(self, batch: ProducerBatch) -> None:
        """The records of ``batch`` will be sent again."""
        self.records_retried += batch.record_count
        self.topic(batch.topic_partition.topic).records_retried += batch.record_count

    def failed(self, batch: ProducerBatch) -> None:
        """The records of ``batch`` were not written."""
        self.records_failed += batch.record_count
        self.topic(batch.topic_partition.topic).records_failed += batch.record_count

    @contextlib.contextmanager
    def timed(self, attribute: str) -> Iterator[None]:
        """Add how long a block takes, whether it succeeds or not, to one of the times."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add_time(attribute, time.monotonic() - began)

    def add_time(self, attribute: str, seconds: float) -> None:
        """Add to one of the times."""
        setattr(self, attribute, getattr(self, attribute) + seconds)

    def rows(self) -> dict[Tags, TopicStats]:
        """The counts of all topics, by their tag."""
        return {(name,): each for name, each in list(self.topics.items())}


class ProducerSource(NamedTuple):
    """Where a producer's own figures are read."""

    stats: ProducerStats
    pool: BufferPool
    in_flight_requests: Callable[[], int]


def _seconds(attribute: str) -> Callable[[ProducerSource], float]:
    read = attrgetter(attribute)
    return lambda source: read(source.stats) * _NS


def _time(name: str, attribute: str, what: str) -> Figure:
    return total(f"{name}-time-ns", _seconds(attribute), f"{what}, in ns")


PRODUCER = Family(
    "producer-metrics",
    [
        *meter("record-send", attrgetter("stats.records_sent"), "Records sent"),
        *meter("record-error", attrgetter("stats.records_failed"), "Records that failed"),
        *meter("record-retry", attrgetter("stats.records_retried"), "Records sent again"),
        *meter("byte", attrgetter("stats.batch_bytes.total"), "Bytes of batches sent"),
        *spread("batch-size", attrgetter("stats.batch_bytes"), "Size of a batch in bytes"),
        *meter("batch-split", attrgetter("stats.batches_split"), "Batches split, as too large for a broker"),
        *spread(
            "record-size",
            attrgetter("stats.largest_record_bytes"),
            "Size of a batch's largest record in bytes",
        ),
        *spread(
            "compression-rate",
            attrgetter("stats.compression"),
            "Size of a batch through that uncompressed",
            Kind.AVG,
        ),
        *spread(
            "records-per-request", attrgetter("stats.records_per_request"), "Records in a request", Kind.AVG
        ),
        *spread(
            "record-queue-time", attrgetter("stats.queue_ms"), "How long a batch waited to be sent, in ms"
        ),
        *spread(
            "request-latency",
            attrgetter("stats.latency_ms"),
            "From a Produce request to its answer, in ms",
            Kind.AVG,
            Kind.MAX,
            Kind.P99,
        ),
        *spread(
            "produce-throttle-time",
            attrgetter("stats.throttle_ms"),
            "Pause that a Produce's answer asked for, in ms",
        ),
        gauge(
            "requests-in-flight",
            lambda source: source.in_flight_requests(),
            "Produce requests without an answer yet",
        ),
        gauge("buffer-total-bytes", attrgetter("pool.total_bytes"), "`buffer.memory`"),
        gauge("buffer-available-bytes", attrgetter("pool.available_bytes"), "What is free of it"),
        *meter("buffer-exhausted", attrgetter("pool.exhausted_count"), "Records given up for want of memory"),
        gauge("waiting-threads", attrgetter("pool.waiter_count"), "How many wait for memory"),
        total(
            "bufferpool-wait-time-ns",
            lambda source: source.pool.wait_seconds * _NS,
            "Waiting for memory, in ns",
        ),
        Figure(
            "bufferpool-wait-ratio",
            Kind.RATE,
            attrgetter("pool.wait_seconds"),
            "Share of time in which somebody waited for memory",
        ),
        _time("flush", "flush_s", "Time in `flush`"),
        _time("metadata-wait", "metadata_wait_s", "Time that records waited for the metadata of their topic"),
        _time("txn-init", "init_s", "Time in `init_transactions`"),
        _time("txn-begin", "begin_s", "Time in `begin_transaction`"),
        _time("txn-send-offsets", "send_offsets_s", "Time in `send_offsets_to_transaction`"),
        _time("txn-prepare", "prepare_s", "Time in `prepare_transaction`"),
        _time("txn-commit", "commit_s", "Time in `commit_transaction`"),
        _time("txn-abort", "abort_s", "Time in `abort_transaction`"),
    ],
)
"""Read from :class:`ProducerSource`."""

TOPICS = Family(
    "producer-topic-metrics",
    [
        *meter("record-send", attrgetter("records_sent"), "Records sent"),
        *meter("byte", attrgetter("bytes_sent"), "Bytes of batches sent"),
        *meter("record-retry", attrgetter("records_retried"), "Records sent again"),
        *meter("record-error", attrgetter("records_failed"), "Records that failed"),
        *spread(
            "compression-rate",
            attrgetter("compression"),
            "Size of a batch through that uncompressed",
            Kind.AVG,
            suffix=False,
        ),
    ],
    ("topic",),
)
"""Read from :class:`TopicStats`."""


def producer_metrics(
    metrics: Metrics, stats: ProducerStats, pool: BufferPool, in_flight_requests: Callable[[], int]
) -> None:
    """Add what sending does to a client's figures."""
    metrics.add_one(PRODUCER, ProducerSource(stats, pool, in_flight_requests))
    metrics.add(TOPICS, stats.rows)
