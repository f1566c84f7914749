"""The long way of a record into the accumulator, for both producers.

Seed 002's order: interceptors, metadata, serializers, partitioner, accumulator. Nearly every record takes the
short way (``quick_send``): its topic is known, its batch is open, nothing has to be waited for. Here is the
rest: the first record of a batch, and whatever needs interceptors, an own partitioner, metadata or memory;
the two producers differ in how they wait.

Invariant: a topic is in ``_quick_topics`` only while its records may be appended without interceptors or an
own partitioner, and while none of its records waits for room.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from time import time
from typing import Any

from tidelog.client.errors import ClientClosedError
from tidelog.client.metadata import ClusterMetadata, check_place
from tidelog.client.producer.interceptors import ProducerInterceptors
from tidelog.client.producer.quick_send import (
    QuickSend,
    RecordFuture,
    TopicQueues,
    header_pairs,
    key_partition,
)
from tidelog.client.producer.record import DeliveryCallback, ProducerRecord, RecordMetadata
from tidelog.client.producer.record_accumulator import RecordAccumulator
from tidelog.client.producer.record_future import Delivery
from tidelog.client.producer.settings import ProducerSettings
from tidelog.client.producer.transaction_manager import TransactionManager
from tidelog.client.serialization import BytesSerializer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.record import RecordHeader

_plain_bytes = BytesSerializer().serialize


class SendPath(QuickSend, abc.ABC):
    """``send`` and what it is made of."""

    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
    ) -> None:
        super().__init__(
            accumulator.lock, settings.key_serializer is not None or settings.value_serializer is not None
        )
        self._settings = settings
        self._accumulator = accumulator
        self._transactions = transactions
        self._interceptors = ProducerInterceptors(settings.interceptors)
        self._always_slow = (
            bool(settings.interceptors) or settings.partitioner is not None or settings.ignore_keys
        )
        self._closed = False

    def _send_slowly(self, *arguments: Any) -> Delivery:
        topic, value, key, partition, timestamp_ms, headers, on_delivery = arguments
        if not isinstance(topic, ProducerRecord):
            topic = ProducerRecord(topic, value, key, partition, timestamp_ms, header_pairs(headers))
        return self._send_record(topic, on_delivery)

    def _send_record(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> Delivery:
        if self._interceptors:
            record = self._interceptors.on_send(record)
            on_delivery = self._acknowledging(on_delivery)
        key, value = self._serialized(record.topic, record.key, record.value)
        return self._send_serialized(
            record.topic,
            key,
            value,
            record.partition,
            record.timestamp_ms,
            header_pairs(record.headers),
            on_delivery,
        )

    def _send_serialized(self, *arguments: Any) -> Delivery:
        """The long way; raises what keeps the record from being buffered."""
        topic, key, value, partition, timestamp_ms, headers, on_delivery = arguments
        self._check_usable()
        if timestamp_ms is None:
            timestamp_ms = int(time() * 1000)
        try:
            check_place(topic, partition)
            return self._buffer(topic, key, value, partition, timestamp_ms, headers, on_delivery)
        except Exception as error:
            if self._transactions is not None and self._transactions.has_ongoing_transaction:
                # A record that is missing must not be committed without anybody noticing.
                self._note_lost_record(error)
            raise

    @abc.abstractmethod
    def _buffer(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        headers: Sequence[RecordHeader],
        on_delivery: DeliveryCallback | None,
    ) -> Delivery:
        """Append the record, waiting for metadata and memory in the producer's own way."""

    @abc.abstractmethod
    def _note_lost_record(self, error: Exception) -> None:
        """Have the transaction fail because a record could not be buffered."""

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("the producer is closed")

    def _check_usable(self) -> None:
        self._check_open()
        if self._transactions is not None:
            self._transactions.check_send()

    def _serialized(self, topic: str, key: object, value: object) -> tuple[bytes | None, bytes | None]:
        settings = self._settings
        return (
            (settings.key_serializer or _plain_bytes)(topic, key),
            (settings.value_serializer or _plain_bytes)(topic, value),
        )

    def _choose(
        self, topics: TopicQueues, key: bytes | None, value: bytes | None, partition: int | None
    ) -> int | None:
        """The partition of a record; None: whichever the built-in partitioner sticks to."""
        if partition is not None:
            return partition
        settings = self._settings
        if settings.partitioner is not None:
            chosen = settings.partitioner.partition(
                topics.name, key, value, topics.partition_count, topics.available
            )
            if not isinstance(chosen, int) or not 0 <= chosen < topics.partition_count:
                raise KafkaError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"the partitioner chose {chosen!r} for topic {topics.name!r}, "
                    f"which has the partitions 0 to {topics.partition_count - 1}",
                )
            return chosen
        if key is not None and not settings.ignore_keys:
            return key_partition(key, topics.partition_count)
        return None

    def _append(
        self,
        topics: TopicQueues,
        chosen: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[RecordHeader],
        on_delivery: DeliveryCallback | None,
        granted_bytes: int = 0,
    ) -> RecordFuture | None:
        future = self._accumulator.append(
            topics, chosen, timestamp_ms, key, value, headers, on_delivery, granted_bytes
        )
        if future is not None and self._transactions is not None and self._transactions.is_transactional:
            self._transactions.add_partition(future.batch.topic_partition)
            self._accumulator.wake()
        return future

    def _learn(self, metadata: ClusterMetadata) -> None:
        """Take over news about the topics in use; the listener of metadata updates."""
        for name in list(self._accumulator.topics):
            topic = metadata.topics.get(name)
            if topic is None or topic.error or not topic.partitions:
                self._quick_topics.pop(name, None)
            else:
                self._know(self._accumulator.topic(topic))

    def _know(self, topics: TopicQueues) -> None:
        if not self._always_slow and not self._closed:
            self._quick_topics[topics.name] = topics

    def _acknowledging(self, on_delivery: DeliveryCallback | None) -> DeliveryCallback:
        interceptors = self._interceptors

        def acknowledged(metadata: RecordMetadata, error: Exception | None) -> None:
            interceptors.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return acknowledged
