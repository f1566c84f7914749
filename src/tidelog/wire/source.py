"""Assembling the Python source of one reader or writer, and running it.

``readers`` and ``writers`` use it to turn a message's schema into straight-line code, so that the schema is
walked once per (class, version) and not at each call, and no message needs code written by hand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tidelog.wire.schema import Field

STRUCT_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of fixed size; neighbours among them are packed and unpacked by one ``struct.Struct``."""

MAX_STRING_BYTES = 0x7FFF
"""Kafka refuses longer strings even where the length is a varint that could tell more."""


def is_fixed(field: Field) -> bool:
    """Whether the field always takes the same number of bytes."""
    return not field.array and field.type in STRUCT_CODES


class Source:
    """Lines of one function and the names they refer to."""

    def __init__(self, signature: str) -> None:
        self.lines = [signature]
        self.names: dict[str, Any] = {}
        self.depth = 1

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def bind(self, value: object) -> str:
        """A name under which the generated code sees this object."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def bind_struct(self, codes: list[str]) -> tuple[str, int]:
        """Name and size of a big-endian ``Struct`` of these codes."""
        layout = struct.Struct(">" + "".join(codes))
        return self.bind(layout), layout.size

    def function(self, name: str, title: str) -> Callable[..., Any]:
        """Compile; ``title`` is what a traceback shows as the file name."""
        code = compile("\n".join(self.lines), f"<{title}>", "exec")
        exec(code, self.names)
        result: Callable[..., Any] = self.names.pop(name)
        return result
