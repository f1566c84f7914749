"""What a reader of committed records finds in a topic, by librdkafka: the witness of the sink's tests."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.rigs.delivered import headers_of, partition_of

_TIMEOUT_S = 60.0


class Seen(NamedTuple):
    """One record."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def committed_records(bootstrap: str, topic: str) -> list[Seen]:
    """All records of ``topic`` up to its last stable offset, as consumers with ``read_committed`` do."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "sink-output",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    seen: list[Seen] = []
    try:
        known = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in known])
        at_end: set[int] = set()
        while len(at_end) < len(known):
            message = consumer.poll(_TIMEOUT_S)
            assert message is not None, f"only {len(seen)} records of {topic} came"
            error = message.error()
            if error is None:
                seen.append(Seen(partition_of(message), message.key(), message.value(), headers_of(message)))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                at_end.add(partition_of(message))
    finally:
        consumer.close()
    return seen


def committed_values(bootstrap: str, topic: str) -> list[str]:
    """The values of all committed records, sorted."""
    return sorted((each.value or b"").decode() for each in committed_records(bootstrap, topic))
