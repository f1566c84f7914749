"""What the console and the process that decodes say to each other: frames of MsgPack, as for filters.

First ``Bounds``; then ``Compile`` (answered by one ``Answer``) and ``Decode`` (answered by one for each task,
in their order, each sent before the next task is begun: whoever hears nothing more knows which one it was).
"""

from __future__ import annotations

import msgspec


class Bounds(msgspec.Struct, frozen=True):
    """What the process may use: memory in all, and seconds of processor time for a schema and for a field."""

    memory_bytes: int
    schema_cpu_s: float
    field_cpu_s: float


class NamedText(msgspec.Struct, frozen=True):
    """A schema that another one refers to by this name."""

    name: str
    text: str


class Compile(msgspec.Struct, frozen=True, tag_field="order", tag="compile"):
    """Make a schema ready; ``references`` stand after what they refer to themselves."""

    key: str
    type: str
    text: str
    references: list[NamedText]


class Task(msgspec.Struct, frozen=True):
    """Decode one field."""

    format: str
    """``avro``, ``protobuf``, ``jsonschema``; ``msgpack``, ``cbor``, ``binary`` (either); ``internal``."""
    data: bytes
    schema: str = ""
    """The key of one that was compiled."""
    indexes: bytes | None = None
    """Which message of a Protobuf file it is; None: ``data`` begins with that."""
    topic: str = ""
    of_key: bytes | None = None
    """``internal``: the key that ``data`` is the value of; None: it is a key itself."""
    most_bytes: int = 0
    """Of JSON."""


class Decode(msgspec.Struct, frozen=True, tag_field="order", tag="decode"):
    """Decode fields."""

    tasks: list[Task]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """JSON, or why there is none."""

    format: str = ""
    json: bytes | None = None
    problem: str = ""
    name: str = ""
    """Of the record or message."""
