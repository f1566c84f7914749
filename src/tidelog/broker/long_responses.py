"""Which responses are long, and responses of which a part is encoded already.

The dispatcher writes long responses in the slow lane. A response is long by the number of its elements and by
the bytes of the fields that hold any number of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from tidelog.wire.schema import Message, Payload

# A response with fewer elements than this is written at once. So many bytes in fields that hold any number of
# them take as long to write as an element.
_LONG_ELEMENTS = 1000
_BYTES_PER_ELEMENT = 1024


class EncodedResponse(NamedTuple):
    """A response whose longest array is there already as bytes, from a cache."""

    message: Payload
    array: str
    length: int
    elements: bytes
    refused: Mapping[int, int]
    """The errors of elements and of the items in them, and how often."""
    none: int
    """How many of them have no error."""


def is_long(response: Payload) -> bool:
    """Whether a response should be written in slices."""
    return _count(response, _LONG_ELEMENTS) <= 0


def _count(message: Message, left: int) -> int:
    """What is left of ``left`` after what is in the message, at least until it is used up."""
    for name, kind in _lengthy(type(message)):
        value = getattr(message, name)
        if not value:
            continue
        if kind is _Kind.STRUCTURE:
            left = _count(value, left)
        elif kind is _Kind.BYTES:
            left -= len(value) // _BYTES_PER_ELEMENT
        else:
            left -= len(value)
            if kind is _Kind.ARRAY_OF_LENGTHY:
                for element in value:
                    if left <= 0:
                        return left
                    left = _count(element, left)
    return left


class _Kind(enum.Enum):
    """How a field can be of any length."""

    BYTES = enum.auto()
    STRUCTURE = enum.auto()
    ARRAY = enum.auto()
    ARRAY_OF_LENGTHY = enum.auto()


@cache
def _lengthy(message: type[Message]) -> tuple[tuple[str, _Kind], ...]:
    """The fields of a message, by name, that can be of any length; strings cannot."""
    found: list[tuple[str, _Kind]] = []
    for field in message.FIELDS:
        nests = not isinstance(field.type, str) and bool(_lengthy(field.type))
        if field.array:
            found.append((field.name, _Kind.ARRAY_OF_LENGTHY if nests else _Kind.ARRAY))
        elif nests:
            found.append((field.name, _Kind.STRUCTURE))
        elif field.type in ("bytes", "records"):
            found.append((field.name, _Kind.BYTES))
    return tuple(found)
