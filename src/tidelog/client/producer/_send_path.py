"""The long way of a record into the accumulator, for both producers.

In this order: interceptors, metadata, serializers, partitioner, accumulator. Nearly every record takes the
short way (``quick_send``): its topic is known, its batch is open, nothing has to be waited for. Here is the
rest: the first record of a batch, and whatever needs interceptors, an own partitioner, metadata or memory;
the two producers differ in how they wait, which is their ``buffer``.

Invariant: a topic is in ``_quick_topics`` only while its records may be appended without interceptors or an
own partitioner, and while none of its records waits for room.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from time import time

from tidelog.client.errors import ClientClosedError
from tidelog.client.metadata import ClusterMetadata, check_place
from tidelog.client.producer._record_accumulator import RecordAccumulator
from tidelog.client.producer._settings import ProducerSettings
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer.interceptors import ProducerInterceptors
from tidelog.client.producer.quick_send import (
    QuickSend,
    RecordFuture,
    TopicQueues,
    header_pairs,
    key_partition,
    plain_bytes,
)
from tidelog.client.producer.record import (
    NO_PARTITION,
    DeliveryCallback,
    ProducerRecord,
    RecordMetadata,
    SerializedRecord,
    check_callback,
    checked_timestamp,
)
from tidelog.client.producer.record_future import Delivery
from tidelog.client.serialization import SerializationError, SerializeFn
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET, NO_TIMESTAMP

Buffer = Callable[[SerializedRecord], Delivery]
"""Appends a record, waiting for metadata and memory in a producer's own way."""

_CLOSED = "the producer is closed"


class SendPath:
    """``send`` of one producer, and what it is made of.

    A ``Producer`` has its own ``buffer`` and ``note_lost_record`` in the path of the core that it owns
    (``send_port``).
    """

    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
        *,
        buffer: Buffer,
        note_lost_record: Callable[[Exception], None],
        waiting: Container[str],
    ) -> None:
        self.settings = settings
        self.accumulator = accumulator
        self.transactions = transactions
        self.interceptors = ProducerInterceptors(settings.interceptors)
        self.buffer = buffer
        self.note_lost_record = note_lost_record
        """Has the transaction fail because a record could not be buffered."""
        self.closed = False
        self._why_closed = _CLOSED
        self._waiting = waiting
        """Topics with records that wait for room: nothing may overtake those."""
        self._quick_topics: dict[str, TopicQueues] = {}
        self._always_slow = (
            bool(settings.interceptors) or settings.partitioner is not None or settings.ignore_keys
        )
        quick = QuickSend(
            accumulator.lock,
            self._quick_topics,
            self,
            serializes=settings.key_serializer is not None or settings.value_serializer is not None,
        )
        # Bound once: producers take it over as their own ``send``, for every record goes through it.
        self.send = quick.send

    def send_record(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> Delivery:
        """The long way from its beginning."""
        check_callback("send", "on_delivery", on_delivery)
        if not self.interceptors:
            return self._serialize_and_send(record, on_delivery)
        record = self.interceptors.on_send(record)
        try:
            return self._serialize_and_send(record, self._acknowledging(on_delivery))
        except Exception as error:
            # The caller hears of it by the exception, and nobody would tell them.
            self.interceptors.on_acknowledgement(_refused(record), error)
            raise

    def _serialize_and_send(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> Delivery:
        key, value = self.serialized(record.topic, record.key, record.value)
        given = record.timestamp_ms
        timestamp_ms = int(time() * 1000) if given is None else checked_timestamp(given)
        return self.send_serialized(
            SerializedRecord(
                record.topic,
                key,
                value,
                record.partition,
                timestamp_ms,
                header_pairs(record.headers),
                on_delivery,
                record.key,
                record.value,
            )
        )

    def send_serialized(self, record: SerializedRecord) -> Delivery:
        """The long way behind the serializers; raises what keeps the record from being buffered."""
        self.check_usable()
        try:
            check_place(record.topic, record.partition)
            return self.buffer(record)
        except Exception as error:
            if self.transactions is not None and self.transactions.has_ongoing_transaction:
                # A record that is missing must not be committed without anybody noticing.
                self.note_lost_record(error)
            raise

    def check_usable(self) -> None:
        """Raise unless a record may be sent now."""
        if self.closed:
            raise ClientClosedError(self._why_closed)
        if self.transactions is not None:
            self.transactions.check_send()

    def close(self, why: str = _CLOSED) -> None:
        """Take no more records; takes no lock, and so may be called in a forked child."""
        self.closed = True
        self._why_closed = why
        self._quick_topics.clear()

    def serialized(self, topic: str, key: object, value: object) -> tuple[bytes | None, bytes | None]:
        """Key and value as bytes."""
        return (
            _serialized("key", self.settings.key_serializer, topic, key),
            _serialized("value", self.settings.value_serializer, topic, value),
        )

    def choose(self, topics: TopicQueues, record: SerializedRecord) -> int | None:
        """The partition of a record; None: whichever the built-in partitioner sticks to."""
        if record.partition is not None:
            return record.partition
        settings = self.settings
        if settings.partitioner is not None:
            chosen = settings.partitioner.partition(
                topics.name,
                record.original_key,
                record.key,
                record.original_value,
                record.value,
                topics.partition_count,
                topics.available,
            )
            if not isinstance(chosen, int) or not 0 <= chosen < topics.partition_count:
                raise KafkaError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"the partitioner chose {chosen!r} for topic {topics.name!r}, "
                    f"which has the partitions 0 to {topics.partition_count - 1}",
                )
            return chosen
        if record.key is not None and not settings.ignore_keys:
            return key_partition(record.key, topics.partition_count)
        return None

    def append(
        self, topics: TopicQueues, chosen: int | None, record: SerializedRecord, granted_bytes: int = 0
    ) -> RecordFuture | None:
        """As ``RecordAccumulator.append``, within the transaction if there is one."""
        future = self.accumulator.append(topics, chosen, record, granted_bytes)
        if future is not None and self.transactions is not None and self.transactions.is_transactional:
            self.transactions.add_partition(future.batch.topic_partition)
            self.accumulator.wake()
        return future

    def learn(self, metadata: ClusterMetadata) -> None:
        """Take over news about the topics in use; the listener of metadata updates."""
        for name in list(self.accumulator.topics):
            topic = metadata.topics.get(name)
            if topic is None or topic.error or not topic.partitions:
                self._quick_topics.pop(name, None)
            else:
                self.know(self.accumulator.topic(topic))

    def know(self, topics: TopicQueues) -> None:
        """Let records of a topic take the short way from now on, if they may."""
        if not self._always_slow and not self.closed and topics.name not in self._waiting:
            self._quick_topics[topics.name] = topics

    def hold(self, topic: str) -> None:
        """Let records of a topic take the long way: one of them waits."""
        self._quick_topics.pop(topic, None)

    def _acknowledging(self, on_delivery: DeliveryCallback | None) -> DeliveryCallback:
        interceptors = self.interceptors

        def acknowledged(metadata: RecordMetadata, error: Exception | None) -> None:
            interceptors.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return acknowledged


def _serialized(part: str, serialize: SerializeFn | None, topic: str, data: object) -> bytes | None:
    if serialize is None:
        return plain_bytes(part, topic, data)
    try:
        data = serialize(topic, data)
    except SerializationError as error:
        raise SerializationError(f"the record's {part}: {error}") from error
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise SerializationError(
        f"the record's {part}: {part}_serializer returns bytes or None, and has returned "
        f"{type(data).__name__} for topic {topic!r}: encode it, as in json.dumps(value).encode()"
    )


def _refused(record: ProducerRecord) -> RecordMetadata:
    return RecordMetadata(
        record.topic,
        NO_PARTITION if record.partition is None else record.partition,
        NO_OFFSET,
        NO_TIMESTAMP if record.timestamp_ms is None else record.timestamp_ms,
    )
