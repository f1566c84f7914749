"""What stands before every body: the request header, the response header, and the frame's size.

    request   api_key int16 · api_version int16 · correlation_id int32 · client_id nullable string
              [· tagged fields]                                        header version 1 [2]
    response  correlation_id int32 [· tagged fields]                   header version 0 [1]

``client_id`` keeps its two-byte length in header version 2 as well: it must be readable before anybody
knows whether the version is one to be understood. Which header version goes with which API version is
``wire/api``'s to say. Brokers and clients both come here for every request but produce and fetch bodies.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.wire.api import request_header_version, response_header_version
from tidelog.wire.codec import encode_into
from tidelog.wire.schema import Payload
from tidelog.wire.varint import skip_tags

_REQUEST = struct.Struct(">hhih")
_SIZED_REQUEST = struct.Struct(">ihhih")
_INT32 = struct.Struct(">i")
_SIZED_RESPONSE = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """Who asks for what, in which version; ``correlation_id`` comes back in the response."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def parse_request_header(buf: bytes | memoryview) -> tuple[RequestHeader, int]:
    """The header at the start of a frame (without its size) and the position of the body.

    Raises :class:`WireError` for a key that does not exist; a version that does not exist is read as if
    it did, for ApiVersions must be answered even then.
    """
    try:
        key, version, correlation_id, length = _REQUEST.unpack_from(buf)
        pos = 10
        client_id = None
        if length >= 0:
            pos += length
            if pos > len(buf):
                raise WireError("a request's client id is longer than the request")
            # It is for logs and quotas only: one in another encoding is no reason to turn a client away.
            client_id = str(buf[10:pos], "utf-8", "replace")
        if request_header_version(key, version) == 2:
            pos = pos + 1 if buf[pos] == 0 else skip_tags(buf, pos)
    except (struct.error, IndexError):
        raise WireError("a request ends within its header") from None
    return RequestHeader(key, version, correlation_id, client_id), pos


def sized_request_header(header: RequestHeader, body_bytes: int = 0) -> bytearray:
    """Size and header of a request whose body of ``body_bytes`` follows in other buffers."""
    key, version, correlation_id, client_id = header
    raw = b"" if client_id is None else client_id.encode()
    if len(raw) > 0x7FFF:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "client.id is longer than 32767 bytes; shorten it")
    tags = b"\x00" if request_header_version(key, version) == 2 else b""
    size = 10 + len(raw) + len(tags) + body_bytes
    out = bytearray(
        _SIZED_REQUEST.pack(size, key, version, correlation_id, -1 if client_id is None else len(raw))
    )
    out += raw
    out += tags
    return out


def encode_request(header: RequestHeader, message: Payload) -> bytes:
    """A whole frame: size, header and body."""
    out = sized_request_header(header)
    encode_into(message, header.api_version, out)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def encode_response(key: int, version: int, correlation_id: int, message: Payload) -> bytes:
    """A whole frame: size, header and body, both in the given version of the API."""
    out = begin_response(key, version, correlation_id)
    encode_into(message, version, out)
    return finish_response(out)


def begin_response(key: int, version: int, correlation_id: int) -> bytearray:
    """A frame's size, still unknown, and its header; the body goes behind it."""
    out = bytearray(_SIZED_RESPONSE.pack(0, correlation_id))
    if response_header_version(key, version) == 1:
        out.append(0)
    return out


def finish_response(out: bytearray, following: int = 0) -> bytes:
    """The frame that ``begin_response`` has begun, with its size; so many bytes follow in other buffers."""
    _INT32.pack_into(out, 0, len(out) - 4 + following)
    return bytes(out)


def parse_response_header(key: int, version: int, buf: bytes | memoryview) -> tuple[int, int]:
    """Correlation id of a response frame (without its size) and the position of the body."""
    try:
        (correlation_id,) = _INT32.unpack_from(buf)
        pos = 4
        if response_header_version(key, version) == 1:
            pos = skip_tags(buf, pos)
    except (struct.error, IndexError):
        raise WireError("a response ends within its header") from None
    return correlation_id, pos
