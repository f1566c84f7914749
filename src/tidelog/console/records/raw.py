"""A record as it was read: bytes, and which of its parts a mask has changed."""

from __future__ import annotations

from typing import NamedTuple


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

    @property
    def size_bytes(self) -> int:
        """The bytes of its fields."""
        fields = len(self.key or b"") + len(self.value or b"")
        return fields + sum(len(name) + len(value or b"") for name, value in self.headers)
