# cython: language_level=3
"""Reading record batches of format 2 for the consumer: the parts of each record, and objects of them.

Compiled and interpreted from this one source, see ``records/record_codec``, through which callers reach it;
``record_reader.pxd`` adds the C types of attributes. It accepts exactly what ``records/record.decode_batch``
accepts; everything else raises :class:`CorruptRecordError`. A timestamp or offset whose sum leaves 64 bits
wraps around, as in Java.

Compiled, the records of an uncompressed batch are read where they are, without a copy of the batch: its bytes
must stay as they are while a reader is in use, and a bytearray that holds them cannot be resized meanwhile.

Invariant: no read leaves the bytes of its record, whatever the input says. Called by the consumer and by
``records/column_reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from tidelog.checksum import crc32c
from tidelog.errors import CorruptRecordError
from tidelog.ids import TopicPartition
from tidelog.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    MASK_64,
    MIN_INT64,
    TIMESTAMP_TYPE_BIT,
    Buffer,
)
from tidelog.records.compression import Codec, decompress
from tidelog.records.record import RecordHeader

# Cython's compiler goes by the first branch, which is never run; the interpreter and mypy go by the second.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

RawRecord = tuple[int, int, int, bytes | None, bytes | None, tuple[RecordHeader, ...], int | None]
"""Offset, timestamp, timestamp type, key, value, headers, leader epoch."""

OpenedBatch = tuple[tuple[Any, ...], bytes | memoryview]
"""The fields of a batch's header in their order, and its records uncompressed."""

# A C variable where this is compiled (see the .pxd), which an imported name cannot be.
_HEADER_SIZE = HEADER_SIZE

_CODECS = tuple(Codec)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def wrap(value: cython.longlong) -> cython.longlong:
    """``value`` in 64 bits with a sign, as C and Java compute; compiled, it already is."""
    if cython.compiled:
        return value
    return (value - MIN_INT64 & MASK_64) + MIN_INT64


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def read_varint(
    source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, bits: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The number of up to ``bits`` bits at ``at`` and the position behind it: -1 where there is none.

    There is none at position -1 either, so that several numbers can be read before the first look at that.
    """
    raw: cython.ulonglong = 0
    byte: cython.ulonglong
    shift: cython.Py_ssize_t = 0
    while 0 <= at < end and shift < bits:
        byte = source[at]
        at += 1
        if byte < 0x80:
            if shift + 7 > bits and byte >> bits - shift:
                return 0, -1
            raw |= byte << shift
            return (raw >> 1) ^ -(raw & 1), at
        raw |= (byte & 0x7F) << shift
        shift += 7
    return 0, -1


@cython.final
@cython.cclass
class RecordCursor:
    """Walks over the records of an uncompressed body; its attributes say where the parts of one lie."""

    __slots__ = (
        "_body",
        "end",
        "headers_at",
        "key_at",
        "key_length",
        "offset_delta",
        "size",
        "source",
        "timestamp_delta",
        "value_at",
        "value_length",
    )

    def __init__(self, body: bytes | memoryview) -> None:
        self._body = body
        self.size = len(body)
        if cython.compiled:
            self.source = cython.address(self._body[0]) if self.size else cython.NULL
        else:
            self.source = body
        self.end = 0
        self.timestamp_delta = self.offset_delta = 0
        self.key_at = self.key_length = self.value_at = self.value_length = self.headers_at = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def advance(self) -> cython.Py_ssize_t:
        """Step to the next record; 0, or an exception where there is none that is whole."""
        body: cython.p_const_uchar = self.source
        at: cython.Py_ssize_t = self.end
        end: cython.Py_ssize_t = self.size
        number: cython.longlong
        number, at = read_varint(body, at, end, 32)
        # Attributes, timestamp delta, offset delta, key length, value length and header count: a byte each.
        if at < 0 or number < 6 or number > end - at:
            raise CorruptRecordError(f"a record of {number} bytes does not fit its batch of {end} bytes")
        end = at + number
        at += 1
        # Numbers first try their shortest form in place: most are such, and an interpreted call costs more.
        number = body[at]
        if number < 0x80:
            self.timestamp_delta = number >> 1 ^ -(number & 1)
            at += 1
        else:
            self.timestamp_delta, at = read_varint(body, at, end, 64)
        if 0 <= at < end and body[at] < 0x80:
            number = body[at]
            self.offset_delta = number >> 1 ^ -(number & 1)
            at += 1
        else:
            self.offset_delta, at = read_varint(body, at, end, 32)
        if 0 <= at < end and body[at] < 0x80:
            number = body[at]
            number = number >> 1 ^ -(number & 1)
            at += 1
        else:
            number, at = read_varint(body, at, end, 32)
        if at < 0 or number > end - at:
            raise _broken_number()
        self.key_length = number
        self.key_at = at
        if number > 0:
            at += number
        number, at = read_varint(body, at, end, 32)
        # A header count must still follow.
        if at < 0 or at == end or number >= end - at:
            raise _broken_number()
        self.value_length = number
        self.value_at = at
        self.headers_at = at + number if number > 0 else at
        self.end = end
        return 0

    @cython.cfunc
    def key(self) -> bytes | None:
        if self.key_length < 0:
            return None
        body: cython.p_const_uchar = self.source
        key: bytes = body[self.key_at : self.key_at + self.key_length]
        return key

    @cython.cfunc
    def value(self) -> bytes | None:
        if self.value_length < 0:
            return None
        body: cython.p_const_uchar = self.source
        value: bytes = body[self.value_at : self.value_at + self.value_length]
        return value

    @cython.cfunc
    def headers(self) -> tuple[RecordHeader, ...]:
        body: cython.p_const_uchar = self.source
        if self.headers_at + 1 == self.end and body[self.headers_at] == 0:
            return ()
        return _decode_headers(body, self.headers_at, self.end)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish(self) -> cython.Py_ssize_t:
        """Refuse a body that goes on after its last record."""
        if self.end != self.size:
            raise CorruptRecordError(f"{self.size - self.end} bytes are left after the records of the batch")
        return 0


@cython.cfunc
def _broken_number() -> CorruptRecordError:
    return CorruptRecordError("a record is shorter than its fields, or a number in it is too large")


@cython.cfunc
def bad_headers() -> CorruptRecordError:
    """What is raised for headers that cannot be read."""
    return CorruptRecordError("a record's headers do not fill what the record leaves them")


@cython.cfunc
def _decode_headers(
    source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[RecordHeader, ...]:
    length: cython.longlong
    count: cython.longlong
    count, at = read_varint(source, at, end, 32)
    if at < 0 or count < 0 or count > end - at:
        raise bad_headers()
    headers: list[RecordHeader] = []
    while count > 0:
        count -= 1
        length, at = read_varint(source, at, end, 32)
        if at < 0 or length < 0 or length > end - at:
            raise bad_headers()
        # As Java does: a key that is no UTF-8 shows replacement characters rather than hiding the record.
        name: bytes = source[at : at + length]
        length, at = read_varint(source, at + length, end, 32)
        if at < 0 or length > end - at:
            raise bad_headers()
        if length < 0:
            headers.append((name.decode("utf-8", "replace"), None))
        else:
            headers.append((name.decode("utf-8", "replace"), source[at : at + length]))
            at += length
    if at != end:
        raise bad_headers()
    return tuple(headers)


@cython.cfunc
def open_batch(data: Buffer, pos: cython.Py_ssize_t, check_crc: cython.bint, max_size: Any) -> OpenedBatch:
    """The header of the batch at ``pos``, as a plain tuple, and its records, uncompressed."""
    available: cython.Py_ssize_t = len(data) - pos
    if available < _HEADER_SIZE or pos < 0:
        raise CorruptRecordError(f"a record batch header needs {HEADER_SIZE} bytes, {available} are left")
    header = HEADER.unpack_from(data, pos)
    size: cython.Py_ssize_t = header[1] + LOG_OVERHEAD
    if header[3] != MAGIC_V2:
        raise CorruptRecordError(f"the batch has magic {header[3]}, not {MAGIC_V2}")
    if size < _HEADER_SIZE or size > available:
        raise CorruptRecordError(f"the batch says it is {size} bytes long, {available} are there")
    if header[12] < 0:
        raise CorruptRecordError(f"a batch cannot hold {header[12]} records")
    codec = header[5] & CODEC_MASK
    if codec >= len(_CODECS):
        raise CorruptRecordError(f"the batch at offset {header[0]} has the unknown codec {codec}")
    view = memoryview(data)
    if check_crc and crc32c(view[pos + ATTRIBUTES_AT : pos + size]) != header[4]:
        raise CorruptRecordError(f"the batch at offset {header[0]} fails its CRC")
    payload = view[pos + _HEADER_SIZE : pos + size]
    if codec:
        return header, decompress(_CODECS[codec], payload, max_size)
    # The interpreter takes bytes apart faster than a view, and slices of them are bytes as well.
    return header, payload if cython.compiled else bytes(payload)


def decode_records(
    data: Buffer,
    start_offset: int = 0,
    *,
    pos: int = 0,
    check_crc: bool = True,
    max_records: int | None = None,
    max_size: int | None = None,
) -> list[RawRecord]:
    """The records of the batch at ``pos`` from ``start_offset`` on, as tuples.

    ``max_records`` ends the walk early, and what stands behind is then not looked at; ``max_size`` bounds
    what compressed records may unpack to.
    """
    reader = BatchReader(data, start_offset, None, 0, pos=pos, check_crc=check_crc, max_size=max_size)
    return reader.read(max_records)


def decode_consumer_records(
    data: Buffer,
    start_offset: int,
    topic: str,
    partition: int,
    *,
    pos: int = 0,
    check_crc: bool = True,
    max_records: int | None = None,
    max_size: int | None = None,
) -> list[ConsumerRecord]:
    """Like :func:`decode_records`, as the objects that consumers hand out."""
    reader = BatchReader(
        data, start_offset, topic, partition, pos=pos, check_crc=check_crc, max_size=max_size
    )
    return reader.read(max_records)


_NO_RECORDS = RecordCursor(b"")


@cython.final
@cython.cclass
class BatchReader:
    """The records of one batch from ``start_offset`` on, in pieces of as many as are asked for.

    With a topic they come as the objects that consumers hand out, without one as plain tuples. The batch is
    opened (checksum, codec) when the reader is made; ``left`` counts the records not yet walked over, and at
    0 the batch is let go of. What is freed after one piece is warm memory for the next.
    """

    __slots__ = (
        "_append_time",
        "_base_offset",
        "_base_timestamp",
        "_cursor",
        "_leader_epoch",
        "_partition",
        "_start",
        "_topic",
        "left",
    )

    def __init__(
        self,
        data: Buffer,
        start_offset: int,
        topic: str | None,
        partition: int,
        *,
        pos: int = 0,
        check_crc: bool = True,
        max_size: int | None = None,
    ) -> None:
        header, body = open_batch(data, pos, check_crc, max_size)
        self._topic = topic
        self._partition = partition
        self._start = start_offset
        self._base_offset = header[0]
        self._append_time = (header[5] & TIMESTAMP_TYPE_BIT) != 0
        self._base_timestamp = header[8] if self._append_time else header[7]
        self._leader_epoch = header[2] if header[2] >= 0 else None
        self._cursor = RecordCursor(body)
        self.left = header[12]
        if not self.left:
            self._end()

    def read(self, max_records: int | None = None) -> list[Any]:
        """The next ``max_records``, or all that are left; fewer only at the end of the batch."""
        wanted: cython.longlong = self.left if max_records is None else max_records
        records: list[Any] = []
        cursor: RecordCursor = self._cursor
        topic: str | None = self._topic
        append_time: cython.bint = self._append_time
        timestamp_type: int = 1 if append_time else 0
        leader_epoch: int | None = self._leader_epoch
        left: cython.longlong = self.left
        offset: cython.longlong
        timestamp: cython.longlong
        while left > 0 and wanted > 0:
            left -= 1
            cursor.advance()
            headers: tuple[RecordHeader, ...] = cursor.headers()
            offset = wrap(self._base_offset + cursor.offset_delta)
            if offset < self._start:
                continue
            wanted -= 1
            timestamp = self._base_timestamp
            if not append_time:
                timestamp = wrap(timestamp + cursor.timestamp_delta)
            if topic is None:
                records.append(
                    (offset, timestamp, timestamp_type, cursor.key(), cursor.value(), headers, leader_epoch)
                )
                continue
            # Past __init__, whose arguments a compiled call would have to pack into a tuple.
            record: ConsumerRecord = ConsumerRecord.__new__(ConsumerRecord)
            record.topic = topic
            record.partition = self._partition
            record.offset = offset
            record.timestamp = timestamp
            record.timestamp_type = timestamp_type
            record.key = cursor.key()
            record.value = cursor.value()
            record.headers = headers
            record.leader_epoch = leader_epoch
            records.append(record)
        self.left = left
        if not left:
            self._end()
        return records

    @cython.cfunc
    def _end(self) -> None:
        self._cursor.finish()
        self._cursor = _NO_RECORDS


@cython.final
@cython.no_gc
@cython.freelist(1024)
@cython.cclass
class ConsumerRecord:
    """One record as a consumer returns it; ``ConsumerRecord[K, V]`` for type checkers.

    Two are equal where all their fields are. ``key`` and ``value`` are None where the record has none. The
    garbage collector does not follow records, since millions of them would keep it busy: a value that refers
    back to its own record is never freed.

    Args:
        topic: The name of the topic.
        partition: The number of the partition.
        offset: The record's offset.
        timestamp: Milliseconds since 1970.
        timestamp_type: 0 where the producer has set the timestamp, 1 where the broker has.
        key: The key, deserialized.
        value: The value, deserialized.
        headers: Pairs of name and bytes.
        leader_epoch: The epoch of the leader that wrote the record, where it is known.

    Example:
        for record in consumer.poll(timeout=5):
            print(record.topic_partition, record.offset, record.key, record.value)
    """

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: Any = None,
        value: Any = None,
        headers: Sequence[RecordHeader] = (),
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch

    @classmethod
    def __class_getitem__(cls, parameters: Any) -> GenericAlias:
        """``ConsumerRecord[K, V]`` in annotations; ``record_codec`` has the type that checkers see."""
        return GenericAlias(cls, parameters)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record was read from."""
        return TopicPartition(self.topic, self.partition)

    def _fields(self) -> tuple[Any, ...]:
        return (
            self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type, self.key,
            self.value, self.headers, self.leader_epoch,
        )  # fmt: skip

    def __reduce__(self) -> tuple[Callable[..., ConsumerRecord], tuple[Any, ...]]:
        return ConsumerRecord, self._fields()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerRecord) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord({self.topic}-{self.partition}@{self.offset}, timestamp={self.timestamp}, "
            f"key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )
