"""What goes into a producer and what comes back: the record to send, and where it went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, NamedTuple

from tidelog.client._type_variables import RecordK_co, RecordV_co
from tidelog.client.serialization import SerializationError
from tidelog.ids import NO_OFFSET
from tidelog.records.record import RecordHeader

NO_PARTITION = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END_OF_TIME_MS = 2**63
"""No timestamp of a record is as late: formats hold 63 bits."""


@dataclass(frozen=True, slots=True)
class ProducerRecord(Generic[RecordK_co, RecordV_co]):
    """One record before it is serialized, for ``send`` and for interceptors.

    Args:
        topic: The name of the topic.
        value: The value; None is a null.
        key: The key, or None.
        partition: The partition; None leaves the choice to the partitioner.
        timestamp_ms: Milliseconds since 1970; None means now.
        headers: Pairs of name and bytes.

    Example:
        producer.send(ProducerRecord("orders", b"one espresso", key=b"table-4"))
    """

    topic: str
    value: RecordV_co | None = None
    key: RecordK_co | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[RecordHeader] = ()


class SerializedRecord(NamedTuple):
    """One record as it goes into a batch; ``partition`` is None unless the program has named one."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: Sequence[RecordHeader] = ()
    on_delivery: DeliveryCallback | None = None
    original_key: object = None
    """The key before it was serialized, for an own partitioner; not set on the quick path, which has none."""
    original_value: object = None

    def unwritten(self) -> RecordMetadata:
        """What is told of a record that has failed before it came into a batch."""
        return RecordMetadata(
            self.topic,
            NO_PARTITION if self.partition is None else self.partition,
            NO_OFFSET,
            self.timestamp_ms,
            -1 if self.key is None else len(self.key),
            -1 if self.value is None else len(self.value),
        )


class RecordMetadata(NamedTuple):
    """Where a record was stored.

    Args:
        topic: The topic.
        partition: The partition; -1 where the record failed before one was chosen.
        offset: The offset; -1 with ``acks=0``, and for a duplicate whose offset the broker no longer knows.
        timestamp_ms: Milliseconds since 1970.
        serialized_key_size: Bytes of the key, -1 for none.
        serialized_value_size: Bytes of the value, -1 for none.

    Example:
        metadata = producer.send("orders", b"one espresso").result(timeout=30)
        print(metadata.partition, metadata.offset)
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int = -1
    serialized_value_size: int = -1

    @property
    def has_offset(self) -> bool:
        """Whether the broker has told the record's offset."""
        return self.offset != NO_OFFSET


DeliveryCallback = Callable[[RecordMetadata, Exception | None], object]
"""Called once per record, in the producer's own thread; the error is None where the record was written."""


class InvalidTimestampError(SerializationError, ValueError):
    """A timestamp that no record can have."""


def check_callback(call: str, argument: str, given: object) -> None:
    """Raise ``TypeError`` unless ``given``, an argument of ``call``, is None or can be called."""
    if given is not None and not callable(given):
        raise TypeError(f"{call}() takes {argument} as a function, got {given!r}")


def checked_timestamp(given: object) -> int:
    """The timestamp of a record in milliseconds: a number, or a datetime that knows its zone."""
    if isinstance(given, datetime) and given.tzinfo is not None:
        given = (given - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(given, int | float) and 0 <= given < END_OF_TIME_MS:
        return int(given)
    raise InvalidTimestampError(
        f"timestamp_ms is a number of milliseconds since 1970 or a datetime with a time zone, got {given!r}"
    )
