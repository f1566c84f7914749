"""Shows the records of ``__consumer_offsets`` and ``__transaction_state`` readably, for ``tidelog log dump``.

What fields there are and how they are named is in ``wire/internal_topics/naming``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelog.cli.output import time_text
from tidelog.cli.records.record_text import bytes_to_json
from tidelog.errors import CorruptRecordError
from tidelog.ids import ZERO_UUID, uuid_to_text
from tidelog.records.record import Record
from tidelog.wire.internal_topics.decode import RecordSchemas
from tidelog.wire.internal_topics.naming import named_fields, type_name, value_version
from tidelog.wire.schema import Message, Payload

_SAYS_NOTHING: tuple[object, ...] = (None, [], "", -1, uuid_to_text(ZERO_UUID))


def internal_text(record: Record, schemas: RecordSchemas) -> str:
    """One line: the record's type, its key, and its value or that it is deleted; without unset fields."""
    try:
        key, value = _decoded(record, schemas)
    except CorruptRecordError as error:
        return f"unreadable: {error}"
    fields = _line(key)
    return f"{type_name(key)} {fields} → {'deleted' if value is None else _line(value)}"


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
    version = None if record.value is None else value_version(record.value)
    return {
        "record_type": type_name(key),
        "key": named_fields(key),
        "value_version": version,
        "value": None if value is None else named_fields(value),
    }


def _decoded(record: Record, schemas: RecordSchemas) -> tuple[Payload, Payload | None]:
    if record.key is None:
        raise CorruptRecordError("a record without a key")
    key = schemas.decode_key(record.key)
    return key, schemas.decode_value(key, record.value)


def _line(message: Message) -> str:
    return " ".join(_words(named_fields(message)))


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
