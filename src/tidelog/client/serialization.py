"""Serializers and deserializers: from a program's values to bytes and back.

An option such as ``value.serializer`` takes an instance, a function of one value, the type ``str`` or
``bytes``, the name of one that is here (``bytes``, ``str``, ``json``, ``msgpack``) or the name that Java's
clients use for it.
``serializer_for`` and ``deserializer_for`` read it; both give None for plain bytes, so that the common case
costs no call. Null stays null in both directions: it is a tombstone, never the text of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

import msgspec

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import ConfigError, TidelogError

SerializeFn = Callable[[str, Any], bytes | None]
"""Topic and value to bytes."""
DeserializeFn = Callable[[str, bytes | None], Any]
"""Topic and bytes to value."""


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class SerializationError(TidelogError):
    """A value that a serializer refuses, or bytes that a deserializer cannot read."""


@runtime_checkable
class Serializer(Protocol[T_contra]):
    """Turns values into bytes."""

    def serialize(self, topic: str, value: T_contra | None) -> bytes | None:
        """The bytes of ``value``; None is a null."""


@runtime_checkable
class Deserializer(Protocol[T_co]):
    """Turns bytes into values."""

    def deserialize(self, topic: str, data: bytes | None) -> T_co | None:
        """The value in ``data``; None is a null."""


if TYPE_CHECKING:

    class SerializerName(Protocol[T_co]):
        """A name such as ``"json"``, which any ``str`` is: type checkers read the values as ``Any``.

        A name says nothing about the type of values. Both of the members below are ``Any`` for every ``str``;
        the first one binds ``T`` in mypy, the second one in pyright.
        """

        def __getattribute__(self, name: str, /) -> T_co: ...

        @property
        def __dict__(self) -> Mapping[str, T_co]: ...  # type: ignore[override]

        def isidentifier(self) -> bool: ...

    # What the options take; see `serializer_for` and `deserializer_for`.
    SerializerOption: TypeAlias = (
        Serializer[T] | type[Serializer[T]] | Callable[[T], bytes | None] | SerializerName[T]
    )
    DeserializerOption: TypeAlias = (
        Deserializer[T] | type[Deserializer[T]] | Callable[[bytes], T] | SerializerName[T]
    )


class BytesSerializer(Serializer[bytes]):
    """Bytes as they are; anything else is refused, for guessing an encoding would hide mistakes."""

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The bytes of ``value``; None stays None."""
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise SerializationError(
            f"a {type(value).__name__} cannot be sent to topic {topic!r} as bytes; "
            "encode it, or set value_serializer or key_serializer ('str', 'json', …)"
        )


class BytesDeserializer(Deserializer[bytes]):
    """Bytes as they are."""

    def deserialize(self, topic: str, data: bytes | None) -> bytes | None:
        """The value that ``data`` holds; None stays None."""
        return data


class StringSerializer(Serializer[str]):
    """Text in one encoding, UTF-8 if no other is named."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The bytes of ``value``; None stays None."""
        if value is None:
            return None
        if not isinstance(value, str):
            raise SerializationError(
                f"a {type(value).__name__} cannot be sent to topic {topic!r} as text; pass a str"
            )
        return value.encode(self._encoding)


class StringDeserializer(Deserializer[str]):
    """Text in one encoding, UTF-8 if no other is named."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def deserialize(self, topic: str, data: bytes | None) -> str | None:
        """The value that ``data`` holds; None stays None."""
        if data is None:
            return None
        try:
            return str(data, self._encoding)
        except UnicodeDecodeError as error:
            raise SerializationError(
                f"a record of topic {topic!r} is no {self._encoding}: {error}"
            ) from error


class JsonSerializer(Serializer[Any]):
    """JSON by the standard library, without blanks; :class:`MsgspecSerializer` is typed and faster."""

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The bytes of ``value``; None stays None."""
        if value is None:
            return None
        try:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"a value for topic {topic!r} is no JSON: {error}") from error


class JsonDeserializer:
    """JSON by the standard library."""

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        """The value that ``data`` holds; None stays None."""
        if data is None:
            return None
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"a record of topic {topic!r} is no JSON: {error}") from error


def _msgspec_format(name: str) -> Any:
    if name not in ("json", "msgpack"):
        raise ConfigError(f"msgspec knows the formats 'json' and 'msgpack', not {name!r}")
    return msgspec.json if name == "json" else msgspec.msgpack


class MsgspecSerializer(Serializer[Any]):
    """Writes JSON or MessagePack by msgspec: structs, dataclasses, dates and so on.

    Args:
        format: ``"json"`` or ``"msgpack"``.

    Example:
        Producer(bootstrap_servers="127.0.0.1:9092", value_serializer=MsgspecSerializer())
    """

    def __init__(self, format: str = "json") -> None:
        self._encode: Callable[[Any], bytes] = _msgspec_format(format).Encoder().encode

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The bytes of ``value``; None stays None."""
        if value is None:
            return None
        try:
            return self._encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"a value for topic {topic!r} cannot be encoded: {error}") from error


class MsgspecDeserializer(Generic[T]):
    """Reads JSON or MessagePack by msgspec into values of one type, checked as they are read.

    Args:
        type: The type of the values; without it they are plain dicts, lists and so on.
        format: ``"json"`` or ``"msgpack"``.

    Example:
        Consumer(bootstrap_servers="127.0.0.1:9092", value_deserializer=MsgspecDeserializer(Order))
    """

    @overload
    def __init__(self, type: type[T], format: Literal["json", "msgpack"] = "json") -> None: ...

    @overload
    def __init__(
        self: MsgspecDeserializer[Any], type: Any = Any, format: Literal["json", "msgpack"] = "json"
    ) -> None: ...

    def __init__(self, type: Any = Any, format: str = "json") -> None:
        self._decode: Callable[[bytes], T] = _msgspec_format(format).Decoder(type).decode

    def deserialize(self, topic: str, data: bytes | None) -> T | None:
        """The value that ``data`` holds; None stays None."""
        if data is None:
            return None
        try:
            return self._decode(data)
        except DECODE_ERRORS as error:
            raise SerializationError(
                f"a record of topic {topic!r} does not hold what was expected: {error}"
            ) from error


_SERIALIZERS: dict[str, Callable[[], Serializer[Any]]] = {
    "bytes": BytesSerializer,
    "str": StringSerializer,
    "json": JsonSerializer,
    "msgpack": lambda: MsgspecSerializer("msgpack"),
}
_DESERIALIZERS: dict[str, Callable[[], Deserializer[Any]]] = {
    "bytes": BytesDeserializer,
    "str": StringDeserializer,
    "json": JsonDeserializer,
    "msgpack": lambda: MsgspecDeserializer(format="msgpack"),
}
# Called as functions, these would make the text "b'...'" of bytes.
_TYPE_NAMES: dict[object, str] = {bytes: "bytes", str: "str"}
_JAVA_PACKAGE = "org.apache.kafka.common.serialization."
_JAVA_NAMES = {"ByteArray": "bytes", "ByteBuffer": "bytes", "Bytes": "bytes", "String": "str"}


def _known_name(spec: str, suffix: str) -> str:
    plain = spec.removeprefix(_JAVA_PACKAGE).removesuffix(suffix)
    return _JAVA_NAMES.get(plain, "str" if plain == "string" else plain)


def serializer_for(spec: object, option: str = "value.serializer") -> SerializeFn | None:
    """The function that ``spec`` asks for; None for plain bytes."""
    spec = _TYPE_NAMES.get(spec, spec) if isinstance(spec, type) else spec
    if isinstance(spec, str):
        name = _known_name(spec, "Serializer")
        if name not in _SERIALIZERS:
            raise ConfigError(f"{option}={spec!r}: there is {', '.join(_SERIALIZERS)}; or pass an instance")
        spec = _SERIALIZERS[name]()
    elif isinstance(spec, type) and hasattr(spec, "serialize"):
        spec = spec()
    if spec is None or type(spec) is BytesSerializer:
        return None
    if isinstance(spec, Serializer):
        return spec.serialize
    if callable(spec):
        return _one_value_serializer(cast("Callable[[Any], bytes | None]", spec))
    raise ConfigError(f"{option} takes a name, a function or an object with serialize(topic, value)")


def deserializer_for(spec: object, option: str = "value.deserializer") -> DeserializeFn | None:
    """The function that ``spec`` asks for; None for plain bytes."""
    spec = _TYPE_NAMES.get(spec, spec) if isinstance(spec, type) else spec
    if isinstance(spec, str):
        name = _known_name(spec, "Deserializer")
        if name not in _DESERIALIZERS:
            raise ConfigError(f"{option}={spec!r}: there is {', '.join(_DESERIALIZERS)}; or pass an instance")
        spec = _DESERIALIZERS[name]()
    elif isinstance(spec, type) and hasattr(spec, "deserialize"):
        spec = spec()
    if spec is None or type(spec) is BytesDeserializer:
        return None
    if isinstance(spec, Deserializer):
        return spec.deserialize
    if callable(spec):
        return _one_value_deserializer(cast("Callable[[bytes], Any]", spec))
    raise ConfigError(f"{option} takes a name, a function or an object with deserialize(topic, data)")


def _one_value_serializer(function: Callable[[Any], bytes | None]) -> SerializeFn:
    def serialize(topic: str, value: Any) -> bytes | None:
        return None if value is None else function(value)

    return serialize


def _one_value_deserializer(function: Callable[[bytes], Any]) -> DeserializeFn:
    def deserialize(topic: str, data: bytes | None) -> Any:
        return None if data is None else function(data)

    return deserialize
