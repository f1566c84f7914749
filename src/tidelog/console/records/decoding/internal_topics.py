"""Records of ``__consumer_offsets`` and ``__transaction_state``: groups, offsets, transactions as trees."""

from __future__ import annotations

from typing import Any

from tidelog.console.records.decoding.problem import DecodeProblem
from tidelog.errors import CorruptRecordError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.wire.internal_topics.naming import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    named_fields,
    type_name,
    value_version,
)

_SCHEMAS = {CONSUMER_OFFSETS_TOPIC: CONSUMER_OFFSETS, TRANSACTION_STATE_TOPIC: TRANSACTION_STATE}


def decode_internal(topic: str, data: bytes, of_key: bytes | None) -> tuple[str, dict[str, Any]]:
    """The type of a record, and the fields of its key, or of its value where ``of_key`` is the key of it."""
    schemas = _SCHEMAS[topic]
    try:
        key = schemas.decode_key(data if of_key is None else of_key)
        if of_key is None:
            return type_name(key), {"record_type": type_name(key), **named_fields(key)}
        value = schemas.decode_value(key, data)
    except CorruptRecordError as error:
        raise DecodeProblem(str(error)) from None
    assert value is not None
    return type_name(key), {"value_version": value_version(data), **named_fields(value)}
