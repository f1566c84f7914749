# cython: language_level=3
"""The short way of a record into its batch, compiled where that is possible.

This file is plain Python that Cython also compiles (see ``records/record_codec``). It holds what every single
record touches: the queues' attributes, the future, and ``send`` itself up to the point where anything but an
append is needed; then the long way takes over (``send_path``).

Invariant: ``PartitionQueue.append`` is set only while its batch is open and records may be added without
further checks. Whoever closes a batch takes ``append`` away first, under the accumulator's lock, and looks at
the batch afterwards. Interpreted, appending happens under that lock. Compiled, a record of plain bytes needs
none: from looking at ``append`` to its end no other thread can run, for nothing in between gives the
interpreter lock away (a free-threaded Python runs this module with its lock on).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.client._foreign_methods import FUTURE, foreign_methods
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer._producer_batch import ProducerBatch, set_done
from tidelog.client.producer.partitioner import BuiltInPartitioner
from tidelog.client.producer.record import (
    END_OF_TIME_MS,
    ProducerRecord,
    RecordMetadata,
    SerializedRecord,
    check_callback,
    checked_timestamp,
)
from tidelog.client.serialization import BytesSerializer, SerializationError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.metadata import TopicMetadata
    from tidelog.client.producer.record import DeliveryCallback
    from tidelog.client.producer.record_future import Delivery
    from tidelog.records.record import RecordHeader

# Cython's compiler goes by the first branch, which is never run; the interpreter and mypy go by the second.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
    from cython.cimports.tidelog.records.column_writer import murmur2
else:
    from tidelog.records import cython_shim as cython
    from tidelog.records.column_writer import murmur2

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

_RATIO_IMPROVING_STEP = 0.005
_RATIO_DETERIORATING_STEP = 0.05

_foreign_method = foreign_methods(FUTURE)
_bytes_serializer = BytesSerializer()
_HEADERS_ARE = "headers are pairs of a str and bytes, as headers=[('name', b'value')]"


@cython.final
@cython.cclass
class RecordFuture:
    """What ``send`` returns: a record's place in its batch, from which its end can be read or awaited.

    One is made for every record, so it knows nothing by itself and looks things up when asked. It works in
    any thread and in any event loop: ``future.result(timeout)`` blocks, ``await future`` does not.
    """

    __slots__ = ("batch", "index", "key_size", "timestamp_ms", "value_size")

    def __init__(
        self, batch: Any, index: int, timestamp_ms: int = -1, key_size: int = -1, value_size: int = -1
    ) -> None:
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.key_size = key_size
        self.value_size = value_size

    def __repr__(self) -> str:
        batch, index = self.batch.locate(self.index)
        state = "pending" if not batch.done else "failed" if batch.error_of(index) else "written"
        return f"<{state} record of {batch.topic_partition}>"

    def done(self) -> bool:
        """Whether the record has been written or has failed."""
        return bool(self.batch.locate(self.index)[0].done)

    def __getattr__(self, name: str) -> Any:
        return _foreign_method(self, name)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record went; waits up to ``timeout`` seconds, raises what kept it from being written."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What kept the record from being written, None if it was; waits like ``result``."""
        batch, index = self.batch.locate(self.index)
        if not batch.done:
            if self.batch.wait_done(self.index, timeout) is None:
                raise RequestTimeoutError(
                    f"no broker has acknowledged the record of {batch.topic_partition} within "
                    f"{timeout:g} s; it may still be written: delivery.timeout.ms bounds that"
                )
            batch, index = self.batch.locate(self.index)
        found: Exception | None = batch.error_of(index)
        return found

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback`` with this future when it is done, in the producer's thread; at once if it is."""
        check_callback("add_done_callback", "callback", callback)
        _call_when_done(self, callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, index = self.batch.locate(self.index)
        while not batch.done:
            yield from _moved(batch).__await__()
            batch, index = self.batch.locate(self.index)
        error = batch.error_of(index)
        if error is not None:
            raise error
        return self._metadata()

    def _metadata(self) -> RecordMetadata:
        batch, index = self.batch.locate(self.index)
        metadata: RecordMetadata = batch.metadata_of(
            index, (self.timestamp_ms, self.key_size, self.value_size)
        )
        return metadata


def new_future(
    batch: ProducerBatch,
    index: cython.Py_ssize_t,
    timestamp_ms: cython.longlong,
    key_size: cython.Py_ssize_t,
    value_size: cython.Py_ssize_t,
) -> RecordFuture:
    """The future of record ``index`` of ``batch``."""
    future: RecordFuture = RecordFuture.__new__(RecordFuture)
    future.batch = batch
    future.index = index
    future.timestamp_ms = timestamp_ms
    future.key_size = key_size
    future.value_size = value_size
    return future


def _call_when_done(future: RecordFuture, callback: Callable[[Any], object]) -> None:
    def check() -> None:
        batch, _ = future.batch.locate(future.index)
        if batch.done or not batch.call_when_moved(check):
            callback(future)

    check()


async def _moved(batch: ProducerBatch) -> None:
    loop = asyncio.get_running_loop()
    moved = loop.create_future()
    if batch.call_when_moved(lambda: loop.call_soon_threadsafe(set_done, moved)):
        await moved


@cython.final
@cython.cclass
class PartitionQueue:
    """The batches of one partition: retries in front, by their sequences, the open one at the back."""

    __slots__ = ("append", "batches", "muted", "open", "topic", "topic_partition")

    def __init__(self, topic: TopicQueues, partition: int) -> None:
        self.topic = topic
        self.topic_partition = TopicPartition(topic.name, partition)
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.append: Callable[..., int] | None = None
        self.muted = False

    def push(self, batch: ProducerBatch, append: Callable[..., int]) -> None:
        """Let ``batch`` be the open one."""
        self.batches.append(batch)
        self.open = batch
        self.append = append

    def close_open(self) -> ProducerBatch | None:
        """Add no more records to the open batch, if there is one."""
        self.append = None
        batch = self.open
        self.open = None
        return batch


@cython.final
@cython.cclass
class TopicQueues:
    """The partitions of one topic that this producer has sent to."""

    __slots__ = (
        "available",
        "compression_ratio",
        "leaders",
        "name",
        "partition_count",
        "partitioner",
        "queues",
        "sticky",
    )

    def __init__(self, name: str, sticky_bytes: int, rng: random.Random | None = None) -> None:
        self.name = name
        self.partition_count = 0
        self.available: Sequence[int] = ()
        self.leaders: dict[int, int | None] = {}
        self.queues: dict[int, PartitionQueue] = {}
        self.partitioner = BuiltInPartitioner(sticky_bytes, rng)
        self.sticky: PartitionQueue | None = None
        self.compression_ratio = 1.0

    def update(self, metadata: TopicMetadata) -> None:
        """Take over what is known of the topic now.

        Senders look without a lock, so the order matters: what is counted has a queue, what is available is
        counted.
        """
        # Brokers may not know of all yet: those below one that is known are there, and wait for a leader.
        count = max(metadata.partitions, default=-1) + 1
        for number in range(count):
            if number not in self.queues:
                self.queues[number] = PartitionQueue(self, number)
        self.partition_count = count
        self.leaders = {number: partition.leader for number, partition in metadata.partitions.items()}
        self.available = tuple([number for number, leader in self.leaders.items() if leader is not None])

    def note_compression(self, ratio: float) -> None:
        """Learn how far the topic's records shrink: quickly for the worse, slowly for the better."""
        if ratio > self.compression_ratio:
            self.compression_ratio = max(self.compression_ratio + _RATIO_DETERIORATING_STEP, ratio)
        else:
            self.compression_ratio = max(self.compression_ratio - _RATIO_IMPROVING_STEP, ratio)


def key_partition(key: bytes, partition_count: cython.Py_ssize_t) -> int:
    """The partition of ``key``, the same one that Java's producer chooses."""
    hashed: cython.ulonglong = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partition_count


def header_pairs(
    headers: Mapping[str, bytes | None] | Sequence[RecordHeader] | None,
) -> Sequence[RecordHeader]:
    """Headers as pairs, whichever way they were given."""
    if not headers:
        return ()
    pairs: Any = headers
    # The usual types first: asking an abstract class costs more than the rest of a header.
    if type(pairs) is not list and type(pairs) is not tuple:
        pairs = tuple(headers.items()) if isinstance(headers, Mapping) else headers
        if isinstance(pairs, str | bytes) or not isinstance(pairs, Sequence):
            raise SerializationError(f"{_HEADERS_ARE}, got {headers!r}")
    for pair in pairs:
        if (type(pair) is not tuple and not isinstance(pair, Sequence)) or len(pair) != 2:
            raise SerializationError(f"{_HEADERS_ARE}, got {pair!r}")
        name, value = pair
        if type(name) is str and (value is None or type(value) is bytes):
            continue
        if not isinstance(name, str):
            raise SerializationError(f"the key of a header is a str, got {name!r}: {_HEADERS_ARE}")
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise SerializationError(
                f"the value of header {name!r} is bytes or None, not {type(value).__name__}: encode it"
            )
    checked: Sequence[RecordHeader] = pairs
    return checked


def plain_bytes(part: str, topic: Any, data: object) -> bytes | None:
    """A key or value (``part`` says which) that no serializer is set for."""
    if data is None or isinstance(data, bytes | bytearray | memoryview):
        return _bytes_serializer.serialize(topic, data)
    raise SerializationError(
        f"{type(data).__name__} cannot be sent to topic {topic!r} as a record's {part}: encode it to bytes, "
        f"or set {part}_serializer ('str', 'json', …)"
    )


class SlowPath(Protocol):
    """Takes the records that need more than an open batch."""

    def send_record(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> Delivery:
        """Buffer a record of a topic that is not in use yet, or not quick."""

    def send_serialized(self, record: SerializedRecord) -> Delivery:
        """Buffer a record whose partition has no open batch with room for it."""

    def serialized(self, topic: str, key: object, value: object) -> tuple[bytes | None, bytes | None]:
        """Key and value as bytes, by the producer's serializers."""


@cython.final
@cython.cclass
class QuickSend:
    """``send``, for records that need nothing but an open batch.

    ``topics`` are those whose records may take the short way; the long way fills and empties it.
    """

    __slots__ = ("_lock", "_serializes", "_slow_path", "_topics")

    def __init__(
        self, lock: Any, topics: dict[str, TopicQueues], slow_path: SlowPath, *, serializes: bool
    ) -> None:
        self._lock = lock
        self._topics = topics
        self._slow_path = slow_path
        self._serializes = serializes

    def send(
        self,
        topic: str | ProducerRecord,
        value: object = None,
        key: object = None,
        *,
        partition: Any = None,
        timestamp_ms: Any = None,
        headers: Mapping[str, bytes | None] | Sequence[RecordHeader] | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Buffer a record: the ``send`` of ``Producer`` and ``AsyncProducer``, whose documentation has more.

        Args:
            topic: The name of the topic, or a ``ProducerRecord`` with all of the following.
            value: The value; None is a null, which deletes the key in a compacted topic.
            key: The key, whose hash chooses the partition.
            partition: The partition, an int; None leaves the choice to the partitioner.
            timestamp_ms: Milliseconds since 1970, or a datetime with a time zone; None means now.
            headers: Pairs of name and bytes, or a mapping.
            on_delivery: Called with the ``RecordMetadata`` and the error, or None, once the record is stored
                or has failed.

        Returns:
            A future: ``result(timeout)`` of it, or ``await``, is the ``RecordMetadata``.

        Example:
            producer.send("orders", b"one espresso", key=b"table-4").result(timeout=30)
        """
        topics: TopicQueues | None = self._topics.get(topic) if type(topic) is str else None
        if topics is None:
            if not isinstance(topic, ProducerRecord):
                topic = ProducerRecord(topic, value, key, partition, timestamp_ms, header_pairs(headers))
            return self._slow_path.send_record(topic, on_delivery)
        if self._serializes:
            key, value = self._slow_path.serialized(topics.name, key, value)
        if not (type(value) is bytes or value is None) or not (type(key) is bytes or key is None):
            key, value = plain_bytes("key", topics.name, key), plain_bytes("value", topics.name, value)
        queue: PartitionQueue | None
        if partition is not None:
            queue = topics.queues.get(partition)
        elif key is None:
            queue = topics.sticky
        else:
            queue = topics.queues[key_partition(key, topics.partition_count)]
        stamp: cython.longlong
        if timestamp_ms is None:
            now: cython.double = time()
            stamp = int(now * 1000)
        elif type(timestamp_ms) is int and 0 <= timestamp_ms < END_OF_TIME_MS:
            stamp = timestamp_ms
        else:
            stamp = checked_timestamp(timestamp_ms)
        if on_delivery is not None and not callable(on_delivery):
            check_callback("send", "on_delivery", on_delivery)
        key_size: cython.Py_ssize_t = -1 if key is None else len(key)
        value_size: cython.Py_ssize_t = -1 if value is None else len(value)
        index: cython.Py_ssize_t = -1
        batch: Any = None
        if cython.compiled and queue is not None and not headers and on_delivery is None:
            append = queue.append
            if append is not None:
                batch = queue.open
                index = append(stamp, key, value)
        elif queue is not None:
            if headers:
                headers = header_pairs(headers)
            with self._lock:
                append = queue.append
                if append is not None:
                    batch = queue.open
                    index = append(stamp, key, value, headers or ())
                    if on_delivery is not None and index >= 0:
                        batch.add_callback(index, (stamp, key_size, value_size), on_delivery)
        if index < 0:
            return self._slow_path.send_serialized(
                SerializedRecord(
                    topics.name, key, value, partition, stamp, header_pairs(headers), on_delivery
                )
            )
        return new_future(batch, index, stamp, key_size, value_size)
