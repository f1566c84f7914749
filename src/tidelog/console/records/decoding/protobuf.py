"""Protobuf: a file with those that it imports, made ready; and messages of it as maps of named fields.

Fields have the names of the .proto file, whole numbers of 64 bits are numbers, enums the names of their
values. Fields without presence are shown with their defaults. Timestamps, durations, wrappers, structs and
``Any`` of a known type are shown as what they mean.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from tidelog.console.records.decoding.frames import NamedText
from tidelog.console.records.decoding.problem import DecodeProblem
from tidelog.console.records.decoding.proto_text import file_of_text
from tidelog.console.records.decoding.well_known import well_known_file

_MOST_INDEXES = 64
_DEEPEST = 100
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class ProtobufSchema:
    """A file, ready to decode messages of it."""

    def __init__(self, text: str, references: Sequence[NamedText]) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._known: set[str] = set()
        try:
            for each in references:
                self._add(_file("", each.name, each.text))
            made = _file("main.proto", "", text)
            self._add(made)
            self._file: FileDescriptor = self._pool.FindFileByName(made.name)
        except DecodeProblem:
            raise
        except (TypeError, KeyError, ValueError, RecursionError) as error:
            raise DecodeProblem(
                f"cannot resolve the schema's types ({type(error).__name__}): does it import a file "
                "that its registry references do not list?"
            ) from None

    def decode(self, data: bytes, indexes: bytes | None) -> tuple[str, dict[str, Any]]:
        """A message's name and fields."""
        places, start = _indexes(data if indexes is None else indexes)
        kind = self._kind(places)
        message = message_factory.GetMessageClass(kind)()
        try:
            message.ParseFromString(data[start:] if indexes is None else data)
        except (DecodeError, MemoryError, RecursionError):
            raise DecodeProblem("it does not match its Protobuf schema") from None
        return kind.full_name, self._fields(message, 0)

    def _add(self, made: FileDescriptorProto) -> None:
        if made.name in self._known:
            return
        self._known.add(made.name)
        for name in made.dependency:
            if name not in self._known:
                self._add(well_known_file(name))
        self._pool.AddSerializedFile(made.SerializeToString())

    def _kind(self, places: Sequence[int]) -> Descriptor:
        found: Descriptor | None = None
        for place in places:
            # Entries of maps are messages for the library, but nobody wrote them, and no index counts them.
            inside = self._file.message_types_by_name.values() if found is None else found.nested_types
            written = [each for each in inside if not each.GetOptions().map_entry]
            if not 0 <= place < len(written):
                raise DecodeProblem("its message index does not exist in its Protobuf schema")
            found = written[place]
        assert found is not None
        return found

    def _fields(self, message: Message, depth: int) -> dict[str, Any]:
        if depth > _DEEPEST:
            raise DecodeProblem(f"it is nested more than {_DEEPEST} deep")
        shown: dict[str, Any] = {}
        for field in message.DESCRIPTOR.fields:
            if field.has_presence and not message.HasField(field.name):
                continue
            shown[field.name] = self._field(field, getattr(message, field.name), depth)
        return shown

    def _field(self, field: Any, value: Any, depth: int) -> Any:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of = kind.fields_by_name["value"]
            return {_map_key(key): self._one(of, value[key], depth) for key in value}
        if field.is_repeated:
            return [self._one(field, each, depth) for each in value]
        return self._one(field, value, depth)

    def _one(self, field: Any, value: Any, depth: int) -> Any:
        if field.message_type is not None:
            return self._message(value, depth + 1)
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            return value if named is None else named.name
        return value

    def _message(self, message: Message, depth: int) -> Any:
        value: Any = message
        name = message.DESCRIPTOR.full_name
        if name == "google.protobuf.Timestamp":
            try:
                at = _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
            except OverflowError:
                return self._fields(message, depth)
            return at.isoformat().replace("+00:00", "Z")
        if name == "google.protobuf.Duration":
            return value.seconds + value.nanos / 1e9
        if name in _WRAPPERS:
            return value.value
        if name == "google.protobuf.Struct":
            return {key: self._message(value.fields[key], depth + 1) for key in value.fields}
        if name == "google.protobuf.ListValue":
            return [self._message(each, depth + 1) for each in value.values]
        if name == "google.protobuf.Value":
            return self._value(value, depth)
        if name == "google.protobuf.Any":
            return self._any(value, depth)
        return self._fields(message, depth)

    def _value(self, value: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise DecodeProblem(f"it is nested more than {_DEEPEST} deep")
        kind = value.WhichOneof("kind")
        if kind is None or kind == "null_value":
            return None
        found = getattr(value, kind)
        return self._message(found, depth + 1) if isinstance(found, Message) else found

    def _any(self, value: Any, depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {"@type": value.type_url}
        try:
            kind = self._pool.FindMessageTypeByName(value.type_url.rpartition("/")[2])
            inner = message_factory.GetMessageClass(kind)()
            inner.ParseFromString(value.value)
        except (KeyError, DecodeError):
            return {**shown, "value": value.value}
        found = self._message(inner, depth + 1)
        return {**shown, **found} if isinstance(found, dict) else {**shown, "value": found}


def _file(fallback: str, name: str, text: str) -> FileDescriptorProto:
    """A file of its text, or of a descriptor in base64, as some serializers register it."""
    made = _of_descriptor(text) or file_of_text(name or fallback, text)
    if name:
        made.name = name
    elif not made.name:
        made.name = fallback
    return made


def _of_descriptor(text: str) -> FileDescriptorProto | None:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _indexes(data: bytes) -> tuple[list[int], int]:
    """The numbers of the message, from the outermost in, and where they end; none are the first message."""
    count, at = _varint(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= _MOST_INDEXES:
        raise DecodeProblem("its Protobuf message indexes are invalid")
    places = []
    for _ in range(count):
        place, at = _varint(data, at)
        places.append(place)
    return places, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise DecodeProblem("its Protobuf message indexes are invalid")


def _map_key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)
