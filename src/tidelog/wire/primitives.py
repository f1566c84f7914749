"""Strings and counts for the hand-written fast paths, in both the old and the compact encoding.

Used by ``wire/produce`` and ``wire/fetch`` off their shortest path. The same rules as in the compiled
codec: lengths are checked before they are believed, negative ones mean null where null is allowed and a
:class:`WireError` elsewhere. ``IndexError`` and ``struct.error`` for a buffer that ends too early are left
to the caller, who catches them once for the whole message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tidelog.errors import ErrorCode, KafkaError, WireError
from tidelog.wire.varint import read_tag, read_tag_count, read_uvarint, require_tag_size, skip_tags, uvarint

Buffer = bytes | memoryview
Endpoint = tuple[int, str, int, str | None]
"""Node id, host, port and rack of a broker that a partition's current leader may be."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_MAX_STRING_BYTES = 0x7FFF


def read_count(buf: Buffer, pos: int, flexible: bool) -> tuple[int, int]:
    """An array's count, or the length of bytes; -1 or less for null."""
    if flexible:
        byte = buf[pos]
        if byte < 0x80:
            return byte - 1, pos + 1
        count, pos = read_uvarint(buf, pos)
        return count - 1, pos
    return _INT32.unpack_from(buf, pos)[0], pos + 4


def read_array_count(buf: Buffer, pos: int, flexible: bool) -> tuple[int, int]:
    """The count of an array that may not be null."""
    count, pos = read_count(buf, pos, flexible)
    if count < 0:
        raise WireError("an array is null that must not be")
    return count, pos


def read_nullable_string(buf: Buffer, pos: int, flexible: bool) -> tuple[str | None, int]:
    """A string or null."""
    if flexible:
        length, pos = read_count(buf, pos, True)
    else:
        length, pos = _INT16.unpack_from(buf, pos)[0], pos + 2
    if length < 0:
        return None, pos
    end = pos + length
    if end > len(buf) or length > _MAX_STRING_BYTES:
        raise WireError(f"a string claims {length} bytes, more than its message holds or Kafka allows")
    return str(buf[pos:end], "utf-8"), end


def read_string(buf: Buffer, pos: int, flexible: bool) -> tuple[str, int]:
    """A string that may not be null."""
    text, pos = read_nullable_string(buf, pos, flexible)
    if text is None:
        raise WireError("a string is null that must not be")
    return text, pos


def count_bytes(count: int, flexible: bool) -> bytes:
    """An array's count, or the length of bytes; -1 for null."""
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def string_bytes(text: str | None, flexible: bool) -> bytes:
    """A string with its length; null where the field allows it."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    raw = text.encode()
    if len(raw) > _MAX_STRING_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a string of {len(raw)} bytes is too long to be sent")
    return (uvarint(len(raw) + 1) if flexible else _INT16.pack(len(raw))) + raw


def endpoint_section(endpoints: Sequence[Endpoint]) -> bytes:
    """The last tagged section of produce and fetch responses: where new leaders can be reached (KIP-951)."""
    if not endpoints:
        return b"\x00"
    body = bytearray(uvarint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        body += _INT32.pack(node_id)
        body += string_bytes(host, True)
        body += _INT32.pack(port)
        body += string_bytes(rack, True)
        body.append(0)
    return b"\x01\x00" + uvarint(len(body)) + body


def read_endpoint_section(buf: Buffer, pos: int) -> tuple[list[Endpoint], int]:
    """The inverse of :func:`endpoint_section`, other tags skipped, and the position behind it."""
    endpoints: list[Endpoint] = []
    tags, pos = read_tag_count(buf, pos)
    for _ in range(tags):
        tag, size, pos = read_tag(buf, pos)
        end = pos + size
        if tag == 0:
            endpoints, pos = _read_endpoints(buf, pos)
            require_tag_size(size, size + pos - end)
        pos = end
    return endpoints, pos


def _read_endpoints(buf: Buffer, pos: int) -> tuple[list[Endpoint], int]:
    endpoints: list[Endpoint] = []
    count, pos = read_array_count(buf, pos, True)
    for _ in range(count):
        (node_id,) = _INT32.unpack_from(buf, pos)
        host, pos = read_string(buf, pos + 4, True)
        (port,) = _INT32.unpack_from(buf, pos)
        rack, pos = read_nullable_string(buf, pos + 4, True)
        pos = skip_tags(buf, pos)
        endpoints.append((node_id, host, port, rack))
    return endpoints, pos
