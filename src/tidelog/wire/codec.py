"""Reading and writing any message in any of its versions.

Owns the two functions that everything but the produce and fetch hot paths goes through. Readers and
writers are compiled from the message's schema the first time a (class, version) is met.

``decode`` raises only :class:`WireError`, whatever the bytes; bytes behind the message are left alone, as
Kafka does, and the position returned says where they begin. ``encode`` raises :class:`KafkaError`:
UNSUPPORTED_VERSION when the version does not exist or cannot carry what the message says,
INVALID_REQUEST when no version could.

What is long is read and written in slices, by the generators ``decode_in_slices`` and ``encode_in_slices``:
they yield often, and whoever runs them decides when others get their turn.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TypeVar, cast

from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.wire.primitives import count_bytes
from tidelog.wire.readers import Reader, reader_of, sliced_reader_of
from tidelog.wire.schema import Message, Payload, flexible_in
from tidelog.wire.writers import Writer, sliced_writer_of, writer_of, writers_around

P = TypeVar("P", bound=Payload)

_UNREADABLE = (struct.error, IndexError, UnicodeDecodeError)
_UNWRITABLE = (struct.error, UnicodeEncodeError)

MAX_ELEMENTS = 250_000
"""How many elements the arrays of one request that is read in slices may have, all together."""

_readers: dict[tuple[type[Payload], int], Reader] = {}
_writers: dict[tuple[type[Payload], int], Writer] = {}
_around: dict[tuple[type[Payload], int, str], tuple[Writer, Writer]] = {}


def encode(message: Payload, version: int) -> bytes:
    """The body of a request or response, without size and header."""
    out = bytearray()
    encode_into(message, version, out)
    return bytes(out)


def encode_into(message: Payload, version: int, out: bytearray) -> None:
    """Append the body to bytes that already hold a header; on an error ``out`` is left half-written."""
    payload = type(message)
    write = _writers.get((payload, version))
    if write is None:
        _require_version(payload, version)
        write = _writers[payload, version] = writer_of(payload, version, flexible_in(payload, version))
    try:
        write(message, out)
    except _UNWRITABLE as error:
        raise _unwritable(payload, version, error) from error


def encode_in_slices(message: Payload, version: int, out: bytearray) -> Generator[None, None, None]:
    """``encode_into`` for a message that may be long."""
    payload = type(message)
    _require_version(payload, version)
    try:
        yield from sliced_writer_of(payload, version, flexible_in(payload, version))(message, out)
    except _UNWRITABLE as error:
        raise _unwritable(payload, version, error) from error


def encode_around(message: Payload, version: int, out: bytearray, array: str, count: int) -> bytes:
    """``encode_into`` for a message whose field ``array`` has ``count`` elements that are encoded already.

    What stands before the elements goes to ``out``; returns what stands behind them.
    """
    payload = type(message)
    flexible = flexible_in(payload, version)
    writers = _around.get((payload, version, array))
    if writers is None:
        _require_version(payload, version)
        writers = _around[payload, version, array] = writers_around(payload, version, flexible, array)
    before, behind = writers
    rest = bytearray()
    try:
        before(message, out)
        behind(message, rest)
    except _UNWRITABLE as error:
        raise _unwritable(payload, version, error) from error
    out += count_bytes(count, flexible)
    return bytes(rest)


def encode_element(element: Message, payload: type[Payload], version: int) -> Generator[None, None, bytes]:
    """One structure as it stands in an array of ``payload``, for ``encode_around``; in slices."""
    out = bytearray()
    try:
        yield from sliced_writer_of(type(element), version, flexible_in(payload, version))(element, out)
    except _UNWRITABLE as error:
        raise _unwritable(payload, version, error) from error
    return bytes(out)


def decode(payload: type[P], version: int, buf: bytes | memoryview, pos: int = 0) -> tuple[P, int]:
    """A body read from ``pos`` on, and the position behind it. The message keeps no view of ``buf``."""
    read = _readers.get((payload, version))
    if read is None:
        _require_version(payload, version)
        read = _readers[payload, version] = reader_of(payload, version, flexible_in(payload, version))
    data = buf if type(buf) is bytes else bytes(buf)
    try:
        message, end = read(data, pos)
    except _UNREADABLE as error:
        raise _unreadable(payload, version, error) from None
    return cast(P, message), end


def decode_in_slices(
    payload: type[P], version: int, buf: bytes | memoryview, pos: int = 0, max_elements: int = MAX_ELEMENTS
) -> Generator[None, None, tuple[P, int]]:
    """``decode`` for a message that may be long; ``buf`` must not change before the end."""
    _require_version(payload, version)
    read = sliced_reader_of(payload, version, flexible_in(payload, version))
    try:
        message, end = yield from read(memoryview(buf), pos, [max_elements])
    except _UNREADABLE as error:
        raise _unreadable(payload, version, error) from None
    return cast(P, message), end


def _unreadable(payload: type[Payload], version: int, error: Exception) -> WireError:
    if isinstance(error, UnicodeDecodeError):
        return WireError(f"{payload.__name__} v{version} holds a string that is not UTF-8")
    return WireError(f"{payload.__name__} v{version} ends too early")


def _unwritable(payload: type[Payload], version: int, error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{payload.__name__} v{version} cannot be written: {error}")


def _require_version(payload: type[Payload], version: int) -> None:
    lowest, highest = payload.VERSIONS
    if not lowest <= version <= highest:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{payload.__name__} has versions {lowest} to {highest}, not {version}",
        )
