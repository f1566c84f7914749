"""The hash of the topics that a group reads: their ids, names, partitions and racks (KIP-1101).

A group keeps it in its epoch record, so that whoever coordinates the group notices that topics have changed,
also while nobody looked. Computed as Kafka does it, bit for bit: a log that Kafka wrote causes no rebalance
when Tidelog takes over, nor the other way round.

The bytes hashed, numbers little-endian: for a topic a 0 byte (the version), both halves of the id, the
name, the number of partitions, then for each partition its number and the racks of its replicas, sorted,
each behind its length; text as UTF-16 followed by its length. For a group the topics' hashes in the order
of names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.coordinator.group.consumer.xxh3 import xxh3_64
from tidelog.metadata.image import TopicImage

_VERSION = b"\0"
_NOTHING = 0
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")


class MetadataHash:
    """Hashes of topics, kept while the topics stay as they are."""

    def __init__(self, topics: TopicView) -> None:
        self._topics = topics
        self._known: dict[str, tuple[TopicImage, int]] = {}

    def of(self, topics: Iterable[str]) -> int:
        """The hash of a group that subscribes to these topics; 0 if none of them exists."""
        there = [topic for name in sorted(topics) if (topic := self._topics.get(name)) is not None]
        if not there:
            return _NOTHING
        return _signed(xxh3_64(b"".join(_LONG.pack(self._of_topic(topic)) for topic in there)))

    def forget(self) -> None:
        """Brokers have changed, and with them the racks of replicas."""
        self._known.clear()

    def _of_topic(self, topic: TopicImage) -> int:
        known = self._known.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        value = _signed(xxh3_64(self._topic_bytes(topic)))
        self._known[topic.name] = topic, value
        return value

    def _topic_bytes(self, topic: TopicImage) -> bytes:
        out = bytearray(_VERSION)
        out += topic.id[7::-1] + topic.id[:7:-1]
        out += _text(topic.name)
        out += _INT.pack(topic.partition_count)
        for index in range(topic.partition_count):
            out += _INT.pack(index)
            for rack in sorted(self._racks(topic, index)):
                out += _INT.pack(_length(rack)) + _text(rack)
        return bytes(out)

    def _racks(self, topic: TopicImage, index: int) -> list[str]:
        partition = topic.partitions.get(index)
        if partition is None:
            return []
        brokers = (self._topics.image.brokers.get(broker_id) for broker_id in partition.replicas)
        return [broker.rack for broker in brokers if broker is not None and broker.rack is not None]


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + _INT.pack(_length(text))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
