"""What was done with each topic on one broker, since it started: the figures of Kafka's BrokerTopicStats.

Plain numbers that whoever does it counts up. What producers appended is not counted at all: it is how far the
logs of a leader have come (``Partition.count_appends``), and is taken over when somebody wants to know.
"""

from __future__ import annotations

from tidelog.metrics.request_errors import RequestErrors

FIELDS = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "produce_requests",
    "fetch_requests",
    "failed_produce_requests",
    "failed_fetch_requests",
    "replication_bytes_in",
    "replication_bytes_out",
    "reassignment_bytes_in",
    "reassignment_bytes_out",
    "isr_shrinks",
    "isr_expands",
    "failed_isr_updates",
)


class TopicCounts:
    """The figures of one topic, or of all."""

    __slots__ = FIELDS

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes of records that consumers were sent."""
        self.bytes_rejected = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0

    def add(self, other: TopicCounts) -> None:
        """Count what ``other`` has counted, too."""
        for field in FIELDS:
            setattr(self, field, getattr(self, field) + getattr(other, field))


class AllTopicCounts:
    """The figures of all topics that are here; those of topics that have gone live on in the sum."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicCounts] = {}
        self.errors = RequestErrors()
        """What clients were told was wrong."""
        self._gone = TopicCounts()

    def of(self, topic: str) -> TopicCounts:
        """The figures of a topic, from nothing if it is new."""
        counts = self.by_topic.get(topic)
        if counts is None:
            counts = self.by_topic[topic] = TopicCounts()
        return counts

    def forget(self, topic: str) -> None:
        """The topic has no partition here any more."""
        counts = self.by_topic.pop(topic, None)
        if counts is not None:
            self._gone.add(counts)

    def total(self) -> TopicCounts:
        """Everything together."""
        total = TopicCounts()
        total.add(self._gone)
        for counts in self.by_topic.values():
            total.add(counts)
        return total
