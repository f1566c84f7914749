"""What ``send_batch`` accepts as one record, and as a table of records.

A record is a ``ProducerRecord``, a ``ConsumerRecord`` (its partition belongs to another topic and is not
used), a mapping of ``FIELDS`` or a tuple in the order of ``FIELDS``. Called by ``batch_sender``.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from tidelog.client.producer.record import ProducerRecord
from tidelog.records.record import RecordHeader
from tidelog.records.record_codec import ConsumerRecord

FIELDS = ("key", "value", "headers", "timestamp_ms", "partition")
"""The parts of a record: the names in a mapping, and the order in a tuple."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELD_SET = frozenset((*FIELDS, "topic"))

Headers = Mapping[str, bytes | None] | Sequence[RecordHeader] | None

BatchRecord = ProducerRecord | ConsumerRecord | Mapping[str, Any] | tuple[Any, ...]
"""One record of a ``send_batch``."""


class ArrowStream(Protocol):
    """A table, or a data frame of a library that speaks Arrow's protocol."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArray(Protocol):
    """A record batch of a library that speaks Arrow's protocol."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


BatchInput = Iterable[BatchRecord] | AsyncIterable[BatchRecord] | ArrowStream | ArrowArray
"""What ``send_batch`` takes; asynchronous iterables are for ``AsyncProducer``."""


class InvalidRecordError(TypeError, ValueError):
    """An item of a batch that is not a record."""


class RecordParts(NamedTuple):
    """The arguments of ``send`` for one record."""

    key: object
    value: object
    headers: Headers
    timestamp_ms: int | None
    partition: int | None


def record_parts(item: object, topic: str) -> RecordParts:
    """The parts of one item of a batch; raises ``InvalidRecordError`` for anything but a record."""
    if isinstance(item, ConsumerRecord):
        sent_ms = item.timestamp if item.timestamp >= 0 else None
        return RecordParts(item.key, item.value, item.headers, sent_ms, None)
    key: Any
    value: Any
    headers: Any
    time: Any
    partition: Any
    if isinstance(item, ProducerRecord):
        _check_topic(item.topic, topic)
        key, value, headers = item.key, item.value, item.headers
        time, partition = item.timestamp_ms, item.partition
    elif isinstance(item, tuple):
        if not 2 <= len(item) <= len(FIELDS):
            raise InvalidRecordError(
                f"a record as a tuple has 2 to {len(FIELDS)} fields ({', '.join(FIELDS)}), got {len(item)}"
            )
        key, value, headers, time, partition = (*item, None, None, None)[: len(FIELDS)]
    elif isinstance(item, Mapping):
        if not _FIELD_SET.issuperset(item):
            unknown = sorted(str(name) for name in item if name not in _FIELD_SET)
            raise InvalidRecordError(
                f"a record has no field {unknown[0]!r}; its fields are {', '.join(FIELDS)}"
            )
        if not ("key" in item or "value" in item):
            raise InvalidRecordError("a record has a key or a value, or both; this mapping has neither")
        get = item.get
        key, value, headers = get("key"), get("value"), get("headers")
        time, partition = get("timestamp_ms"), get("partition")
        _check_topic(get("topic", topic), topic)
    else:
        raise InvalidRecordError(
            f"expected a ProducerRecord, a mapping or a tuple ({', '.join(FIELDS)}), "
            f"got {type(item).__name__}"
        )
    if headers is not None and headers != ():
        check_headers(headers)
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidRecordError(f"the timestamp {time} has no time zone: pass an aware datetime")
        time = (time - _EPOCH) // timedelta(milliseconds=1)
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
        raise InvalidRecordError(f"a partition is an int, got {partition!r}")
    return RecordParts(key, value, headers, time, partition)


def check_headers(headers: object) -> None:
    """Raise ``InvalidRecordError`` unless these are headers."""
    if isinstance(headers, Mapping):
        pairs: Any = headers.items()
    elif isinstance(headers, Sequence) and not isinstance(headers, str | bytes):
        pairs = headers
    else:
        raise InvalidRecordError(
            f"headers are a list of (name, value) pairs or a mapping, got {type(headers).__name__}"
        )
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidRecordError(f"a header is a pair of a name and a value, got {pair!r:.80}")
        name, value = pair
        if not isinstance(name, str):
            raise InvalidRecordError(f"a header's name is a str, got {name!r:.80}")
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise InvalidRecordError(f"the value of header {name!r:.80} is bytes or None, got {value!r:.80}")


def check_records(records: object, *, asynchronous: bool = False) -> None:
    """Refuse inputs of a batch that are not collections of records, or that cannot be read here."""
    if isinstance(records, str | bytes | bytearray | memoryview | Mapping | ProducerRecord | ConsumerRecord):
        raise InvalidRecordError(
            f"send_batch takes an iterable of records or a table, got {type(records).__name__}; "
            "put a single record into a list"
        )
    if hasattr(records, "__aiter__") and not asynchronous:
        raise InvalidRecordError("an asynchronous iterable of records needs AsyncProducer.send_batch")
    if not (hasattr(records, "__iter__") or hasattr(records, "__aiter__") or is_table(records)):
        raise InvalidRecordError(
            f"send_batch takes an iterable of records or a table, got {type(records).__name__}"
        )


def is_table(records: object) -> bool:
    """Whether this is a table of Arrow's, or of a library that speaks its protocol (polars, pandas)."""
    return hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__")


def _check_topic(found: object, topic: str) -> None:
    if found != topic:
        raise InvalidRecordError(
            f"the record is for topic {found!r}, and the batch for {topic!r}: send each topic by its own call"
        )
