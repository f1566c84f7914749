"""A record as it was read: bytes, what they were decoded to, and which of its parts a mask has changed."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.console.records.decoded import DecodedField

_RECORD_BYTES = 400
"""What a record takes beside its fields."""
HEADER_BYTES = 150
"""What a header takes beside its name and value."""


class RawRecord(NamedTuple):
    """One record; also what goes to the filter's process."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    masked: frozenset[str] = frozenset()
    """``key``, ``value``, ``header <name>``."""
    decoded_key: DecodedField | None = None
    decoded_value: DecodedField | None = None
    """Where a field is neither text nor shown as its bytes; see ``decoding``."""

    @property
    def readable_key(self) -> bytes | None:
        """The key as JSON where it was decoded, else its bytes."""
        return _readable(self.key, self.decoded_key)

    @property
    def readable_value(self) -> bytes | None:
        """The value as JSON where it was decoded, else its bytes."""
        return _readable(self.value, self.decoded_value)

    @property
    def size_bytes(self) -> int:
        """The bytes of its fields."""
        fields = len(self.key or b"") + len(self.value or b"")
        return fields + sum(len(name) + len(value or b"") for name, value in self.headers)

    @property
    def held_bytes(self) -> int:
        """About what it takes in memory, with what it was decoded to."""
        decoded = sum(len(each.json or b"") for each in (self.decoded_key, self.decoded_value) if each)
        return self.size_bytes + decoded + len(self.headers) * HEADER_BYTES + _RECORD_BYTES


def _readable(data: bytes | None, decoded: DecodedField | None) -> bytes | None:
    return data if decoded is None or decoded.json is None else decoded.json
