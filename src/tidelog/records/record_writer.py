# cython: language_level=3
"""Writing record batches of format 2 for the producer: records go straight into the bytes of their batch.

Compiled and interpreted from this one source, see ``records/record_codec``, through which callers reach it;
``record_writer.pxd`` adds the C types of attributes. It writes the layout described in ``records/record`` and
``records/batch``, byte for byte.

Invariant: no write leaves its buffer, whatever the input says. Called by the producer and by
``records/column_writer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from tidelog.records.batch import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    HEADER_SIZE,
    MASK_64,
    MAX_INT32,
    MAX_INT64,
    MIN_INT64,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    Buffer,
    pack_header,
    parse_header,
    write_crc,
)
from tidelog.records.compression import Codec, compress
from tidelog.records.record import Record, RecordHeader
from tidelog.records.record_reader import decode_records

# Cython's compiler goes by the first branch, which is never run; the interpreter and mypy go by the second.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

if not TYPE_CHECKING and cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_Resize
    from cython.cimports.libc.string import memcpy

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

# C variables where this is compiled (see the .pxd), which imported names cannot be.
_HEADER_SIZE = HEADER_SIZE
_MAX_COUNT = MAX_INT32
_MAX_SIZE = MAX_INT32
_MAX_TIMESTAMP = MAX_INT64
# Java's margin on top of the expected ratio of compression, so that few batches come out larger than allowed.
_RATIO_MARGIN = 1.05

_FIRST_CAPACITY = 1024


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag(value: cython.longlong) -> cython.ulonglong:
    if cython.compiled:
        return value << 1 ^ value >> 63
    value = (value - MIN_INT64 & MASK_64) + MIN_INT64
    return (value << 1 ^ value >> 63) & MASK_64


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(raw: cython.ulonglong) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(target: cython.p_uchar, at: cython.Py_ssize_t, raw: cython.ulonglong) -> cython.Py_ssize_t:
    """Write a number that is in zigzag form already; the position behind it."""
    while raw >= 0x80:
        target[at] = raw & 0x7F | 0x80
        raw >>= 7
        at += 1
    target[at] = raw
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_bytes(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_const_uchar,
    source_at: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy bytes over; the position behind them in the target."""
    if cython.compiled:
        memcpy(target + at, source + source_at, length)  # type: ignore[name-defined,operator]
    else:
        target[at : at + length] = source[source_at : source_at + length]
    return at + length


@cython.cfunc
def resize(buffer: bytearray, size: cython.Py_ssize_t) -> None:
    """Make ``buffer`` ``size`` bytes long; what stands in the new ones is not defined."""
    if cython.compiled:
        PyByteArray_Resize(buffer, size)  # type: ignore[name-defined]
    elif size > len(buffer):
        buffer.extend(bytes(size - len(buffer)))
    else:
        del buffer[size:]


@cython.final
@cython.cclass
class BatchBuilder:
    """One batch in the making: records go straight into its bytes, header and checksum follow at the end.

    ``limit_bytes`` is the size that the batch should not pass; ``compression_ratio`` is what its records are
    expected to shrink to (1.0: not at all), and only guides how many of them fit. A ``buffer`` that is given
    is filled in place and is the caller's again once the view of :meth:`close_view` is: fresh memory costs
    more than filling it.
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_size_closed",
        "base_timestamp",
        "closed",
        "codec",
        "compression_ratio",
        "largest_record_bytes",
        "level",
        "limit_bytes",
        "max_timestamp",
        "record_count",
    )

    def __init__(
        self,
        limit_bytes: int,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        *,
        compression_ratio: float = 1.0,
        buffer: bytearray | None = None,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.codec = codec
        self.level = level
        self.compression_ratio = compression_ratio if codec else 1.0
        self.record_count = 0
        self.largest_record_bytes = 0
        self.closed = False
        self.base_timestamp = 0
        self.max_timestamp = 0
        if buffer is None or len(buffer) < HEADER_SIZE:
            buffer = bytearray(max(min(limit_bytes, _FIRST_CAPACITY), HEADER_SIZE))
        self._buffer = buffer
        self._end = HEADER_SIZE
        self._size_closed = 0

    @property
    def size_bytes(self) -> int:
        """The size of the batch, as far as it is known: with a codec an estimate until it is closed."""
        return self._size_closed if self.closed else self._estimate()

    @property
    def record_bytes(self) -> int:
        """The size of its records before they are compressed, without the header of the batch."""
        return self._end - _HEADER_SIZE

    def append(
        self,
        timestamp_ms: cython.longlong,
        key: bytes | bytearray | memoryview | None,
        value: bytes | bytearray | memoryview | None,
        headers: Sequence[RecordHeader] = (),
    ) -> int:
        """Add a record; its offset delta, or -1 where the batch is full. The first record always fits."""
        raw_key: bytes = b"" if key is None else _as_bytes(key)
        raw_value: bytes = b"" if value is None else _as_bytes(value)
        key_length: cython.Py_ssize_t = -1 if key is None else len(raw_key)
        value_length: cython.Py_ssize_t = -1 if value is None else len(raw_value)
        if not headers:
            return self.put_record(timestamp_ms, raw_key, 0, key_length, raw_value, 0, value_length, b"\0", 1)
        encoded: bytearray = encode_headers(headers)
        return self.put_record(
            timestamp_ms, raw_key, 0, key_length, raw_value, 0, value_length, encoded, len(encoded)
        )

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def put_record(
        self,
        timestamp: cython.longlong,
        key: cython.p_const_uchar,
        key_at: cython.Py_ssize_t,
        key_length: cython.Py_ssize_t,
        value: cython.p_const_uchar,
        value_at: cython.Py_ssize_t,
        value_length: cython.Py_ssize_t,
        headers: cython.p_const_uchar,
        headers_length: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """:meth:`append` for key and value wherever they lie; a negative length means null."""
        count: cython.Py_ssize_t = self.record_count
        if self.closed or timestamp < -1 or timestamp > _MAX_TIMESTAMP:
            raise ValueError(
                "the batch is closed" if self.closed else f"a record cannot have the timestamp {timestamp}"
            )
        # In zigzag form, as _put_varint takes them.
        time: cython.ulonglong = _zigzag(timestamp - self.base_timestamp) if count else 0
        delta: cython.ulonglong = count << 1
        key_raw: cython.ulonglong = key_length << 1 if key_length >= 0 else 1
        value_raw: cython.ulonglong = value_length << 1 if value_length >= 0 else 1
        length: cython.Py_ssize_t = (
            1
            + (1 if time < 0x80 else _varint_size(time))
            + (1 if delta < 0x80 else 2 if delta < 0x4000 else _varint_size(delta))
            + (1 if key_raw < 0x80 else _varint_size(key_raw))
            + (1 if value_raw < 0x80 else 2 if value_raw < 0x4000 else _varint_size(value_raw))
            + headers_length
        )
        if key_length > 0:
            length += key_length
        if value_length > 0:
            length += value_length
        prefix: cython.ulonglong = length << 1
        size: cython.Py_ssize_t = length + (2 if 0x80 <= prefix < 0x4000 else _varint_size(prefix))
        if not self._make_room(size):
            return -1
        buffer: cython.p_uchar = self._buffer
        at: cython.Py_ssize_t = _put_varint(buffer, self._end, prefix)
        buffer[at] = 0
        at += 1
        if time < 0x80:
            buffer[at] = time
            at += 1
        else:
            at = _put_varint(buffer, at, time)
        at = _put_varint(buffer, at, delta)
        if key_raw < 0x80:
            buffer[at] = key_raw
            at += 1
        else:
            at = _put_varint(buffer, at, key_raw)
        if key_length > 0:
            at = put_bytes(buffer, at, key, key_at, key_length)
        at = _put_varint(buffer, at, value_raw)
        if value_length > 0:
            at = put_bytes(buffer, at, value, value_at, value_length)
        if headers_length == 1:
            buffer[at] = headers[0]
            at += 1
        else:
            at = put_bytes(buffer, at, headers, 0, headers_length)
        self._end = at
        if size > self.largest_record_bytes:
            self.largest_record_bytes = size
        if not count:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.record_count = count + 1
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _make_room(self, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Whether a record of ``size`` bytes may be added; if so there is room for it."""
        needed: cython.Py_ssize_t = self._end + size
        if self.record_count:
            if self._estimate() + size > self.limit_bytes:
                return 0
            if needed > _MAX_SIZE or self.record_count >= _MAX_COUNT:
                return 0
        elif needed > _MAX_SIZE:
            raise ValueError(f"a record of {size} bytes does not fit any batch")
        # Looked at every time: the buffer may be somebody else's, who may have changed its length.
        capacity: cython.Py_ssize_t = len(self._buffer)
        if needed > capacity:
            capacity = max(needed, 2 * capacity)
            if self.compression_ratio == 1.0 and needed <= self.limit_bytes < capacity:
                capacity = self.limit_bytes
            resize(self._buffer, capacity)
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _estimate(self) -> cython.Py_ssize_t:
        if self.compression_ratio == 1.0:
            return self._end
        return _HEADER_SIZE + int((self._end - _HEADER_SIZE) * self.compression_ratio * _RATIO_MARGIN)

    def close(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytes:
        """The batch's bytes, compressed and with its checksum. The builder lets go of its memory."""
        return bytes(self.close_view(producer_id, producer_epoch, base_sequence, transactional))

    def close_view(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> memoryview:
        """As :meth:`close`, uncopied: uncompressed records stay in the buffer that they were put into."""
        if self.closed or not self.record_count:
            raise ValueError(
                f"a batch that {'is closed' if self.closed else 'holds no record'} cannot be closed"
            )
        batch: bytearray = self._buffer
        size: cython.Py_ssize_t = self._end
        if self.codec:
            with memoryview(batch) as view, view[HEADER_SIZE : self._end] as body:
                payload = compress(self.codec, body, self.level)
            batch = bytearray(HEADER_SIZE)
            batch += payload
            size = len(batch)
        pack_header(
            batch,
            0,
            size,
            base_offset=0,
            leader_epoch=-1,
            attributes=int(self.codec) | (TRANSACTIONAL_BIT if transactional else 0),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )
        self.closed = True
        self._size_closed = size
        self._buffer = bytearray()
        return memoryview(batch)[:size]


@cython.cfunc
def _as_bytes(data: Any) -> bytes:
    if type(data) is bytes:
        return data
    return memoryview(data).tobytes()


@cython.cfunc
def encode_headers(headers: Sequence[RecordHeader]) -> bytearray:
    """A record's headers with their count, as they end the record."""
    names: list[bytes] = []
    values: list[bytes | None] = []
    size: cython.Py_ssize_t = 5
    for name, value in headers:
        encoded_name: bytes = name.encode()
        raw: bytes | None = None if value is None else _as_bytes(value)
        names.append(encoded_name)
        values.append(raw)
        # A length takes five bytes at most.
        size += 10 + len(encoded_name) + (0 if raw is None else len(raw))
    encoded = bytearray(size)
    target: cython.p_uchar = encoded
    at: cython.Py_ssize_t = _put_varint(target, 0, len(names) << 1)
    for index in range(len(names)):
        at = _put_block(target, at, names[index])
        raw = values[index]
        if raw is None:
            target[at] = 1
            at += 1
        else:
            at = _put_block(target, at, raw)
    resize(encoded, at)
    return encoded


@cython.cfunc
def _put_block(target: cython.p_uchar, at: cython.Py_ssize_t, data: bytes) -> cython.Py_ssize_t:
    """Write bytes behind their length; the position behind them."""
    size: cython.Py_ssize_t = len(data)
    if size < 64:
        target[at] = size << 1
        at += 1
    else:
        at = _put_varint(target, at, size << 1)
    return put_bytes(target, at, data, 0, size)


def restamp(
    batch: Buffer, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
) -> bytes:
    """The same batch from another producer id, epoch or sequence number, as a retry may need it."""
    stamped = bytearray(batch)
    header = parse_header(stamped)
    attributes = header.attributes & ~TRANSACTIONAL_BIT | (TRANSACTIONAL_BIT if transactional else 0)
    stamped[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = (attributes & 0xFFFF).to_bytes(2, "big")
    stamped[PRODUCER_ID_AT : PRODUCER_ID_AT + 8] = producer_id.to_bytes(8, "big", signed=True)
    stamped[PRODUCER_EPOCH_AT : PRODUCER_EPOCH_AT + 2] = producer_epoch.to_bytes(2, "big", signed=True)
    stamped[BASE_SEQUENCE_AT : BASE_SEQUENCE_AT + 4] = base_sequence.to_bytes(4, "big", signed=True)
    write_crc(stamped, 0, len(stamped))
    return bytes(stamped)


def split(batch: Buffer, limit_bytes: int) -> list[list[Record]]:
    """The batch's records in groups that each fit ``limit_bytes`` uncompressed, or hold one record only."""
    groups: list[list[Record]] = []
    builder = BatchBuilder(limit_bytes)
    for offset, timestamp, _, key, value, headers, _ in decode_records(batch, 0, check_crc=False):
        if not groups or builder.append(timestamp, key, value, headers) < 0:
            groups.append([])
            builder = BatchBuilder(limit_bytes)
            builder.append(timestamp, key, value, headers)
        groups[-1].append(Record(offset, timestamp, key, value, headers))
    return groups
