"""A consumer's figures, by the names that Kafka gives them."""

from __future__ import annotations

from tidelog.client.consumer.fetcher import Fetcher
from tidelog.client.consumer.subscription_state import SubscriptionState
from tidelog.client.metrics import Metrics
from tidelog.client.resources import IsolationLevel


def consumer_metrics(
    metrics: Metrics, fetcher: Fetcher, subscription: SubscriptionState, isolation: IsolationLevel
) -> None:
    """Add what fetching does, and how far behind the consumer is, to a client's figures; times are in ms."""

    def longest_lag() -> float:
        lags = (subscription.lag(partition, isolation) for partition in subscription.assignment)
        return max((lag for lag in lags if lag is not None), default=0)

    stats = fetcher.stats
    metrics.total("records-consumed", lambda: fetcher.collector.records)
    metrics.total("bytes-consumed", lambda: stats.bytes_fetched)
    metrics.total("fetch", lambda: stats.responses)
    metrics.total("fetch-failed", lambda: stats.failed, rate=False)
    stats.latency_ms = metrics.latency("fetch-latency")
    metrics.gauge("records-lag-max", longest_lag)
    metrics.gauge("assigned-partitions", lambda: len(subscription.assignment))
    metrics.gauge("fetch-buffer-bytes", lambda: fetcher.buffer.size_bytes)
