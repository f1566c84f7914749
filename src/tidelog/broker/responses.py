"""What handlers return: its three shapes, responses of which a part is encoded already, and refusals.

A handler returns a response, an awaitable of one (a coroutine, or a coordinator's ``Promise``), or a step in
slices (a generator) that ends in one of these two. ``refuse_each`` derives the response to a refused request
from the fields of both.

The dispatcher writes long responses in the slow lane. A response is long by the number of its elements and by
the bytes of the fields that hold any number of them.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidelog.errors import KafkaError
from tidelog.scheduling.slices import Slices
from tidelog.wire.schema import Field, Message, Payload

R = TypeVar("R", bound=Payload)
E = TypeVar("E", bound=Message)

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


Response: TypeAlias = Payload | EncodedResponse
Handled: TypeAlias = Response | Awaitable[Response] | Slices[Response | Awaitable[Response]]
"""What ``handle`` returns."""


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


_NAMES = frozenset(
    {
        "entity",
        "group_id",
        "name",
        "partition",
        "partition_id",
        "partition_index",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "transactional_id",
    }
)
"""The fields that name a thing, in requests and in responses."""


def refuse_each(response: type[R], request: Payload, error: KafkaError, *, also_on_top: bool = False) -> R:
    """The response with ``error`` on top, or else for each thing that the request names.

    ``also_on_top``: both.
    """
    refused = _error_fields(response, error)
    if not refused or also_on_top:
        for field in response.FIELDS:
            if _holds_errors(field):
                refused[field.name] = _refused_things(field, request, error)
    return response(**refused)


def refused_element(kind: type[E], thing: object, error: KafkaError) -> E:
    """One element of a response, with ``error`` for ``thing`` or for each thing in it."""
    return kind(**_refused_fields(kind, thing, error))


def _refused_things(field: Field, request: object, error: KafkaError) -> list[Message]:
    kind: Any = field.type
    return [refused_element(kind, thing, error) for thing in _named_things(field.name, request)]


def _refused_fields(kind: type[Message], thing: object, error: KafkaError) -> dict[str, Any]:
    """The fields of one element of a response: its names, and its error or those of its own elements."""
    refused = _error_fields(kind, error)
    has_error = bool(refused)
    for field in kind.FIELDS:
        if field.name in _NAMES:
            if not isinstance(thing, Message):
                # An array of names or numbers has no structures.
                return {**refused, field.name: thing}
            if hasattr(thing, field.name):
                refused[field.name] = getattr(thing, field.name)
        elif not has_error and _holds_errors(field):
            refused[field.name] = _refused_things(field, thing, error)
    return refused


def _named_things(name: str, request: object) -> Iterable[object]:
    """The elements of the request's array of that name, or of its first one."""
    if not isinstance(request, Message):
        return ()
    arrays = [field.name for field in request.FIELDS if field.array]
    return getattr(request, name if name in arrays else arrays[0]) or ()


def _error_fields(message: type[Message], error: KafkaError) -> dict[str, Any]:
    fields = message.__struct_fields__
    if "error_code" not in fields:
        return {}
    if "error_message" not in fields:
        return {"error_code": error.code}
    return {"error_code": error.code, "error_message": error.message or None}


@cache
def _holds_errors(field: Field) -> bool:
    """Whether the elements of an array have errors of their own, or elements that have."""
    if not field.array or isinstance(field.type, str):
        return False
    return "error_code" in field.type.__struct_fields__ or any(map(_holds_errors, field.type.FIELDS))
