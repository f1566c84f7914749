"""Unsigned varints: the lengths, counts and tags of flexible versions (KIP-482).

Seven bits a byte, lowest first, at most five bytes. Callers inline the one-byte case, which is nearly
every case, and come here for the rest.
"""

from __future__ import annotations

from tidelog.errors import WireError

_MAX_SHIFT = 28
_MAX_TAGS = 100

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""Encodings of 0 to 127, to be indexed by value."""


def read_uvarint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Value and the position behind it; ``IndexError`` at the end of the buffer is the caller's to catch."""
    value = 0
    shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        if shift == _MAX_SHIFT:
            raise WireError("an unsigned varint is longer than five bytes")
        shift += 7


def uvarint(value: int) -> bytes:
    """The encoding of a value that is not negative."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buf: bytes | memoryview, pos: int) -> int:
    """Position behind a tagged section of which no field is known.

    Raises ``IndexError`` when the count or a tag runs off the end and :class:`WireError` when a field's
    declared size does.
    """
    count = buf[pos]
    if count == 0:
        return pos + 1
    count, pos = read_tag_count(buf, pos)
    for _ in range(count):
        _, size, pos = read_tag(buf, pos)
        pos += size
    return pos


def read_tag_count(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """How many tagged fields follow, and where; no version of any message has nearly as many as allowed."""
    count, pos = read_uvarint(buf, pos)
    if count > _MAX_TAGS:
        raise WireError(f"a message has {count} tagged fields")
    return count, pos


def read_tag(buf: bytes | memoryview, pos: int) -> tuple[int, int, int]:
    """Tag, size and position of the tagged field that begins at ``pos``; it lies within the buffer."""
    tag, pos = read_uvarint(buf, pos)
    size, pos = read_uvarint(buf, pos)
    if pos + size > len(buf):
        raise WireError("a tagged field is longer than its message")
    return tag, size, pos


def require_tag_size(size: int, expected: int) -> None:
    """Refuse a tagged field whose contents are not as long as it says."""
    if size != expected:
        raise WireError("a tagged field is not as long as it says")
