"""A consumer's figures, by the names that Kafka gives them."""

from __future__ import annotations

from tidelog.client.consumer.fetcher import Fetcher
from tidelog.client.consumer.subscription_state import SubscriptionState
from tidelog.client.resources import IsolationLevel


def consumer_metrics(
    fetcher: Fetcher, subscription: SubscriptionState, isolation: IsolationLevel
) -> dict[str, float]:
    """What fetching has done so far, and how far behind the consumer is."""
    stats = fetcher.stats
    lags = [lag for each in subscription.assignment if (lag := subscription.lag(each, isolation)) is not None]
    return {
        "assigned-partitions": len(subscription.assignment),
        "records-consumed-total": stats.records,
        "bytes-consumed-total": stats.bytes_fetched,
        "fetch-total": stats.responses,
        "fetch-failed-total": stats.failed,
        "fetch-latency-avg": stats.latency_sum * 1000 / stats.responses if stats.responses else 0.0,
        "fetch-latency-max": stats.latency_max * 1000,
        "records-lag-max": max(lags, default=0),
        "fetch-buffer-bytes": fetcher.buffer.size_bytes,
    }
