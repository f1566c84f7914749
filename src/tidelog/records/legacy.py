"""Messages of formats 0 and 1, which Kafka wrote before 0.11: read, and rewritten in format 2.

One message; ``crc`` is the plain CRC-32 of everything behind it::

    offset int64 · size int32 · crc uint32 · magic int8 · attributes int8 · [timestamp int64, format 1]
    · key length int32, key · value length int32, value          (a length of -1: null)

A compressed message carries a whole message set as its value. Its own offset is that of the *last*
message inside; in format 1 the inner offsets count from 0, in format 0 they are absolute. Where format 1 says
LogAppendTime, the time of the outer message is that of all inside.

As Kafka 4 does (KIP-724), brokers keep, serve and replicate what a log holds of these formats, rewrite it
when they compact it, and take none from producers. Two old mistakes are read as Kafka reads them: the header
checksum of lz4 frames of format 0 is wrong, and a compressed message may carry messages of the other format
(KAFKA-4298).

Invariant: :func:`messages_in` has a piece of a compressed message in memory, whatever it unpacks to. Called
by ``storage`` (offsets by time, compaction), ``coordinator/loading``, the consumer, the Spark source and
``cli``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import (
    CODEC_MASK,
    CREATE_TIME,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    MAX_INT32,
    SMALLEST_BATCH,
    TIMESTAMP_TYPE_BIT,
    Buffer,
)
from tidelog.records.batch_walk import PIECE_BYTES, WalkLimits
from tidelog.records.body_stream import BodyStream
from tidelog.records.compression import Codec
from tidelog.records.record import Record, encode_batch

NO_LIMITS: Final = WalkLimits((1 << 31) - 1, MAX_INT32)
"""For clients, which have asked for the data."""
BROKER_LIMITS: Final = WalkLimits(128 * 1024 * 1024, 4_000_000)
"""What a compressed message may hold for a broker to look into it."""

_HEAD = struct.Struct(">qiIbb")
_CRC_END = 16
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
# So many messages are kept while the last one is looked for; to read more, the message is unpacked twice.
_HELD: Final = 1000
_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
_LZ4_FLAGS_AT: Final = 4
_LZ4_DESCRIPTOR_AT: Final = 6
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_HAS_DICTIONARY: Final = 0x01


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
    return len(buf) - pos > MAGIC_AT and buf[pos + MAGIC_AT] < MAGIC_V2


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


def open_legacy(buf: Buffer, pos: int = 0, *, check_crc: bool = True) -> LegacyMessage:
    """The message at ``pos``; raises ``CorruptRecordError`` also if it fails its checksum."""
    message = parse_legacy(buf, pos)
    if check_crc and not message.crc_valid:
        raise CorruptRecordError(f"the message at offset {message.offset} fails its CRC")
    return message


def pack_legacy(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """One message; ``timestamp`` is left out in format 0."""
    body = struct.pack(">bb", magic, attributes)
    if magic == MAGIC_V1:
        body += _TIMESTAMP.pack(timestamp)
    body += _packed_bytes(key) + _packed_bytes(value)
    return _HEAD.pack(offset, len(body) + _CRC.size, zlib.crc32(body), magic, attributes) + body[2:]


def iter_legacy(buf: Buffer, pos: int = 0) -> Iterator[LegacyMessage]:
    """Every whole message of a message set; a last one that is cut short is left out."""
    while len(buf) - pos >= LOG_OVERHEAD:
        (size,) = _LENGTH.unpack_from(buf, pos + LENGTH_AT)
        if size >= 0 and pos + LOG_OVERHEAD + size > len(buf):
            return
        message = parse_legacy(buf, pos)
        yield message
        pos += message.size_bytes


def messages_in(message: LegacyMessage, limits: WalkLimits = NO_LIMITS) -> Iterator[LegacyMessage]:
    """The messages that clients see, in order: those inside a compressed one, with true offsets and times.

    Raises ``CorruptRecordError`` when it comes to what cannot be read.
    """
    if not message.codec:
        yield message
        return
    inside = _inside(message, limits)
    base = 0
    if message.magic == MAGIC_V1:
        held = list(islice(inside, _HELD))
        last = held[-1].offset
        if len(held) == _HELD:
            for each in inside:
                last = each.offset
            held = []
        base = _first_offset(message, last)
        inside = iter(held) if held else _inside(message, limits)
    append_time = message.timestamp if message.timestamp_type == LOG_APPEND_TIME else None
    before = -1
    for each in inside:
        offset = base + each.offset
        if not before < offset <= message.offset:
            raise CorruptRecordError(
                f"the compressed message at offset {message.offset} carries offset {offset} behind {before}"
            )
        before = offset
        if each.magic == MAGIC_V0 or message.magic == MAGIC_V0:
            yield each._replace(offset=offset)
            continue
        yield each._replace(
            offset=offset,
            timestamp=each.timestamp if append_time is None else append_time,
            attributes=each.attributes | message.attributes & TIMESTAMP_TYPE_BIT,
        )


def unwrap_legacy(message: LegacyMessage, limits: WalkLimits = NO_LIMITS) -> list[LegacyMessage]:
    """The same as a list, for what is known to be small or has been asked for."""
    return list(messages_in(message, limits))


def batch_of(message: LegacyMessage, limits: WalkLimits = NO_LIMITS) -> bytes:
    """A batch of format 2 with the same records, for readers that know no other format.

    Format 0 has no timestamps: its records have -1.
    """
    records = [
        Record(each.offset, each.timestamp, each.key, each.value) for each in messages_in(message, limits)
    ]
    first, last = records[0].offset, records[-1].offset
    if last - first > MAX_INT32:
        raise CorruptRecordError(f"the messages at offsets {first} to {last} are too far apart for one batch")
    return encode_batch(records, base_offset=first, timestamp_type=message.timestamp_type or CREATE_TIME)


def _nullable_bytes(buf: Buffer, pos: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(buf, pos)
    pos += _LENGTH.size
    if length < 0:
        return None, pos
    if pos + length > end:
        raise CorruptRecordError(f"a field of {length} bytes does not fit its message")
    return bytes(buf[pos : pos + length]), pos + length


def _packed_bytes(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data


def _first_offset(message: LegacyMessage, last: int) -> int:
    """What the inner offsets of format 1 are counted from, given the last of them."""
    if message.offset < last:
        raise CorruptRecordError(
            f"the compressed message at offset {message.offset} carries {last} as its last inner offset"
        )
    return message.offset - last


def _inside(message: LegacyMessage, limits: WalkLimits) -> Iterator[LegacyMessage]:
    """The messages of a compressed one as they are stored, at least one."""
    if message.value is None:
        raise CorruptRecordError(f"the compressed message at offset {message.offset} has no value")
    if message.codec >= len(_CODECS):
        raise CorruptRecordError(f"the message at offset {message.offset} has an unknown codec")
    payload = message.value
    if message.magic == MAGIC_V0 and message.codec == Codec.LZ4:
        payload = _sound_lz4(payload)
    stream = BodyStream(_CODECS[message.codec], memoryview(payload), limits.max_bytes)
    held = bytearray()
    count = wanted = 0
    while not stream.finished:
        held += stream.read(PIECE_BYTES)
        if len(held) < wanted:
            continue
        at = 0
        while (wanted := _size_at(held, at, limits)) <= len(held) - at:
            entry = parse_legacy(held, at)
            if entry.codec:
                raise CorruptRecordError(
                    f"the compressed message at offset {message.offset} carries a compressed one"
                )
            count += 1
            if count > limits.max_records:
                raise CorruptRecordError(
                    f"the compressed message at offset {message.offset} carries more than "
                    f"{limits.max_records} others"
                )
            yield entry
            at += entry.size_bytes
        del held[:at]
    if not count:
        raise CorruptRecordError(f"the compressed message at offset {message.offset} is empty")


def _size_at(buf: bytearray, pos: int, limits: WalkLimits) -> int:
    """How many bytes the entry at ``pos`` takes, or how many are needed to know."""
    if len(buf) - pos < LOG_OVERHEAD:
        return LOG_OVERHEAD
    size: int = _LENGTH.unpack_from(buf, pos + LENGTH_AT)[0] + LOG_OVERHEAD
    if not SMALLEST_BATCH[MAGIC_V0] <= size <= limits.max_bytes:
        raise CorruptRecordError(f"an inner message of {size} bytes is impossible")
    return size


# -- lz4 in format 0 ----------------------------------------------------------------------------------


def _sound_lz4(frame: bytes) -> bytes:
    """The frame with the header checksum that it should have."""
    end = _lz4_checksum_at(frame)
    return frame[:end] + bytes([_header_checksum(frame[_LZ4_FLAGS_AT:end])]) + frame[end + 1 :]


def _lz4_checksum_at(frame: bytes) -> int:
    if len(frame) <= _LZ4_DESCRIPTOR_AT:
        raise CorruptRecordError("the lz4 frame is cut short")
    flags = frame[_LZ4_FLAGS_AT]
    return _LZ4_DESCRIPTOR_AT + 8 * bool(flags & _LZ4_HAS_SIZE) + 4 * bool(flags & _LZ4_HAS_DICTIONARY)


def _header_checksum(header: bytes) -> int:
    return _xxh32(header) >> 8 & 0xFF


def _xxh32(data: bytes) -> int:
    """The 32-bit xxHash with seed 0 of fewer than 16 bytes; lz4's Python binding keeps its own to itself."""
    value = 374761393 + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * 3266489917 & 0xFFFFFFFF
        value = (value << 17 | value >> 15) * 668265263 & 0xFFFFFFFF
    for byte in data[whole:]:
        value = value + byte * 374761393 & 0xFFFFFFFF
        value = (value << 11 | value >> 21) * 2654435761 & 0xFFFFFFFF
    value = (value ^ value >> 15) * 2246822519 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 3266489917 & 0xFFFFFFFF
    return value ^ value >> 16
