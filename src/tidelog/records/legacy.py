"""Message sets of formats 0 and 1, which Kafka wrote before 0.11: recognised everywhere, read by tools only.

One message; ``crc`` is the plain CRC-32 of everything behind it::

    offset int64 · size int32 · crc uint32 · magic int8 · attributes int8 · [timestamp int64, format 1]
    · key length int32, key · value length int32, value          (a length of -1: null)

A compressed message carries a whole message set as its value. Its own offset is that of the *last*
message inside; in format 1 the inner offsets count from 0, in format 0 they are absolute. Kafka 4 refuses
these formats on produce, and so do we; ``tidelog log dump`` shows old segments. The lz4 of format 0, whose
frame checksum Kafka once computed wrongly, is reported as corrupt.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import (
    CODEC_MASK,
    CREATE_TIME,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    Buffer,
)
from tidelog.records.compression import Codec, decompress

MAGIC_V0 = 0
MAGIC_V1 = 1

_HEAD = struct.Struct(">qiIbb")
_CRC_END = 16
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")


class LegacyMessage(NamedTuple):
    """One message as stored; ``size_bytes`` includes offset and size fields."""

    offset: int
    size_bytes: int
    crc: int
    crc_valid: bool
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int | None:
        """``CREATE_TIME`` or ``LOG_APPEND_TIME``; format 0 has no timestamps."""
        if self.magic == MAGIC_V0:
            return None
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME


def is_legacy(buf: Buffer, pos: int = 0) -> bool:
    """Whether the entry at ``pos`` is of format 0 or 1; needs its first 17 bytes."""
    return len(buf) - pos > MAGIC_AT and 0 <= buf[pos + MAGIC_AT] < MAGIC_V2


def parse_legacy(buf: Buffer, pos: int = 0) -> LegacyMessage:
    """The message at ``pos``; raises ``CorruptRecordError`` if it is cut short or of another format."""
    try:
        offset, size, crc, magic, attributes = _HEAD.unpack_from(buf, pos)
        end = pos + LOG_OVERHEAD + size
        if magic not in (MAGIC_V0, MAGIC_V1) or end > len(buf) or size < 0:
            raise CorruptRecordError(f"the entry at {pos} (magic {magic}, {size} bytes) is no old message")
        at = pos + _HEAD.size
        timestamp = NO_TIMESTAMP
        if magic == MAGIC_V1:
            (timestamp,) = _TIMESTAMP.unpack_from(buf, at)
            at += _TIMESTAMP.size
        key, at = _nullable_bytes(buf, at, end)
        value, at = _nullable_bytes(buf, at, end)
    except struct.error as error:
        raise CorruptRecordError(f"the message at {pos} is cut short") from error
    if at != end:
        raise CorruptRecordError(f"the message at {pos} has {end - at} bytes too many")
    with memoryview(buf) as view:
        crc_valid = zlib.crc32(view[pos + _CRC_END : end]) == crc
    return LegacyMessage(offset, end - pos, crc, crc_valid, magic, attributes, timestamp, key, value)


def iter_legacy(buf: Buffer, pos: int = 0) -> Iterator[LegacyMessage]:
    """Every whole message of a message set; a last one that is cut short is left out."""
    while len(buf) - pos >= LOG_OVERHEAD:
        (size,) = _LENGTH.unpack_from(buf, pos + LENGTH_AT)
        if size >= 0 and pos + LOG_OVERHEAD + size > len(buf):
            return
        message = parse_legacy(buf, pos)
        yield message
        pos += message.size_bytes


def unwrap_legacy(message: LegacyMessage, *, max_size: int | None = None) -> list[LegacyMessage]:
    """The messages that clients see: those inside a compressed one with their true offsets and times."""
    if not message.codec:
        return [message]
    if message.value is None:
        raise CorruptRecordError(f"the compressed message at offset {message.offset} has no value")
    try:
        codec = Codec(message.codec)
    except ValueError:
        raise CorruptRecordError(f"the message at offset {message.offset} has an unknown codec") from None
    inner = list(iter_legacy(decompress(codec, message.value, max_size)))
    if not inner:
        raise CorruptRecordError(f"the compressed message at offset {message.offset} is empty")
    for entry in inner:
        if entry.codec or entry.magic != message.magic:
            raise CorruptRecordError(f"the message at offset {message.offset} nests another kind of message")
    if message.magic == MAGIC_V0:
        return inner
    base = message.offset - inner[-1].offset
    append_time = message.timestamp if message.timestamp_type == LOG_APPEND_TIME else None
    return [
        entry._replace(
            offset=base + entry.offset,
            timestamp=entry.timestamp if append_time is None else append_time,
            attributes=entry.attributes | message.attributes & TIMESTAMP_TYPE_BIT,
        )
        for entry in inner
    ]


def _nullable_bytes(buf: Buffer, pos: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(buf, pos)
    pos += _LENGTH.size
    if length < 0:
        return None, pos
    if pos + length > end:
        raise CorruptRecordError(f"a field of {length} bytes does not fit its message")
    return bytes(buf[pos : pos + length]), pos + length
