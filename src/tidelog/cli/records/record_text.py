"""Keys, values and headers as text: what ``consume`` and ``log dump`` print and ``produce`` reads back.

In JSON a field that is UTF-8 is ``"value": "…"``; any other bytes are ``"value_base64": "…"``; null is null.
``fields_from_json`` accepts exactly what ``fields_to_json`` writes, so ``consume --json | produce --json``
copies a topic byte for byte.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from tidelog.printable import printable
from tidelog.records.record import RecordHeader


def bytes_to_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """``data`` as one JSON member called ``name`` or ``name_base64``."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def bytes_from_json(name: str, fields: Mapping[str, object]) -> bytes | None:
    """The inverse of :func:`bytes_to_json`; raises ``ValueError`` with a sentence."""
    encoded = fields.get(f"{name}_base64")
    plain = fields.get(name)
    if encoded is None and (plain is None or isinstance(plain, str)):
        return None if plain is None else plain.encode()
    if isinstance(encoded, str) and plain is None:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise ValueError(f"{name}_base64 is not valid Base64") from None
    raise ValueError(f"use either {name} (a string or null) or {name}_base64, not both")


def headers_to_json(headers: Sequence[RecordHeader]) -> list[dict[str, str | None]]:
    """Headers in their order, duplicates kept."""
    return [{"key": key, **bytes_to_json("value", value)} for key, value in headers]


def headers_from_json(headers: object) -> list[RecordHeader]:
    """A list as :func:`headers_to_json` writes it, or an object of names and strings."""
    if headers is None:
        return []
    if isinstance(headers, Mapping):
        return [(str(key), bytes_from_json("value", {"value": value})) for key, value in headers.items()]
    if not isinstance(headers, Sequence) or isinstance(headers, str):
        raise ValueError("headers must be a list of {key, value} or an object")
    parsed: list[RecordHeader] = []
    for header in headers:
        if not isinstance(header, Mapping) or not isinstance(header.get("key"), str):
            raise ValueError('every header needs a key, as in {"key": "trace", "value": "42"}')
        parsed.append((header["key"], bytes_from_json("value", header)))
    return parsed


def readable(data: bytes | None, *, null: str = "null") -> str:
    """One line for a person: text with control characters escaped, ``base64:…`` for what is no text."""
    if data is None:
        return null
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()
    return printable(text)
