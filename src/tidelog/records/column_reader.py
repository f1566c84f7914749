# cython: language_level=3
"""Records as columns: batches read straight into Arrow's memory layout.

Compiled and interpreted from this one source like ``records/record_reader``, whose walk over a batch it uses,
so that both accept the same. Nothing here needs pyarrow, and no Python object is made per record;
``records/arrow`` puts the buffers into Arrow's classes.

Values need no memory of their own where that of their batches is writable and nobody else's: they are moved
together within it, over what stood between them. That touches no memory that was not touched already.

Invariant: as there, no read or write leaves its buffer. Numbers are in the machine's byte order, as Arrow
wants them. Called by ``records/arrow`` and the consumer's Arrow path, through ``records/column_codec``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tidelog.records.batch import CODEC_MASK, MAX_INT32, TIMESTAMP_TYPE_BIT, Buffer, iter_batches
from tidelog.records.reused_memory import take_memory

# Cython's compiler goes by the first branches, the interpreter and mypy by the second ones.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

if cython.compiled:
    if not TYPE_CHECKING:
        from cython.cimports.libc.string import memmove
        from cython.cimports.tidelog.records.record_reader import (
            RecordCursor,
            bad_headers,
            open_batch,
            read_varint,
            wrap,
        )
        from cython.cimports.tidelog.records.record_writer import resize
else:
    from tidelog.records.record_reader import RecordCursor, bad_headers, open_batch, read_varint, wrap
    from tidelog.records.record_writer import resize

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

# A C variable where this is compiled (see the .pxd).
_MAX_BYTES = MAX_INT32

_NOTHING = memoryview(b"")
_INT32 = struct.Struct("=i")
_INT64 = struct.Struct("=q")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_int32(target: cython.p_uchar, index: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write the number of 32 bits at ``index``."""
    if cython.compiled:
        cython.cast(cython.p_int, target)[index] = value
    else:
        _INT32.pack_into(target, index * 4, value)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_int64(target: cython.p_uchar, index: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write the number of 64 bits at ``index``."""
    if cython.compiled:
        cython.cast(cython.p_longlong, target)[index] = value
    else:
        _INT64.pack_into(target, index * 8, value)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def move_bytes(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_const_uchar,
    source_at: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy bytes, also to a place that overlaps theirs; the position behind them in the target."""
    if cython.compiled:
        memmove(target + at, source + source_at, length)  # type: ignore[name-defined,operator]
    else:
        target[at : at + length] = source[source_at : source_at + length]
    return at + length


@cython.cfunc
def _reserve(buffer: bytearray, size: cython.Py_ssize_t) -> None:
    if len(buffer) < size:
        resize(buffer, max(size, 2 * len(buffer)))


@cython.final
@cython.cclass
class BinaryColumn:
    """Byte strings and nulls as Arrow keeps them: data, 32-bit offsets into it, a bit for each non-null."""

    __slots__ = (
        "_capacity",
        "_data",
        "_data_at",
        "_marked_nulls",
        "_marked_rows",
        "_marked_used",
        "_offsets",
        "_offsets_at",
        "_place",
        "_used",
        "_validity",
        "_validity_at",
        "null_count",
        "rows",
    )

    def __init__(self) -> None:
        self.rows = self.null_count = self._used = 0
        self._marked_rows = self._marked_nulls = self._marked_used = 0
        self._capacity = 0
        self._data = _NOTHING
        self._offsets = bytearray(4)
        self._validity = bytearray()
        self.reserve(0, 0)

    def buffers(self) -> tuple[memoryview | None, memoryview, memoryview]:
        """Validity (None where nothing is null), offsets and data, uncopied: nothing may be added then."""
        validity = memoryview(self._validity)[: (self.rows + 7) // 8] if self.null_count else None
        return (
            validity,
            memoryview(self._offsets)[: 4 * (self.rows + 1)],
            self._data[: self._used],
        )

    @cython.cfunc
    def settle(self, memory: Any) -> None:
        """Keep the bytes in ``memory``, which a view keeps ours until the column and its buffers are gone."""
        self._data = memory
        self._capacity = len(memory)
        if cython.compiled:
            self._place = memory
            self._data_at = cython.address(self._place[0])
        else:
            self._data_at = memory

    @cython.cfunc
    def reserve(self, rows: cython.Py_ssize_t, size: cython.Py_ssize_t) -> None:
        if size > _MAX_BYTES - self._used:
            raise OverflowError(
                f"a column cannot hold {self._used + size} bytes: take fewer batches at a time"
            )
        if self._used + size > self._capacity:
            self._grow(self._used + size)
        _reserve(self._offsets, 4 * (self.rows + rows + 1))
        _reserve(self._validity, (self.rows + rows + 7) // 8)
        self._offsets_at = self._offsets
        self._validity_at = self._validity

    @cython.cfunc
    @cython.exceptval(check=False)
    def room(self) -> cython.Py_ssize_t:
        """How many bytes can still be added without :meth:`reserve`."""
        return self._capacity - self._used

    @cython.cfunc
    def _grow(self, size: cython.Py_ssize_t) -> None:
        if self._used:
            size = max(size, min(2 * self._capacity, _MAX_BYTES))
        # All of what was set aside, which may be more than was asked for.
        memory = memoryview(take_memory(size).obj)
        if self._used:
            memory[: self._used] = self._data[: self._used]
        self.settle(memory)

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
                self._used = move_bytes(self._data_at, self._used, source, at, length)
        self.rows = row + 1
        return put_int32(self._offsets_at, row + 1, self._used)

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


# Nothing is ever added to it.
_NO_HEADERS = BinaryColumn()


@cython.final
@cython.cclass
class RecordColumns:
    """Records of one partition, column by column, in memory that Arrow can use as it is.

    With ``with_headers`` their headers are kept too, in two columns of their own and the row at which each
    record's end; otherwise headers are checked and left out. Without ``with_keys`` or ``with_values`` the
    bytes of keys or values are not copied, and that column is empty.
    """

    __slots__ = (
        "_header_ends",
        "_memory",
        "_offsets",
        "_timestamp_types",
        "_timestamps",
        "header_keys",
        "header_values",
        "keys",
        "rows",
        "values",
        "with_headers",
        "with_keys",
        "with_values",
    )

    def __init__(
        self,
        *,
        with_headers: bool = False,
        with_keys: bool = True,
        with_values: bool = True,
        expected_bytes: int = 0,
        memory: memoryview | None = None,
    ) -> None:
        """``expected_bytes`` of values get room at once, which is cheaper than to grow into it.

        With ``memory`` they need none, and take the place of the batches they come from: only uncompressed
        batches that lie in it can then be added, in their order, and it must be nobody else's.
        """
        self.rows = 0
        self.with_headers = with_headers
        self.with_keys = with_keys
        self.with_values = with_values
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self._memory = memory
        if memory is not None and len(memory):
            self.values.settle(memory)
        else:
            self.values.reserve(0, min(expected_bytes, _MAX_BYTES))
        self.header_keys = BinaryColumn() if with_headers else _NO_HEADERS
        self.header_values = BinaryColumn() if with_headers else _NO_HEADERS
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
        if self._memory is not None:
            if data is not self._memory or header[5] & CODEC_MASK or pos < self.values._used:
                raise ValueError(
                    "only uncompressed batches of the columns' own memory can be added, in order"
                )
            # Before anything is moved: a bad batch stays as it is.
            _check(header[12], body)
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
        self.keys.reserve(rows, 0)
        self.values.reserve(rows, size if self.with_values else 0)
        _reserve(self._offsets, 8 * (self.rows + rows))
        _reserve(self._timestamps, 8 * (self.rows + rows))
        _reserve(self._timestamp_types, self.rows + rows)
        _reserve(self._header_ends, 4 * (self.rows + rows + 1))

    @cython.cfunc
    def _append(self, header: tuple[Any, ...], body: Any, start: cython.longlong) -> None:
        count: cython.longlong = header[12]
        # No record takes less than seven bytes, so a count that cannot be true reserves no memory.
        self._reserve(min(count, len(body) // 7), len(body))
        base_offset: cython.longlong = header[0]
        append_time: cython.bint = (header[5] & TIMESTAMP_TYPE_BIT) != 0
        base_timestamp: cython.longlong = header[8] if append_time else header[7]
        row: cython.Py_ssize_t = self.rows
        keys: BinaryColumn = self.keys
        values: BinaryColumn = self.values
        cursor: RecordCursor = RecordCursor(body)
        source: cython.p_const_uchar = cursor.source
        offsets: cython.p_uchar = self._offsets
        timestamps: cython.p_uchar = self._timestamps
        types: cython.p_uchar = self._timestamp_types
        header_ends: cython.p_uchar = self._header_ends
        offset: cython.longlong
        timestamp: cython.longlong
        wanted: cython.bint
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
                    source, cursor.headers_at, cursor.end, self if wanted and self.with_headers else None
                )
            if not wanted:
                continue
            if self.with_keys and cursor.key_length > keys.room():
                # As if the keys to come were as long as this one, but never longer than what is left.
                keys.reserve(0, min(cursor.key_length * (count + 1), cursor.size - cursor.key_at))
            put_int64(offsets, row, offset)
            put_int64(timestamps, row, timestamp)
            types[row] = append_time
            if self.with_keys:
                keys.put(source, cursor.key_at, cursor.key_length)
            if self.with_values:
                values.put(source, cursor.value_at, cursor.value_length)
            row += 1
            put_int32(header_ends, row, self.header_keys.rows)
        cursor.finish()
        self.rows = row


@cython.cfunc
@cython.exceptval(-1, check=False)
def _check(count: cython.longlong, body: Any) -> cython.Py_ssize_t:
    """Raise what :meth:`RecordColumns._append` would."""
    cursor: RecordCursor = RecordCursor(body)
    source: cython.p_const_uchar = cursor.source
    while count > 0:
        count -= 1
        cursor.advance()
        if cursor.headers_at + 1 != cursor.end or source[cursor.headers_at] != 0:
            _walk_headers(source, cursor.headers_at, cursor.end, None)
    return cursor.finish()


@cython.cfunc
@cython.exceptval(-1, check=False)
def _walk_headers(
    source: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    columns: RecordColumns | None,
) -> cython.Py_ssize_t:
    """Check a record's headers and, where ``columns`` are given, add them there."""
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
    # Enough unless something is compressed.
    columns = RecordColumns(with_headers=with_headers, expected_bytes=len(data))
    for pos, header in iter_batches(data):
        if not header.is_control:
            columns.append_batch(data, start_offset, pos=pos, check_crc=check_crc, max_size=max_size)
    return columns
