# cython: language_level=3
"""Batches made of columns in Arrow's memory layout, and rows spread over partitions by their keys.

Compiled and interpreted from this one source like ``records/record_writer``, whose builder it fills, so that
both write the same. Nothing here needs pyarrow; ``records/arrow`` takes the buffers out of Arrow's classes.

Invariant: as there, no read or write leaves its buffer. Numbers are in the machine's byte order, as Arrow has
them. Called by ``records/arrow`` and the producer's Arrow path, through ``records/column_codec``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.records.batch import MAX_INT32, Buffer
from tidelog.records.record import RecordHeader

# Cython's compiler goes by the first branches, the interpreter and mypy by the second ones.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

if cython.compiled:
    if not TYPE_CHECKING:
        from cython.cimports.tidelog.records.column_reader import put_int32, put_int64
        from cython.cimports.tidelog.records.record_writer import BatchBuilder, encode_headers
else:
    from tidelog.records.column_reader import put_int32, put_int64
    from tidelog.records.record_writer import BatchBuilder, encode_headers

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

# C variables where this is compiled (see the .pxd).
_MASK_31 = MAX_INT32
_MASK_32 = 0xFFFFFFFF
_MURMUR = 0x5BD1E995
_MURMUR_SEED = 0x9747B28C

_INT32 = struct.Struct("=i")
_INT64 = struct.Struct("=q")


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
        put_int32(choices, row, chosen)
        put_int64(starts, chosen + 1, _get_int64(starts, chosen + 1) + 1)
    for chosen in range(count + 1):
        put_int64(starts, chosen + 1, _get_int64(starts, chosen + 1) + _get_int64(starts, chosen))
    ends = bytearray(starts)
    for row in range(keys.rows):
        chosen = _get_int32(choices, row)
        at = _get_int64(ends, chosen)
        put_int32(order, at, row)
        put_int64(ends, chosen, at + 1)
    groups = [
        bytes(order[4 * _get_int64(starts, chosen) : 4 * _get_int64(starts, chosen + 1)])
        for chosen in range(count + 1)
    ]
    return groups[:-1], groups[-1]
