"""A record as the API gives it: bytes as text where they are text, else as hexadecimal digits; cut to size.

Nothing is interpreted: pages show every field as inert text. Fields longer than ``FIELD_BYTES`` are cut, and
say how long they are; a record asked for by its offset has ``WHOLE_BYTES`` of each.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tidelog.console.records.raw import RawRecord

FIELD_BYTES = 4096
WHOLE_BYTES = 2 * 1024 * 1024
_HEX_BYTES = 2048
_MSGPACK_BYTES = 64 * 1024


class ShownField(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes for a person; ``masked``: some of it is hidden."""

    kind: Literal["null", "text", "json", "hex"]
    text: str = ""
    msgpack: str = ""
    """What the bytes say as MsgPack, as JSON; of objects and lists that are no text."""
    size: int = 0
    cut: bool = False
    masked: bool = False


class ShownHeader(msgspec.Struct, frozen=True):
    """One header; the same name may come again."""

    name: str
    value: ShownField


class ShownRecord(msgspec.Struct, frozen=True):
    """A record for a person."""

    partition: int
    offset: int
    timestamp_ms: int
    key: ShownField
    value: ShownField
    headers: list[ShownHeader]


def shown_record(record: RawRecord, limit: int = FIELD_BYTES) -> ShownRecord:
    """``record`` with each field cut to ``limit`` bytes."""
    return ShownRecord(
        record.partition,
        record.offset,
        record.timestamp_ms,
        shown_field(record.key, limit, masked="key" in record.masked),
        shown_field(record.value, limit, masked="value" in record.masked),
        [
            ShownHeader(name, shown_field(value, limit, masked=f"header {name}" in record.masked))
            for name, value in record.headers
        ],
    )


def shown_field(data: bytes | None, limit: int = FIELD_BYTES, *, masked: bool = False) -> ShownField:
    """One field."""
    if data is None:
        return ShownField("null", masked=masked)
    cut = len(data) > limit
    try:
        text = data[:limit].decode("utf-8")
    except UnicodeDecodeError as error:
        # Cut within a character? Then what is before it is text.
        if not (cut and error.start >= limit - 3):
            most = min(limit, _HEX_BYTES) if limit == FIELD_BYTES else limit
            return ShownField(
                "hex", data[:most].hex(), _as_msgpack(data), len(data), len(data) > most, masked
            )
        text = data[: error.start].decode("utf-8")
    return ShownField("json" if _is_json(data) else "text", text, "", len(data), cut, masked)


def _as_msgpack(data: bytes) -> str:
    if len(data) > _MSGPACK_BYTES:
        return ""
    try:
        found = msgspec.msgpack.decode(data)
        return msgspec.json.encode(found).decode() if isinstance(found, dict | list) else ""
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return ""


def _is_json(data: bytes) -> bool:
    """Whether it is a JSON object or list, all of it; numbers and words are text like any other."""
    if data[:64].lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
