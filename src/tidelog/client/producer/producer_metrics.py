"""A producer's figures under Kafka's names (``producer-metrics``), computed when somebody asks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client.producer.async_producer import AsyncProducer


def producer_metrics(producer: AsyncProducer) -> dict[str, float]:
    """Totals since the producer was made, and averages over them; rates are over its whole life."""
    stats = producer.outcomes.stats
    pool = producer.pool
    alive_s = max(time.monotonic() - producer.created_s, 1e-9)
    batches = max(stats.batches_sent, 1)
    return {
        "record-send-total": stats.records_sent,
        "record-send-rate": stats.records_sent / alive_s,
        "record-error-total": stats.records_failed,
        "record-retry-total": stats.records_retried,
        "batch-split-total": stats.batches_split,
        "batch-size-avg": stats.bytes_sent / batches,
        "batch-size-max": stats.largest_batch_bytes,
        "records-per-request-avg": stats.records_sent / max(stats.requests, 1),
        "record-queue-time-avg": stats.queue_time_s / batches * 1000,
        "record-queue-time-max": stats.queue_time_max_s * 1000,
        "requests-in-flight": producer.sender.in_flight_requests,
        "byte-total": stats.bytes_sent,
        "byte-rate": stats.bytes_sent / alive_s,
        "buffer-total-bytes": pool.total_bytes,
        "buffer-available-bytes": pool.available_bytes,
        "buffer-exhausted-total": pool.exhausted_count,
        "bufferpool-wait-time-ns-total": pool.wait_seconds * 1e9,
        "waiting-threads": pool.waiter_count,
    }
