# cython: language_level=3
"""Records as columns: batches read straight into Arrow's memory layout, and batches made of such columns.

The second half of the clients' codec, compiled and interpreted like ``records/record_codec``, whose walk
over a batch and whose builder it uses, so that both accept and write the same. Nothing here needs pyarrow,
and no Python object is made per record; ``records/arrow`` puts the buffers into Arrow's classes.

Invariant: as in ``record_codec``, no read or write leaves its buffer. Numbers are in the machine's byte
order, as Arrow wants them. Called by ``records/arrow`` and the clients' Arrow paths.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.records.batch import MAX_INT32, TIMESTAMP_TYPE_BIT, Buffer, iter_batches
from tidelog.records.record import RecordHeader

# Cython's compiler goes by the first branches, the interpreter and mypy by the second ones.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

if cython.compiled:
    if not TYPE_CHECKING:
        from cython.cimports.tidelog.records.record_codec import (
            BatchBuilder,
            RecordCursor,
            bad_headers,
            encode_headers,
            open_batch,
            put_bytes,
            read_varint,
            resize,
            wrap,
        )
else:
    from tidelog.records.record_codec import (
        BatchBuilder,
        RecordCursor,
        bad_headers,
        encode_headers,
        open_batch,
        put_bytes,
        read_varint,
        resize,
        wrap,
    )

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

# C variables where this is compiled (see the .pxd).
_MAX_BYTES = MAX_INT32
_MASK_31 = MAX_INT32
_MASK_32 = 0xFFFFFFFF
_MURMUR = 0x5BD1E995
_MURMUR_SEED = 0x9747B28C

_INT32 = struct.Struct("=i")
_INT64 = struct.Struct("=q")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int32(target: cython.p_uchar, index: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    if cython.compiled:
        cython.cast(cython.p_int, target)[index] = value
    else:
        _INT32.pack_into(target, index * 4, value)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int64(target: cython.p_uchar, index: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    if cython.compiled:
        cython.cast(cython.p_longlong, target)[index] = value
    else:
        _INT64.pack_into(target, index * 8, value)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _get_int32(source: cython.p_const_uchar, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
    number: cython.Py_ssize_t
    if cython.compiled:
        number = cython.cast(cython.p_int, source)[index]
    else:
        (number,) = _INT32.unpack_from(source, index * 4)
    return number


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _get_int64(source: cython.p_const_uchar, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
    number: cython.Py_ssize_t
    if cython.compiled:
        number = cython.cast(cython.p_longlong, source)[index]
    else:
        (number,) = _INT64.unpack_from(source, index * 8)
    return number


@cython.cfunc
def _reserve(buffer: bytearray, size: cython.Py_ssize_t) -> None:
    if len(buffer) < size:
        resize(buffer, max(size, 2 * len(buffer)))


@cython.final
@cython.cclass
class BinaryColumn:
    """Byte strings and nulls as Arrow keeps them: data, 32-bit offsets into it, a bit for each non-null."""

    __slots__ = (
        "_data",
        "_data_at",
        "_marked_nulls",
        "_marked_rows",
        "_marked_used",
        "_offsets",
        "_offsets_at",
        "_used",
        "_validity",
        "_validity_at",
        "null_count",
        "rows",
    )

    def __init__(self) -> None:
        self.rows = self.null_count = self._used = 0
        self._marked_rows = self._marked_nulls = self._marked_used = 0
        self._data = bytearray()
        self._offsets = bytearray(4)
        self._validity = bytearray()
        self.reserve(0, 0)

    def buffers(self) -> tuple[memoryview | None, memoryview, memoryview]:
        """Validity (None where nothing is null), offsets and data, uncopied: nothing may be added then."""
        validity = memoryview(self._validity)[: (self.rows + 7) // 8] if self.null_count else None
        return (
            validity,
            memoryview(self._offsets)[: 4 * (self.rows + 1)],
            memoryview(self._data)[: self._used],
        )

    @cython.cfunc
    def reserve(self, rows: cython.Py_ssize_t, size: cython.Py_ssize_t) -> None:
        if size > _MAX_BYTES - self._used:
            raise OverflowError(
                f"a column cannot hold {self._used + size} bytes: take fewer batches at a time"
            )
        _reserve(self._data, self._used + size)
        _reserve(self._offsets, 4 * (self.rows + rows + 1))
        _reserve(self._validity, (self.rows + rows + 7) // 8)
        self._data_at = self._data
        self._offsets_at = self._offsets
        self._validity_at = self._validity

    @cython.cfunc
    @cython.exceptval(check=False)
    def put(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Add the bytes at ``at``, or a null if ``length`` is negative; there must be room for them."""
        row: cython.Py_ssize_t = self.rows
        validity: cython.p_uchar = self._validity_at
        if not row & 7:
            validity[row >> 3] = 0
        if length < 0:
            self.null_count += 1
        else:
            validity[row >> 3] |= 1 << (row & 7)
            if length:
                self._used = put_bytes(self._data_at, self._used, source, at, length)
        self.rows = row + 1
        return _put_int32(self._offsets_at, row + 1, self._used)

    @cython.cfunc
    @cython.exceptval(check=False)
    def mark(self) -> cython.Py_ssize_t:
        """Remember this length for :meth:`rewind`."""
        self._marked_rows = self.rows
        self._marked_nulls = self.null_count
        self._marked_used = self._used
        return 0

    @cython.cfunc
    def rewind(self) -> None:
        """Take back what was added since :meth:`mark`."""
        self.rows = self._marked_rows
        self.null_count = self._marked_nulls
        self._used = self._marked_used
        if self.rows & 7:
            # Bits are only ever set while a byte fills up, so those of the rows taken back must go.
            self._validity[self.rows >> 3] &= (1 << (self.rows & 7)) - 1


@cython.final
@cython.cclass
class RecordColumns:
    """Records of one partition, column by column, in memory that Arrow can use as it is.

    With ``with_headers`` their headers are kept too, in two columns of their own and the row at which each
    record's end; otherwise headers are checked and left out.
    """

    __slots__ = (
        "_header_ends",
        "_offsets",
        "_timestamp_types",
        "_timestamps",
        "header_keys",
        "header_values",
        "keys",
        "rows",
        "values",
        "with_headers",
    )

    def __init__(self, *, with_headers: bool = False) -> None:
        self.rows = 0
        self.with_headers = with_headers
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self.header_keys = BinaryColumn()
        self.header_values = BinaryColumn()
        self._offsets = bytearray()
        self._timestamps = bytearray()
        self._timestamp_types = bytearray()
        self._header_ends = bytearray(4)

    def __len__(self) -> int:
        return self.rows

    @property
    def size_bytes(self) -> int:
        """How many bytes of keys and values there are; no column may pass 2 GB."""
        return self.keys._used + self.values._used

    @property
    def offsets(self) -> memoryview:
        """The records' offsets, 64 bits each; like all buffers uncopied."""
        return memoryview(self._offsets)[: 8 * self.rows]

    @property
    def timestamps(self) -> memoryview:
        """The records' timestamps in milliseconds, 64 bits each."""
        return memoryview(self._timestamps)[: 8 * self.rows]

    @property
    def timestamp_types(self) -> memoryview:
        """For each record a byte: 0 the producer's time, 1 the broker's."""
        return memoryview(self._timestamp_types)[: self.rows]

    @property
    def header_ends(self) -> memoryview:
        """A 0, and for each record the row of the header columns at which its headers end, 32 bits each."""
        return memoryview(self._header_ends)[: 4 * (self.rows + 1)]

    def append_batch(
        self,
        data: Buffer,
        start_offset: int = 0,
        *,
        pos: int = 0,
        check_crc: bool = True,
        max_size: int | None = None,
    ) -> int:
        """Add the records of the batch at ``pos`` from ``start_offset`` on: how many. A bad one adds none."""
        header, body = open_batch(data, pos, check_crc, max_size)
        rows = self.rows
        self.keys.mark()
        self.values.mark()
        self.header_keys.mark()
        self.header_values.mark()
        try:
            self._append(header, body, start_offset)
        except BaseException:
            self.keys.rewind()
            self.values.rewind()
            self.header_keys.rewind()
            self.header_values.rewind()
            raise
        return self.rows - rows

    @cython.cfunc
    def _reserve(self, rows: cython.Py_ssize_t, size: cython.Py_ssize_t) -> None:
        self.keys.reserve(rows, size)
        self.values.reserve(rows, size)
        _reserve(self._offsets, 8 * (self.rows + rows))
        _reserve(self._timestamps, 8 * (self.rows + rows))
        _reserve(self._timestamp_types, self.rows + rows)
        _reserve(self._header_ends, 4 * (self.rows + rows + 1))

    @cython.cfunc
    def _append(self, header: tuple[Any, ...], body: bytes, start: cython.longlong) -> None:
        count: cython.longlong = header[12]
        # No record takes less than seven bytes, so a count that cannot be true reserves no memory.
        self._reserve(min(count, len(body) // 7), len(body))
        base_offset: cython.longlong = header[0]
        append_time: cython.bint = (header[5] & TIMESTAMP_TYPE_BIT) != 0
        base_timestamp: cython.longlong = header[8] if append_time else header[7]
        row: cython.Py_ssize_t = self.rows
        keys: BinaryColumn = self.keys
        values: BinaryColumn = self.values
        source: cython.p_const_uchar = body
        offsets: cython.p_uchar = self._offsets
        timestamps: cython.p_uchar = self._timestamps
        types: cython.p_uchar = self._timestamp_types
        header_ends: cython.p_uchar = self._header_ends
        offset: cython.longlong
        timestamp: cython.longlong
        wanted: cython.bint
        cursor: RecordCursor = RecordCursor(body)
        while count > 0:
            count -= 1
            cursor.advance()
            offset = base_offset + cursor.offset_delta
            timestamp = base_timestamp
            if not append_time:
                timestamp += cursor.timestamp_delta
            if not cython.compiled:
                offset, timestamp = wrap(offset), wrap(timestamp)
            wanted = offset >= start
            if cursor.headers_at + 1 != cursor.end or source[cursor.headers_at] != 0:
                _walk_headers(
                    body, cursor.headers_at, cursor.end, self if wanted and self.with_headers else None
                )
            if not wanted:
                continue
            _put_int64(offsets, row, offset)
            _put_int64(timestamps, row, timestamp)
            types[row] = append_time
            keys.put(source, cursor.key_at, cursor.key_length)
            values.put(source, cursor.value_at, cursor.value_length)
            row += 1
            _put_int32(header_ends, row, self.header_keys.rows)
        cursor.finish()
        self.rows = row


@cython.cfunc
@cython.exceptval(-1, check=False)
def _walk_headers(
    body: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, columns: RecordColumns | None
) -> cython.Py_ssize_t:
    """Check a record's headers and, where ``columns`` are given, add them there."""
    source: cython.p_const_uchar = body
    length: cython.longlong
    count: cython.longlong
    name_at: cython.Py_ssize_t
    name_length: cython.longlong
    count, at = read_varint(source, at, end, 32)
    if at < 0 or count < 0 or count > end - at:
        raise bad_headers()
    if columns is not None:
        columns.header_keys.reserve(count, 3 * (end - at))
        columns.header_values.reserve(count, end - at)
    while count > 0:
        count -= 1
        name_length, name_at = read_varint(source, at, end, 32)
        if name_at < 0 or name_length < 0 or name_length > end - name_at:
            raise bad_headers()
        length, at = read_varint(source, name_at + name_length, end, 32)
        if at < 0 or length > end - at:
            raise bad_headers()
        if columns is not None:
            # Arrow's strings must be UTF-8, so what is not gets replacement characters, of three bytes each.
            name: bytes = source[name_at : name_at + name_length]
            if not name.isascii():
                name = name.decode("utf-8", "replace").encode()
            columns.header_keys.put(name, 0, len(name))
            columns.header_values.put(source, at, length)
        if length > 0:
            at += length
    if at != end:
        raise bad_headers()
    return 0


def decode_columns(
    data: Buffer,
    start_offset: int = 0,
    *,
    check_crc: bool = True,
    with_headers: bool = False,
    max_size: int | None = None,
) -> RecordColumns:
    """The records of all whole batches in ``data`` from ``start_offset`` on, but for control batches."""
    columns = RecordColumns(with_headers=with_headers)
    # Enough unless something is compressed, and cheaper than to grow into it.
    columns.values.reserve(0, min(len(data), _MAX_BYTES))
    for pos, header in iter_batches(data):
        if not header.is_control:
            columns.append_batch(data, start_offset, pos=pos, check_crc=check_crc, max_size=max_size)
    return columns


@cython.final
@cython.cclass
class BinaryView:
    """An Arrow column of byte strings to read from: its buffers, uncopied and checked against one another.

    ``first`` is the row at which the column starts in its buffers.
    """

    __slots__ = ("_data", "_first", "_nullable", "_offsets", "_validity", "rows")

    def __init__(
        self,
        rows: int,
        offsets: Buffer,
        data: Buffer | None,
        validity: Buffer | None = None,
        first: int = 0,
    ) -> None:
        if rows < 0 or first < 0:
            raise ValueError(f"a column cannot hold {rows} rows from row {first} on")
        ends = memoryview(offsets).cast("B")[4 * first : 4 * (first + rows + 1)].cast("i")
        bits = memoryview(b"" if validity is None else validity).cast("B")
        if len(ends) != rows + 1 or (validity is not None and len(bits) * 8 < first + rows):
            raise ValueError(f"the buffers of a column of {rows} rows are too short")
        self.rows = rows
        self._first = first
        self._offsets = ends
        self._data = memoryview(b"" if data is None else data).cast("B")
        self._validity = bits
        self._nullable = validity is not None

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def length_at(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """How many bytes the row holds, -1 if it is null; a row that leaves the column's data is refused."""
        bit: cython.Py_ssize_t = self._first + row
        if row < 0 or row >= self.rows:
            raise IndexError(f"the column has no row {row}")
        if self._nullable and not self._validity[bit >> 3] >> (bit & 7) & 1:
            return -1
        start: cython.Py_ssize_t = self._offsets[row]
        end: cython.Py_ssize_t = self._offsets[row + 1]
        if start < 0 or end < start or end > len(self._data):
            raise ValueError(f"row {row} of the column lies outside of its data")
        return end - start

    @cython.cfunc
    @cython.exceptval(check=False)
    def start_at(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return self._offsets[row]

    @cython.cfunc
    @cython.exceptval(check=False)
    def pointer(self) -> cython.p_const_uchar:
        if cython.compiled:
            return cython.address(self._data[0]) if len(self._data) else cython.NULL
        return self._data


@cython.final
@cython.cclass
class ColumnSource:
    """What :func:`append_rows` makes records of: a column for each part of a record.

    Without ``timestamps`` (64 bits each) every record gets ``timestamp_ms``. ``headers`` has a sequence of
    headers for each row.
    """

    __slots__ = ("_headers", "_timed", "_timestamp", "_timestamps", "keys", "rows", "values")

    def __init__(
        self,
        rows: int,
        *,
        keys: BinaryView | None = None,
        values: BinaryView | None = None,
        timestamp_ms: int = -1,
        timestamps: Buffer | None = None,
        headers: Sequence[Sequence[RecordHeader]] | None = None,
    ) -> None:
        times = memoryview(b"" if timestamps is None else timestamps).cast("B").cast("q")
        sizes = [rows if column is None else column.rows for column in (keys, values)]
        sizes += [rows if timestamps is None else len(times), rows if headers is None else len(headers)]
        if any(size != rows for size in sizes):
            raise ValueError(f"the columns of {rows} records have {sizes} rows")
        self.rows = rows
        self.keys = keys
        self.values = values
        self._timestamp = timestamp_ms
        self._timed = timestamps is not None
        self._timestamps = times
        self._headers = None if headers is None else [encode_headers(each) for each in headers]

    @cython.cfunc
    @cython.exceptval(check=False)
    def timestamp_at(self, row: cython.Py_ssize_t) -> cython.longlong:
        return self._timestamps[row] if self._timed else self._timestamp


def append_rows(
    builder: BatchBuilder, columns: ColumnSource, start: int = 0, rows: bytes | None = None
) -> int:
    """Add records from ``columns`` until the batch is full: the position of the first that did not fit.

    Positions are rows, or where ``rows`` is given (as by :func:`partition_rows`) places in it.
    """
    keys: BinaryView | None = columns.keys
    values: BinaryView | None = columns.values
    headers: bytearray = bytearray(1)
    order: bytes = b"" if rows is None else rows
    chosen: cython.bint = rows is not None
    if start < 0:
        raise IndexError(f"there is no position {start}")
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = len(order) // 4 if chosen else columns.rows
    row: cython.Py_ssize_t
    key_at: cython.Py_ssize_t = 0
    key_length: cython.Py_ssize_t = -1
    value_at: cython.Py_ssize_t = 0
    value_length: cython.Py_ssize_t = -1
    key: cython.p_const_uchar = b""
    value: cython.p_const_uchar = b""
    if keys is not None:
        key = keys.pointer()
    if values is not None:
        value = values.pointer()
    while at < end:
        row = _get_int32(order, at) if chosen else at
        if row < 0 or row >= columns.rows:
            raise IndexError(f"the columns have no row {row}")
        if keys is not None:
            key_length = keys.length_at(row)
            key_at = keys.start_at(row)
        if values is not None:
            value_length = values.length_at(row)
            value_at = values.start_at(row)
        if columns._headers is not None:
            headers = columns._headers[row]
        if (
            builder.put_record(
                columns.timestamp_at(row), key, key_at, key_length, value, value_at, value_length,
                headers, len(headers),
            )
            < 0
        ):  # fmt: skip
            break
        at += 1
    return at


def murmur2(data: bytes) -> int:
    """The hash of a key by which Java's producer chooses a partition, as 32 bits without a sign."""
    return _murmur2(data, 0, len(data))


@cython.cfunc
@cython.exceptval(check=False)
def _murmur2(
    source: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.Py_ssize_t
) -> cython.ulonglong:
    value: cython.ulonglong = (_MURMUR_SEED ^ length) & _MASK_32
    mixed: cython.ulonglong
    end: cython.Py_ssize_t = at + (length & ~3)
    while at < end:
        mixed = source[at + 3]
        mixed = mixed << 24 | source[at + 2] << 16 | source[at + 1] << 8 | source[at]
        mixed = mixed * _MURMUR & _MASK_32
        mixed = (mixed ^ mixed >> 24) * _MURMUR & _MASK_32
        value = (value * _MURMUR ^ mixed) & _MASK_32
        at += 4
    length &= 3
    if length:
        if length == 3:
            value ^= source[at + 2] << 16
        if length >= 2:
            value ^= source[at + 1] << 8
        value = (value ^ source[at]) * _MURMUR & _MASK_32
    value = (value ^ value >> 13) * _MURMUR & _MASK_32
    return value ^ value >> 15


def partition_rows(keys: BinaryView, partitions: int) -> tuple[list[bytes], bytes]:
    """The rows for each partition by their keys, and those without a key: numbers of 32 bits, in order."""
    if partitions < 1:
        raise ValueError(f"keys cannot be spread over {partitions} partitions")
    count: cython.Py_ssize_t = partitions
    row: cython.Py_ssize_t
    length: cython.Py_ssize_t
    chosen: cython.Py_ssize_t
    at: cython.Py_ssize_t
    source: cython.p_const_uchar = keys.pointer()
    # A counting sort: how many rows each partition gets, where its rows start, then every row to its place.
    choices = bytearray(4 * keys.rows)
    order = bytearray(4 * keys.rows)
    starts = bytearray(8 * (count + 2))
    for row in range(keys.rows):
        length = keys.length_at(row)
        chosen = count
        if length >= 0:
            chosen = (_murmur2(source, keys.start_at(row), length) & _MASK_31) % count
        _put_int32(choices, row, chosen)
        _put_int64(starts, chosen + 1, _get_int64(starts, chosen + 1) + 1)
    for chosen in range(count + 1):
        _put_int64(starts, chosen + 1, _get_int64(starts, chosen + 1) + _get_int64(starts, chosen))
    ends = bytearray(starts)
    for row in range(keys.rows):
        chosen = _get_int32(choices, row)
        at = _get_int64(ends, chosen)
        _put_int32(order, at, row)
        _put_int64(ends, chosen, at + 1)
    groups = [
        bytes(order[4 * _get_int64(starts, chosen) : 4 * _get_int64(starts, chosen + 1)])
        for chosen in range(count + 1)
    ]
    return groups[:-1], groups[-1]
