"""Record batches of format 2: the 61-byte header, read and changed in place; and messages of formats 0 and 1.

Owns the layout of the header; never looks into the records behind it. All integers are big-endian::

     0  base offset             int64     not covered by the CRC: the broker writes it
     8  batch length            int32     bytes that follow this field
    12  partition leader epoch  int32     not covered by the CRC: the broker writes it
    16  magic                   int8      2; at the same place in formats 0 and 1
    17  CRC-32C                 uint32    over everything from the attributes to the end of the batch
    21  attributes              int16     bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 horizon
    23  last offset delta       int32
    27  base timestamp          int64     the delete horizon where bit 6 is set
    35  max timestamp           int64
    43  producer id             int64
    51  producer epoch          int16
    53  base sequence           int32
    57  record count            int32
    61  records

A log may begin with messages of formats 0 and 1 (layout in ``records/legacy``). Each counts as a batch:
:func:`header_at` and :func:`iter_batches` give it a :class:`BatchHeader`, too, and :func:`check_crc` its own
kind of checksum. Functions that say "batch of format 2" take nothing else.

Invariant: every function takes a buffer and a position and copies nothing; only the ``set_*`` functions
write, and those that change bytes under the CRC write a new CRC. Callers: ``records`` (encode, decode),
``storage`` (append, recovery, reads), ``client``, ``wire`` never.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.checksum import crc32c
from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

Buffer = bytes | bytearray | memoryview

MAGIC_V0 = 0
MAGIC_V1 = 1
MAGIC_V2 = 2
LOG_OVERHEAD = 12
HEADER_SIZE = 61
SMALLEST_BATCH = (26, 34, HEADER_SIZE)
"""The least number of bytes that a batch of format 0, 1 or 2 takes."""

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
FLAGS_AT = 22
"""The byte of the attributes that has all bits in use: codec, timestamp type, transactional, control."""
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

CREATE_TIME = 0
LOG_APPEND_TIME = 1

MAX_INT32 = 0x7FFF_FFFF
MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1
MASK_64 = (1 << 64) - 1

HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")

# An old message: offset, size, CRC, magic, attributes; the timestamp of format 1 follows.
_OLD_HEAD = struct.Struct(">qiIbb")
_OLD_CRC_AT = 12
_OLD_ATTRIBUTES = CODEC_MASK | TIMESTAMP_TYPE_BIT

_unpack_header = HEADER.unpack_from


def add_sequence(sequence: int, increment: int) -> int:
    """``sequence + increment`` where sequence numbers run from 0 to 2³¹-1 and then start at 0 again."""
    return (sequence + increment) & MAX_INT32


class BatchHeader(NamedTuple):
    """The header of one batch.

    That of a message of format 0 or 1 has no producer, no leader epoch and a record count of 1. Its base
    offset is the message's own: of a compressed one, which carries others, that is the *last* offset inside;
    the first is known only once it is unpacked.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """The codec's number, a value of ``records.compression.Codec``."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """``CREATE_TIME`` or ``LOG_APPEND_TIME``."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop this batch's tombstones and markers, once a cleaning has set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > -1

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset that follows this batch in the log."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 where the batch has none."""
        if self.base_sequence < 0:
            return -1
        return add_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def size_bytes(self) -> int:
        """The whole batch on disk and on the wire, offset and length fields included."""
        return self.batch_length + LOG_OVERHEAD


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header of the batch of format 2 at ``pos``.

    Raises ``CorruptRecordError`` where fewer than 61 bytes are left.
    """
    try:
        return BatchHeader._make(_unpack_header(buf, pos))
    except struct.error as error:
        raise CorruptRecordError(
            f"a record batch header needs {HEADER_SIZE} bytes, {max(len(buf) - pos, 0)} are left at {pos}"
        ) from error


def header_at(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header of the batch, of whatever format, at ``pos``.

    Raises ``CorruptRecordError`` where too few bytes are left for it, or its size is impossible.
    """
    left = len(buf) - pos
    if left > MAGIC_AT and buf[pos + MAGIC_AT] < MAGIC_V2:
        magic = buf[pos + MAGIC_AT]
        if left < SMALLEST_BATCH[magic]:
            raise CorruptRecordError(
                f"a message needs {SMALLEST_BATCH[magic]} bytes, {left} are left at {pos}"
            )
        header = _old_header(buf, pos)
    else:
        header = parse_header(buf, pos)
    if header.size_bytes < smallest_batch(header.magic):
        raise CorruptRecordError(
            f"the batch at {pos} says it is {header.size_bytes} bytes long, less than its header"
        )
    return header


def smallest_batch(magic: int) -> int:
    """The least number of bytes that a batch with this magic takes."""
    return SMALLEST_BATCH[magic] if MAGIC_V0 <= magic < MAGIC_V2 else HEADER_SIZE


def is_known_format(magic: int) -> bool:
    """Whether there are batches with this magic."""
    return MAGIC_V0 <= magic <= MAGIC_V2


def _old_header(buf: Buffer, pos: int) -> BatchHeader:
    offset, size, crc, magic, attributes = _OLD_HEAD.unpack_from(buf, pos)
    timestamp: int = NO_TIMESTAMP
    if magic == MAGIC_V1:
        (timestamp,) = _INT64.unpack_from(buf, pos + _OLD_HEAD.size)
        attributes &= _OLD_ATTRIBUTES
    else:
        attributes &= CODEC_MASK
    return BatchHeader(
        base_offset=offset,
        batch_length=size,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )


def batch_size(buf: Buffer, pos: int = 0) -> int:
    """The size of the batch at ``pos``; needs its first 12 bytes only."""
    length: int = _LENGTH.unpack_from(buf, pos + LENGTH_AT)[0]
    return length + LOG_OVERHEAD


def iter_batches(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """``(position, header)`` of every whole batch; a last batch that is cut short is left out.

    Fetch answers end in the middle of a batch, so a short tail is no error; a length no batch can have is.
    """
    limit = len(buf) if end is None else end
    while (left := limit - pos) > MAGIC_AT:
        if left >= HEADER_SIZE:
            header = BatchHeader._make(_unpack_header(buf, pos))
            if MAGIC_V0 <= header.magic < MAGIC_V2:
                header = header_at(buf, pos)
        elif left < smallest_batch(buf[pos + MAGIC_AT]):
            return
        else:
            header = header_at(buf, pos)
        size = header.batch_length + LOG_OVERHEAD
        if size < HEADER_SIZE and size < smallest_batch(header.magic):
            raise CorruptRecordError(f"the batch at {pos} says it is {size} bytes long, less than its header")
        if size > left:
            return
        yield pos, header
        pos += size


def leading_batches(buf: Buffer, max_batches: int, max_bytes: int) -> tuple[int, int]:
    """Number and end of the whole batches that ``buf`` begins with: as both bounds allow, but at least one.

    Where what follows is no whole batch it goes with them, for whoever takes the last of them to judge.
    """
    limit = len(buf)
    count = pos = 0
    while limit - pos > MAGIC_AT:
        size = _LENGTH.unpack_from(buf, pos + LENGTH_AT)[0] + LOG_OVERHEAD
        if (size < HEADER_SIZE and size < smallest_batch(buf[pos + MAGIC_AT])) or pos + size > limit:
            break
        if count and (count >= max_batches or pos + size > max_bytes):
            return count, pos
        count += 1
        pos += size
    return count, limit


def compute_crc(buf: Buffer, pos: int, size: int) -> int:
    """CRC-32C of the batch of format 2 of ``size`` bytes at ``pos``."""
    with memoryview(buf) as view:
        value: int = crc32c(view[pos + ATTRIBUTES_AT : pos + size])
    return value


def check_crc(buf: Buffer, pos: int, size: int) -> bool:
    """Whether the batch, of whatever format, of ``size`` bytes at ``pos`` carries its own checksum."""
    stored: int = _UINT32.unpack_from(buf, pos + CRC_AT)[0]
    if compute_crc(buf, pos, size) == stored:
        return True
    if buf[pos + MAGIC_AT] >= MAGIC_V2:
        return False
    with memoryview(buf) as view:
        crc = zlib.crc32(view[pos + MAGIC_AT : pos + size])
    return (crc,) == _UINT32.unpack_from(buf, pos + _OLD_CRC_AT)


def set_base_offset(buf: bytearray | memoryview, pos: int, offset: int) -> None:
    """Give the batch its place in the log; the CRC stays valid."""
    _OFFSET.pack_into(buf, pos, offset)


def set_leader_epoch(buf: bytearray | memoryview, pos: int, epoch: int) -> None:
    """Write the epoch of the leader that appends; the CRC stays valid."""
    _INT32.pack_into(buf, pos + LEADER_EPOCH_AT, epoch)


def set_timestamps(
    buf: bytearray | memoryview, pos: int, size: int, timestamp_type: int, max_timestamp: int
) -> None:
    """Write the kind of timestamp and the batch's highest one, and the CRC that follows from it.

    With ``LOG_APPEND_TIME`` readers take ``max_timestamp`` as the time of every record.
    """
    attributes: int = _INT16.unpack_from(buf, pos + ATTRIBUTES_AT)[0]
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    else:
        attributes &= ~TIMESTAMP_TYPE_BIT
    _INT16.pack_into(buf, pos + ATTRIBUTES_AT, attributes)
    _INT64.pack_into(buf, pos + MAX_TIMESTAMP_AT, max_timestamp)
    write_crc(buf, pos, size)


def write_crc(buf: bytearray | memoryview, pos: int, size: int) -> None:
    """Checksum the batch of ``size`` bytes at ``pos`` after something under the CRC has changed."""
    _UINT32.pack_into(buf, pos + CRC_AT, compute_crc(buf, pos, size))


def pack_header(
    buf: bytearray | memoryview,
    pos: int,
    size: int,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write a whole header, CRC included, before records that already stand at ``pos + 61``."""
    HEADER.pack_into(
        buf,
        pos,
        base_offset,
        size - LOG_OVERHEAD,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    write_crc(buf, pos, size)
