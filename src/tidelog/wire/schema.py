"""What a message class says about itself: one :class:`Field` per field, in wire order.

Owns the vocabulary of the generated modules in ``wire/messages``. A message class is
version-neutral: it has the fields of every version, and ``FIELDS`` tells which of them a given version
carries, how, and whether a value may be dropped when the version has no place for it.
``wire/codec`` compiles readers and writers from it; nothing else needs to look inside.

Invariant: ``FIELDS`` names exactly the struct's fields, in the order in which Kafka writes them.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import msgspec

LATEST = 32767
"""Upper end of a version range that is still open."""


class Field(NamedTuple):
    """One field of a message: its type and the versions in which it is present, nullable or tagged."""

    name: str
    type: str | type[Message]
    array: bool = False
    since: int = 0
    until: int = LATEST
    nullable_since: int | None = None
    nullable_until: int = LATEST
    tag: int | None = None
    tagged_since: int = 0
    ignorable: bool = False

    def present_in(self, version: int) -> bool:
        """Whether this version of the message carries the field, tagged or not."""
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        """Whether null may stand for the value in this version."""
        return self.nullable_since is not None and self.nullable_since <= version <= self.nullable_until

    def tagged_in(self, version: int) -> bool:
        """Whether the field travels in the tagged section of this version."""
        return self.tag is not None and version >= self.tagged_since


class Message(msgspec.Struct, kw_only=True):
    """Common ancestor of all requests, responses and the structures nested in them."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()


class Payload(Message, kw_only=True):
    """A whole request or response body: the versions it exists in and the first flexible one."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_SINCE: ClassVar[int]


def flexible_in(payload: type[Payload], version: int) -> bool:
    """Whether this version uses compact lengths and tagged fields (KIP-482)."""
    return version >= payload.FLEXIBLE_SINCE


def defaults_of(message: type[Message]) -> dict[str, object]:
    """Each field's default; fresh objects where the default is mutable."""
    return {field.name: getattr(message(), field.name) for field in message.FIELDS}
