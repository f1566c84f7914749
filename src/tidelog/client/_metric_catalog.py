"""All families of the clients' figures, and how they compare with those of Java's clients.

The reference page is printed from this, and a test beside Kafka's own clients holds them to it. No client
imports it.
"""

from __future__ import annotations

from tidelog.client._network.cluster import METADATA
from tidelog.client._network.traffic import NETWORK, NODES
from tidelog.client.consumer import _metrics as consumer
from tidelog.client.group._metrics import COORDINATOR
from tidelog.client.metrics import CLIENT, Family, Figure, Kind
from tidelog.client.producer import _producer_metrics as producer

FAMILIES: tuple[tuple[str, tuple[Family, ...]], ...] = (
    ("Producer", (producer.PRODUCER, producer.TOPICS)),
    ("Consumer", (consumer.CONSUMER, consumer.FETCHES, consumer.TOPICS, consumer.PARTITIONS, COORDINATOR)),
    ("Every client", (NETWORK, NODES, METADATA, *CLIENT)),
)

WITHOUT_MEANING: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        (
            "io-ratio",
            "io-time-ns-avg",
            "io-time-ns-total",
            "io-wait-ratio",
            "io-wait-time-ns-avg",
            "io-wait-time-ns-total",
            "select-rate",
            "select-total",
        ),
        "Of the thread in which Java's client waits for its sockets; here that is an event loop on which a "
        "program may have other work.",
    ),
    (
        (
            "application-event-queue-processing-time-avg",
            "application-event-queue-processing-time-max",
            "application-event-queue-size",
            "application-event-queue-time-avg",
            "application-event-queue-time-max",
            "application-events-expired-count",
            "background-event-queue-processing-time-avg",
            "background-event-queue-processing-time-max",
            "background-event-queue-size",
            "background-event-queue-time-avg",
            "background-event-queue-time-max",
            "time-between-network-thread-poll-avg",
            "time-between-network-thread-poll-max",
            "unsent-requests-queue-size",
            "unsent-requests-queue-time-avg",
            "unsent-requests-queue-time-max",
        ),
        "Of the queues between the threads of Java's newer consumer; there are none here, requests leave "
        "when they are made.",
    ),
    (("successful-authentication-no-reauth-total",), "Logins by clients older than Kafka 2.2."),
    (("version", "commit-id"), "No numbers: `tidelog.version` has them."),
)
"""Names of figures of Java's clients that have no counterpart here, and why."""

_OWN = frozenset(
    {
        ("{client}-metrics", "throttle-total"),
        ("{client}-metrics", "throttle-time-avg"),
        ("{client}-metrics", "throttle-time-max"),
        ("{client}-node-metrics", "throttle-time-avg"),
        ("{client}-node-metrics", "throttle-time-max"),
        ("producer-metrics", "byte-rate"),
        ("producer-metrics", "byte-total"),
        ("consumer-fetch-manager-metrics", "fetch-failed-total"),
        ("consumer-fetch-manager-metrics", "fetch-buffer-bytes"),
        ("consumer-coordinator-metrics", "heartbeat-response-time-avg"),
    }
)


def is_kafkas(family: Family, figure: Figure) -> bool:
    """Whether Java's clients have the figure, too; ``metadata-age`` only their producers."""
    return figure.kind is not Kind.P99 and (family.group, figure.name) not in _OWN
