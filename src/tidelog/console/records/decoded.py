"""A field of a record as what its format says: JSON, or a sentence why there is none; and its schema."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class SchemaName(msgspec.Struct, frozen=True, omit_defaults=True):
    """The schema of a field, for people; ``subject`` is the topic's own, if it was registered under one."""

    type: str
    id: int | None = None
    guid: str = ""
    subject: str = ""
    version: int | None = None
    name: str = ""
    """The record or message that the field is."""


class DecodedField(NamedTuple):
    """What the bytes of a key or value say."""

    format: str = ""
    json: bytes | None = None
    """JSON in UTF-8; None where it could not be made."""
    problem: str = ""
    """Why not; never a part of the field, which may be masked."""
    schema: SchemaName | None = None
    is_certain: bool = True
    """False where somebody chose the format, so that the names of fields may be others than the writer's."""
