"""Shows the records of ``__consumer_offsets`` and ``__transaction_state`` readably, for ``tidelog log dump``.

A key's type gives its name (``OffsetCommit``, ``GroupMetadata`` …); fields have the names of Kafka's schemas.
Subscriptions and assignments that consumers keep in classic groups are opened, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tidelog.cli.output import time_text
from tidelog.cli.records.record_text import bytes_to_json
from tidelog.errors import CorruptRecordError, KafkaError, WireError
from tidelog.ids import ZERO_UUID, Uuid, uuid_to_text
from tidelog.records.record import Record
from tidelog.wire.codec import decode
from tidelog.wire.internal_topics import consumer_offsets as offsets
from tidelog.wire.internal_topics import transaction_state as transactions
from tidelog.wire.internal_topics.decode import RecordSchemas
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tidelog.wire.schema import Field, Message, Payload

CONSUMER_OFFSETS = RecordSchemas(
    [
        (offsets.LegacyOffsetCommitKey, offsets.LegacyOffsetCommitValue),
        (offsets.OffsetCommitKey, offsets.OffsetCommitValue),
        (offsets.GroupMetadataKey, offsets.GroupMetadataValue),
        (offsets.ConsumerGroupMetadataKey, offsets.ConsumerGroupMetadataValue),
        (offsets.ConsumerGroupPartitionMetadataKey, offsets.ConsumerGroupPartitionMetadataValue),
        (offsets.ConsumerGroupMemberMetadataKey, offsets.ConsumerGroupMemberMetadataValue),
        (
            offsets.ConsumerGroupTargetAssignmentMetadataKey,
            offsets.ConsumerGroupTargetAssignmentMetadataValue,
        ),
        (offsets.ConsumerGroupTargetAssignmentMemberKey, offsets.ConsumerGroupTargetAssignmentMemberValue),
        (offsets.ConsumerGroupCurrentMemberAssignmentKey, offsets.ConsumerGroupCurrentMemberAssignmentValue),
        (offsets.ConsumerGroupRegularExpressionKey, offsets.ConsumerGroupRegularExpressionValue),
    ]
)
TRANSACTION_STATE = RecordSchemas([(transactions.TransactionLogKey, transactions.TransactionLogValue)])

_INT16 = struct.Struct(">h")
_SAYS_NOTHING: tuple[object, ...] = (None, [], "", -1, uuid_to_text(ZERO_UUID))
_OPENED: dict[str, type[Payload]] = {
    "subscription": ConsumerProtocolSubscription,
    "metadata": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}
_NAMES = {
    "transaction_status": (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ),
    "state": ("Stable", "UnrevokedPartitions", "UnreleasedPartitions"),
}


def internal_text(record: Record, schemas: RecordSchemas) -> str:
    """One line: the record's type, its key, and its value or that it is deleted; without unset fields."""
    try:
        key, value = _decoded(record, schemas)
    except CorruptRecordError as error:
        return f"unreadable: {error}"
    fields = _line(key)
    return f"{_type_name(key)} {fields} → {'deleted' if value is None else _line(value)}"


def internal_json(record: Record, schemas: RecordSchemas) -> dict[str, Any]:
    """The members that stand for a record's key and value."""
    try:
        key, value = _decoded(record, schemas)
    except CorruptRecordError as error:
        return {
            "problem": str(error),
            **bytes_to_json("key", record.key),
            **bytes_to_json("value", record.value),
        }
    version = None if record.value is None else _INT16.unpack_from(record.value)[0]
    return {
        "record_type": _type_name(key),
        "key": _fields(key),
        "value_version": version,
        "value": None if value is None else _fields(value),
    }


def _decoded(record: Record, schemas: RecordSchemas) -> tuple[Payload, Payload | None]:
    if record.key is None:
        raise CorruptRecordError("a record without a key")
    key = schemas.decode_key(record.key)
    return key, schemas.decode_value(key, record.value)


def _type_name(key: Payload) -> str:
    return type(key).__name__.removesuffix("Key")


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: _value(field, getattr(message, field.name)) for field in message.FIELDS}


def _value(field: Field, value: Any) -> Any:
    match value:
        case list():
            return [_value(field, each) for each in value]
        case Message():
            return _fields(value)
        case bytes() if field.type == "uuid":
            return uuid_to_text(Uuid(value))
        case bytes():
            return _opened(field.name, value)
        case int() if field.name in _NAMES and value in range(len(_NAMES[field.name])):
            return _NAMES[field.name][value]
    return value


def _opened(name: str, data: bytes) -> Any:
    payload = _OPENED.get(name)
    if payload is not None and len(data) >= _INT16.size:
        version = min(max(_INT16.unpack_from(data)[0], 0), payload.VERSIONS[1])
        try:
            return _fields(decode(payload, version, data, _INT16.size)[0])
        except (WireError, KafkaError):
            # Written by a client that is no consumer: shown as it is.
            pass
    return next(iter(bytes_to_json(name, data).values()))


def _line(message: Message) -> str:
    return " ".join(_words(_fields(message)))


def _words(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if value in _SAYS_NOTHING:
            continue
        if name.endswith(("timestamp", "timestamp_ms")) and isinstance(value, int):
            text = time_text(value)
        else:
            text = _word(value)
        yield f"{name}={text}"


def _word(value: Any) -> str:
    match value:
        case dict():
            return "{" + " ".join(_words(value)) + "}"
        case list():
            return "[" + ", ".join(map(_word, value)) + "]"
        case str():
            return value if value.isprintable() and value and " " not in value else repr(value)
    return str(value)
