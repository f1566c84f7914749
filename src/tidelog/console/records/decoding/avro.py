"""Avro by fastavro: schemas with those that they refer to, and values without a container file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import msgspec
from fastavro import schemaless_reader
from fastavro.schema import parse_schema

from tidelog.console.records.decoding.frames import NamedText
from tidelog.console.records.decoding.problem import DecodeProblem


class AvroSchema:
    """A schema, ready to decode."""

    def __init__(self, text: str, references: Sequence[NamedText]) -> None:
        named: dict[str, Any] = {}
        try:
            for each in references:
                parse_schema(msgspec.json.decode(each.text), named_schemas=named)
            found = msgspec.json.decode(text)
            self._schema: Any = parse_schema(found, named_schemas=named)
        except Exception as error:  # what fastavro raises on nonsense is any kind of error
            raise DecodeProblem(f"invalid Avro schema ({type(error).__name__})") from None
        self._is_bytes = found == "bytes" or (isinstance(found, dict) and found.get("type") == "bytes")
        self._name = _name(self._schema)

    def decode(self, data: bytes, indexes: bytes | None = None) -> tuple[str, Any]:
        """The record's name, and the value that ``data`` is, all of it; Avro knows no ``indexes``."""
        return self._name, self._value(data)

    def _value(self, data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            value = schemaless_reader(stream, self._schema, None)
        except (MemoryError, RecursionError):
            raise DecodeProblem("its declared size or depth exceeds the limit") from None
        except Exception as error:  # as above
            if self._is_bytes:
                return data
            raise DecodeProblem(f"it does not match its Avro schema ({type(error).__name__})") from None
        left = len(data) - stream.tell()
        if left and self._is_bytes:
            # Java's serializer writes top-level bytes as they are, without Avro's length before them.
            return data
        if left:
            raise DecodeProblem(
                f"{left} of its {len(data)} bytes are left over after decoding it with its Avro schema"
            )
        return value


def _name(schema: Any) -> str:
    if isinstance(schema, dict):
        name = schema.get("name") or schema.get("type", "")
        return name if isinstance(name, str) else ""
    return schema if isinstance(schema, str) else ""
