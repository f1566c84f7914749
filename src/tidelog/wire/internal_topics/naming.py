"""The records of ``__consumer_offsets`` and ``__transaction_state`` as trees of named fields, for people.

A key's type gives its name (``OffsetCommit``, ``GroupMetadata`` …); fields have the names of Kafka's schemas.
Subscriptions and assignments that consumers keep in classic groups are opened, too. Used by ``tidelog log
dump`` and by the console.
"""

from __future__ import annotations

import base64
import struct
from typing import Any

from tidelog.errors import KafkaError, WireError
from tidelog.ids import Uuid, uuid_to_text
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


def type_name(key: Payload) -> str:
    """What kind of record a key is of."""
    return type(key).__name__.removesuffix("Key")


def value_version(data: bytes) -> int:
    """The version of the schema that a value was written in; it has two bytes at least."""
    version: int = _INT16.unpack_from(data)[0]
    return version


def named_fields(message: Message) -> dict[str, Any]:
    """The fields of a key or value by their names, ready for JSON."""
    return {field.name: _value(field, getattr(message, field.name)) for field in message.FIELDS}


def _value(field: Field, value: Any) -> Any:
    match value:
        case list():
            return [_value(field, each) for each in value]
        case Message():
            return named_fields(value)
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
            return named_fields(decode(payload, version, data, _INT16.size)[0])
        except (WireError, KafkaError):
            # Written by a client that is no consumer: shown as it is.
            pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
