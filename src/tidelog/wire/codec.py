"""Reading and writing any message in any of its versions.

Owns the two functions that everything but the produce and fetch hot paths goes through. Readers and
writers are compiled from the message's schema the first time a (class, version) is met.

``decode`` raises only :class:`WireError`, whatever the bytes; bytes behind the message are left alone, as
Kafka does, and the position returned says where they begin. ``encode`` raises :class:`KafkaError`:
UNSUPPORTED_VERSION when the version does not exist or cannot carry what the message says,
INVALID_REQUEST when no version could.
"""

from __future__ import annotations

import struct
from typing import TypeVar, cast

from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.wire.readers import Reader, reader_of
from tidelog.wire.schema import Payload, flexible_in
from tidelog.wire.writers import Writer, writer_of

P = TypeVar("P", bound=Payload)

_readers: dict[tuple[type[Payload], int], Reader] = {}
_writers: dict[tuple[type[Payload], int], Writer] = {}


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
    except (struct.error, UnicodeEncodeError) as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{payload.__name__} v{version} cannot be written: {error}"
        ) from error


def decode(payload: type[P], version: int, buf: bytes | memoryview, pos: int = 0) -> tuple[P, int]:
    """A body read from ``pos`` on, and the position behind it. The message keeps no view of ``buf``."""
    read = _readers.get((payload, version))
    if read is None:
        _require_version(payload, version)
        read = _readers[payload, version] = reader_of(payload, version, flexible_in(payload, version))
    data = buf if type(buf) is bytes else bytes(buf)
    try:
        message, end = read(data, pos)
    except (struct.error, IndexError):
        raise WireError(f"{payload.__name__} v{version} ends too early") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{payload.__name__} v{version} holds a string that is not UTF-8") from error
    return cast(P, message), end


def _require_version(payload: type[Payload], version: int) -> None:
    lowest, highest = payload.VERSIONS
    if not lowest <= version <= highest:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{payload.__name__} has versions {lowest} to {highest}, not {version}",
        )
