"""Records inside batches of format 2: encode, decode, and a walk that leaves keys and values where they are.

One record, after the batch's 61-byte header (see ``records/batch``), compressed with the others::

    length            varint   bytes that follow
    attributes        int8     unused
    timestamp delta   varlong  to the batch's base timestamp; sum and difference wrap around, as in Java
    offset delta      varint   to the batch's base offset
    key length        varint   -1: no key;    key bytes
    value length      varint   -1: no value;  value bytes
    header count      varint   and for each:  key length, key (UTF-8), value length (-1: none), value

Invariant: what ``decode_batch`` accepts fills its batch exactly: as many records as the header says, each
ending where its length says, nothing left over. Everything else raises :class:`CorruptRecordError`.
Called by clients, tools, the coordinators, the append path where it must look inside, and the cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.ids import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from tidelog.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC_V2,
    MAX_INT32,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_crc,
    pack_header,
    parse_header,
)
from tidelog.records.compression import Codec, compress, decompress
from tidelog.records.varint import decode_varint, decode_varlong, encode_varint, wrap_int64

RecordHeader = tuple[str, bytes | None]

# Attributes, timestamp delta, offset delta, key length, value length and header count take a byte each.
_MIN_RECORD_LENGTH = 6
_NULL = encode_varint(-1)
_EMPTY = encode_varint(0)
# A named tuple's own constructor takes three times as long, which shows where there are millions.
_new_tuple = tuple.__new__


class Record(NamedTuple):
    """One record. Offsets and timestamps are absolute; ``NO_OFFSET`` lets the batch number it."""

    offset: int = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[RecordHeader] = ()


class RecordSpan(NamedTuple):
    """Where one record lies in a batch's uncompressed body; a length of -1 means null."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """One whole batch. Records without an offset get the next after the one before them.

    With ``LOG_APPEND_TIME`` all records are read back with the highest timestamp among them.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    body, last_delta, max_timestamp = encode_records(records, base_offset, base_timestamp)
    attributes = TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return bytes(assemble_batch(header, body, level=level))


def assemble_batch(header: BatchHeader, body: Buffer, *, level: int | None = None) -> bytearray:
    """A batch of uncompressed records and the fields of ``header``; its size and CRC are computed anew."""
    return join_batch(header, body if not header.codec else compress(Codec(header.codec), body, level))


def join_batch(header: BatchHeader, payload: Buffer) -> bytearray:
    """A batch of records as they are stored and the fields of ``header``; size and CRC are computed anew."""
    batch = bytearray(HEADER_SIZE)
    batch += payload
    pack_header(
        batch,
        0,
        len(batch),
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
    return batch


def recompress_batch(
    buf: Buffer, codec: Codec, pos: int = 0, *, level: int | None = None, max_size: int | None = None
) -> bytearray:
    """The batch at ``pos`` with the same header and records under another codec."""
    header = parse_header(buf, pos)
    attributes = header.attributes & ~CODEC_MASK | codec
    body = batch_body(buf, header, pos, max_size=max_size)
    return assemble_batch(header._replace(attributes=attributes), body, level=level)


def decode_batch(
    buf: Buffer, pos: int = 0, *, verify_crc: bool = True, max_size: int | None = None
) -> list[Record]:
    """All records of the batch at ``pos``; ``max_size`` bounds what its compressed records may unpack to."""
    header = parse_header(buf, pos)
    if header.magic != MAGIC_V2:
        raise CorruptRecordError(f"the batch at {pos} has magic {header.magic}, not {MAGIC_V2}")
    if header.size_bytes < HEADER_SIZE or pos + header.size_bytes > len(buf):
        raise CorruptRecordError(
            f"the batch at {pos} says it is {header.size_bytes} bytes long, {len(buf) - pos} are there"
        )
    if verify_crc and not check_crc(buf, pos, header.size_bytes):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} fails its CRC")
    body = batch_body(buf, header, pos, max_size=max_size)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    records: list[Record] = []
    for span in scan_records(body, header.record_count):
        _, end, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length = span
        value_end = value_at + value_length if value_length > 0 else value_at
        fields = (
            base_offset + offset_delta,
            wrap_int64(base_timestamp + timestamp_delta) if append_time is None else append_time,
            None if key_length < 0 else body[key_at : key_at + key_length],
            None if value_length < 0 else body[value_at:value_end],
            () if value_end + 1 == end and not body[value_end] else _decode_headers(body, value_end, end),
        )
        records.append(_new_tuple(Record, fields))
    return records


def batch_body(buf: Buffer, header: BatchHeader, pos: int = 0, *, max_size: int | None = None) -> bytes:
    """The uncompressed records of the batch at ``pos``, for :func:`scan_records`."""
    try:
        codec = Codec(header.codec)
    except ValueError:
        raise CorruptRecordError(f"the batch at {pos} has the unknown codec {header.codec}") from None
    with memoryview(buf) as view, view[pos + HEADER_SIZE : pos + header.size_bytes] as payload:
        return decompress(codec, payload, max_size if codec else None)


def scan_records(body: bytes, count: int) -> Iterator[RecordSpan]:
    """Where each of the ``count`` records of an uncompressed ``body`` lies; headers are not looked at."""
    if count < 0:
        raise CorruptRecordError(f"a batch cannot hold {count} records")
    return _scan(body, count)


def rebase_record(body: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    """The record at ``span``, the same but for its timestamp delta."""
    _, attributes_at = decode_varint(body, span.start)
    _, rest_at = decode_varlong(body, attributes_at + 1)
    fields = b"".join(
        (
            body[attributes_at : attributes_at + 1],
            encode_varint(timestamp_delta),
            body[rest_at : span.end],
        )
    )
    return encode_varint(len(fields)) + fields


def _scan(body: bytes, count: int) -> Iterator[RecordSpan]:
    pos = 0
    size = len(body)
    try:
        for _ in range(count):
            start = pos
            # Every varint first tries its shortest forms in place: most are such, and a call costs more.
            if (length := body[pos]) < 0x80:
                length = length >> 1 ^ -(length & 1)
                pos += 1
            elif (second := body[pos + 1]) < 0x80:
                length = length & 0x7F | second << 7
                length = length >> 1 ^ -(length & 1)
                pos += 2
            else:
                length, pos = decode_varint(body, pos)
            end = pos + length
            if length < _MIN_RECORD_LENGTH or end > size:
                raise CorruptRecordError(f"a record says it is {length} bytes long, {size - pos} are left")
            pos += 1
            if (timestamp_delta := body[pos]) < 0x80:
                timestamp_delta = timestamp_delta >> 1 ^ -(timestamp_delta & 1)
                pos += 1
            else:
                timestamp_delta, pos = decode_varlong(body, pos)
            if (offset_delta := body[pos]) < 0x80:
                offset_delta = offset_delta >> 1 ^ -(offset_delta & 1)
                pos += 1
            else:
                offset_delta, pos = decode_varint(body, pos)
            if (key_length := body[pos]) < 0x80:
                key_length = key_length >> 1 ^ -(key_length & 1)
                key_at = pos + 1
            else:
                key_length, key_at = decode_varint(body, pos)
            pos = key_at + key_length if key_length > 0 else key_at
            if (value_length := body[pos]) < 0x80:
                value_length = value_length >> 1 ^ -(value_length & 1)
                value_at = pos + 1
            else:
                value_length, value_at = decode_varint(body, pos)
            # Positions only grow, so this one check stands for all fields; a header count must still follow.
            if (value_at + value_length if value_length > 0 else value_at) >= end:
                raise CorruptRecordError(f"a record of {length} bytes is shorter than its fields")
            yield _new_tuple(
                RecordSpan,
                (start, end, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length),
            )
            pos = end
    except IndexError as error:
        raise CorruptRecordError("a record runs past the end of its batch") from error
    if pos != size:
        raise CorruptRecordError(f"{size - pos} bytes are left after the {count} records of the batch")


def _varint_within(body: bytes, pos: int, end: int) -> tuple[int, int]:
    if pos >= end:
        raise CorruptRecordError("a record is shorter than its fields")
    byte = body[pos]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), pos + 1
    return decode_varint(body, pos)


def encode_records(
    records: Sequence[Record], base_offset: int, base_timestamp: int
) -> tuple[bytes, int, int]:
    """The records of a batch uncompressed, the last offset delta and the highest timestamp."""
    parts: list[bytes] = []
    max_timestamp = base_timestamp
    delta = -1
    for offset, timestamp, key, value, headers in records:
        delta = delta + 1 if offset < 0 else offset - base_offset
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        fields = b"".join(
            (
                b"\0",
                encode_varint(wrap_int64(timestamp - base_timestamp)),
                encode_varint(delta),
                _NULL if key is None else encode_varint(len(key)),
                key or b"",
                _NULL if value is None else encode_varint(len(value)),
                value or b"",
                _encode_headers(headers) if headers else _EMPTY,
            )
        )
        parts.append(encode_varint(len(fields)))
        parts.append(fields)
    if not 0 <= delta <= MAX_INT32:
        raise ValueError(f"offset {base_offset + delta} does not fit a batch with base offset {base_offset}")
    return b"".join(parts), delta, max_timestamp


def _encode_headers(headers: Sequence[RecordHeader]) -> bytes:
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (encode_varint(len(name)), name)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


def _decode_headers(body: bytes, pos: int, end: int) -> tuple[RecordHeader, ...]:
    count, pos = _varint_within(body, pos, end)
    if count < 0 or count > end - pos:
        raise CorruptRecordError(f"a record cannot hold {count} headers in {end - pos} bytes")
    headers: list[RecordHeader] = []
    for _ in range(count):
        length, pos = _varint_within(body, pos, end)
        if length < 0 or pos + length > end:
            raise CorruptRecordError(f"a header key of {length} bytes does not fit its record")
        # As Java does: a key that is no UTF-8 shows replacement characters rather than hiding the record.
        name = body[pos : pos + length].decode(errors="replace")
        length, pos = _varint_within(body, pos + length, end)
        if pos + length > end:
            raise CorruptRecordError(f"a header value of {length} bytes does not fit its record")
        headers.append((name, None if length < 0 else body[pos : pos + length]))
        pos += max(length, 0)
    if pos != end:
        raise CorruptRecordError(f"{end - pos} bytes are left after the headers of a record")
    return tuple(headers)
