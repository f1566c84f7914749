"""A record as the API gives it: bytes as text where they are text, as JSON where they were decoded, else as
hexadecimal digits; cut to size.

Nothing is interpreted: pages show every field as inert text. Fields longer than ``FIELD_BYTES`` are cut, and
say how long they are; a record asked for by its offset has ``WHOLE_BYTES`` of each. Of headers the first
``HEADERS`` are shown: a megabyte holds half a million.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tidelog.console.records.decoded import DecodedField, SchemaName
from tidelog.console.records.decoding.choice import AUTOMATIC, Choice, Format
from tidelog.console.records.raw import HEADER_BYTES, RawRecord
from tidelog.decode_errors import DECODE_ERRORS

FIELD_BYTES = 4096
WHOLE_BYTES = 2 * 1024 * 1024
HEADERS = 500
_HEX_BYTES = 2048


class ShownField(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes for a person; ``masked``: some of it is hidden."""

    kind: Literal["null", "text", "json", "hex"]
    text: str = ""
    """What ``kind`` says: text, JSON, or digits."""
    format: str = ""
    """What the JSON was decoded from: avro, protobuf, jsonschema, msgpack, cbor, internal."""
    schema: SchemaName | None = None
    problem: str = ""
    """Why it was not decoded."""
    hex: str = ""
    """The bytes of a decoded field."""
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
    more_headers: int = 0
    """So many come after those."""

    @property
    def held_bytes(self) -> int:
        """About what it takes in memory."""
        fields = (self.key, self.value, *(each.value for each in self.headers))
        names = sum(len(each.name) for each in self.headers)  # of which nothing is cut
        return names + sum(len(each.text) + len(each.hex) + HEADER_BYTES for each in fields)


def shown_record(record: RawRecord, limit: int = FIELD_BYTES, choice: Choice = AUTOMATIC) -> ShownRecord:
    """``record`` with each field cut to ``limit`` bytes."""
    key_is_masked, value_is_masked = "key" in record.masked, "value" in record.masked
    return ShownRecord(
        record.partition,
        record.offset,
        record.timestamp_ms,
        shown_field(record.key, limit, record.decoded_key, choice.key, masked=key_is_masked),
        shown_field(record.value, limit, record.decoded_value, choice.value, masked=value_is_masked),
        [
            ShownHeader(name, shown_field(value, limit, masked=f"header {name}" in record.masked))
            for name, value in record.headers[:HEADERS]
        ],
        max(len(record.headers) - HEADERS, 0),
    )


def shown_field(
    data: bytes | None,
    limit: int = FIELD_BYTES,
    decoded: DecodedField | None = None,
    format_: Format = "auto",
    *,
    masked: bool = False,
) -> ShownField:
    """One field."""
    if data is None:
        return ShownField("null", masked=masked)
    if decoded is not None and decoded.json is not None:
        text, cut = _text(decoded.json, limit) or ("", True)
        digits = "" if data == decoded.json else data[: _most_digits(limit)].hex()
        return ShownField("json", text, decoded.format, decoded.schema, "", digits, len(data), cut, masked)
    if decoded is None:
        return _as_bytes(data, limit, format_, masked=masked)
    # What should have been decoded is no text, even where its bytes could be some.
    shown = _as_bytes(data, limit, "auto" if masked else "hex", masked=masked)
    return msgspec.structs.replace(shown, problem=decoded.problem, schema=decoded.schema)


def _as_bytes(data: bytes, limit: int, format_: Format, *, masked: bool) -> ShownField:
    """Text if it is text, unless somebody wants it otherwise."""
    size = len(data)
    found = None if format_ == "hex" else _text(data, limit)
    if found is None and format_ == "text":
        found = data[:limit].decode("utf-8", "replace"), size > limit
    if found is None or (format_ == "json" and not _is_json(data, any_value=True)):
        most = _most_digits(limit)
        problem = "it is not JSON" if format_ == "json" else ""
        return ShownField(
            "hex", data[:most].hex(), problem=problem, size=size, cut=size > most, masked=masked
        )
    is_json = format_ == "json" or (format_ != "text" and _is_json(data))
    return ShownField("json" if is_json else "text", found[0], size=size, cut=found[1], masked=masked)


def _most_digits(limit: int) -> int:
    """The bytes that are shown as digits; of a field that is not whole half as many, as each takes two."""
    return min(limit, _HEX_BYTES) if limit == FIELD_BYTES else limit


def _text(data: bytes, limit: int) -> tuple[str, bool] | None:
    """The beginning of ``data`` as text, and whether more comes; None if it is none."""
    cut = len(data) > limit
    try:
        return data[:limit].decode("utf-8"), cut
    except UnicodeDecodeError as error:
        # Cut within a character? Then what is before it is text.
        if not (cut and error.start >= limit - 3):
            return None
        return data[: error.start].decode("utf-8"), True


def _is_json(data: bytes, *, any_value: bool = False) -> bool:
    """Whether it is a JSON object or list, all of it; numbers and words are text like any other."""
    if not any_value and data[:64].lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        data.decode("utf-8")  # which is not looked at below
        msgspec.json.decode(data, type=msgspec.Raw)
    except DECODE_ERRORS:
        return False  # or nested too deeply to be looked through: it is text
    return True
