# cython: language_level=3
"""Walking over the records of a batch without making objects of them: what a broker checks and looks for.

A :class:`RecordWalker` is fed the uncompressed records of one batch in pieces of any size, so that no more of
them need be in memory than one piece. It checks that they are what the batch's header says: lengths, counts,
keys, headers, offsets, timestamps; or it looks for the first record of a time. ``are_plain`` is the short way
for the records of an ordinary uncompressed batch, which lie in one piece.

Compiled and interpreted from this one source, like the clients' codec (``records/record_codec``);
``record_walker.pxd`` adds the C types. Compiled, it lets go of the interpreter lock while it walks over more
than a few records.

Invariant: no read leaves the bytes it was given, whatever they say, and nothing grows with the number of
records: of those that are refused the first :data:`MAX_BAD_RECORDS` are told, the others are counted. Called
by ``storage`` (validation, offsets by time, compaction).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import MASK_64, MAX_INT64, MIN_INT64, Buffer

# Cython's compiler goes by the first branch, which is never run; the interpreter and mypy go by the second.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

if cython.compiled:
    if not TYPE_CHECKING:
        from cython.cimports.cpython.buffer import (
            Py_buffer,
            PyBUF_SIMPLE,
            PyBuffer_Release,
            PyObject_GetBuffer,
        )
        from cython.cimports.libc.string import memcpy
else:
    from tidelog.records.cython_shim import (
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
        memcpy,
    )

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

MAX_BAD_RECORDS: Final = 1000
"""So many refused records are told one by one."""

BAD_OFFSET: Final = 1
BAD_KEY: Final = 2
BAD_TIMESTAMP: Final = 3

# C variables where this is compiled (see the .pxd), which the names above cannot be.
_OFFSET = BAD_OFFSET
_KEY = BAD_KEY
_TIMESTAMP = BAD_TIMESTAMP
_MAX_TOLD = MAX_BAD_RECORDS
# Letting go of the interpreter lock costs more than walking over so little.
_KEEP_LOCK_BYTES = 64 * 1024
# Behind the end of everything: where a number ends that cannot be read.
_NOWHERE = 1 << 60

_PROBLEMS: Final = (
    "",
    "a number in it is too large",
    "its length cannot be",
    "it is shorter than its fields",
    "it is longer than its fields",
    "the length of its key cannot be",
    "the length of its value cannot be",
    "the number of its headers cannot be",
    "the length of a header cannot be",
)


class BadRecord(NamedTuple):
    """A record that is sound and not allowed where it is; ``reason`` is one of the ``BAD_`` numbers."""

    record_index: int
    reason: int
    timestamp: int
    offset_delta: int
    key_length: int
    value_length: int


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _number(
    source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, bits: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The number of up to ``bits`` bits at ``at`` and the position behind it, or ``_NOWHERE``.

    There is no number there, so that several numbers can be read before the first look at that.
    """
    raw: cython.ulonglong
    byte: cython.ulonglong
    # Most numbers take one byte or two.
    if at + 1 < end:
        raw = source[at]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        byte = source[at + 1]
        if byte < 0x80:
            raw = (raw & 0x7F) | (byte << 7)
            return (raw >> 1) ^ -(raw & 1), at + 2
    return _long_number(source, at, end, bits)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _long_number(
    source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, bits: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    raw: cython.ulonglong = 0
    byte: cython.ulonglong
    shift: cython.Py_ssize_t = 0
    while at < end and shift < bits:
        byte = source[at]
        at += 1
        if byte < 0x80:
            if shift + 7 > bits and byte >> bits - shift:
                return 0, _NOWHERE
            raw |= byte << shift
            return (raw >> 1) ^ -(raw & 1), at
        raw |= (byte & 0x7F) << shift
        shift += 7
    return 0, _NOWHERE


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sum(one: cython.longlong, other: cython.longlong) -> cython.longlong:
    """The sum in 64 bits with a sign, as C and Java compute it."""
    if cython.compiled:
        return one + other
    return (one + other - MIN_INT64 & MASK_64) + MIN_INT64


@cython.final
@cython.cclass
class RecordWalker:
    """Walks over the ``count`` records of a batch, fed in pieces; ``finish`` tells that there are no more.

    With ``append_time`` all records have that timestamp, else their delta is added to ``base_timestamp``.
    ``index`` is the number of records walked over, ``max_timestamp`` the highest among them (-1 where there
    is none, lower ones do not count) and ``max_timestamp_delta`` the offset delta of the first that has it.
    ``is_consecutive`` says whether their offset deltas are 0, 1, 2 and so on. Records that are refused for
    what they say, not for how they are made, are in ``bad_records``: timestamps that are not between
    ``earliest`` and ``latest`` (-1 is none), no key where ``keys_required``, offsets with gaps where
    ``consecutive``, or behind ``last_delta``.
    """

    def __init__(
        self,
        count: int,
        base_timestamp: int,
        *,
        append_time: int | None = None,
        earliest: int = MIN_INT64,
        latest: int = MAX_INT64,
        keys_required: bool = False,
        consecutive: bool = False,
        last_delta: int = -1,
    ) -> None:
        if count < 0:
            raise CorruptRecordError(f"a batch cannot hold {count} records")
        self.index = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_delta = -1
        self.first_timestamp_delta = 0
        self.is_consecutive = True
        self.bad_count = 0
        self.bad_records: list[BadRecord] = []
        self.found = False
        self.found_timestamp = self.found_delta = -1
        self._count = count
        self._base_timestamp = base_timestamp
        self._has_append_time = append_time is not None
        self._append_time = NO_TIMESTAMP if append_time is None else append_time
        self._earliest = max(earliest, MIN_INT64)
        self._latest = min(latest, MAX_INT64)
        self._keys_required = keys_required
        self._consecutive = consecutive
        self._last_delta = last_delta
        self._searching = False
        self._sought_timestamp = self._sought_delta = 0
        self._problem = 0
        self._state = 0
        self._skip = self._left = self._headers = 0
        self._raw = 0
        self._shift = 0
        self._timestamp_delta = self._offset_delta = self._key_length = self._value_length = 0

    def look_for(self, timestamp: int, min_delta: int) -> None:
        """From now on, end at the first record that is not older than ``timestamp`` and not before
        ``min_delta``: ``found`` then says so, ``found_timestamp`` and ``found_delta`` which one it is."""
        self._searching = True
        self._sought_timestamp = timestamp
        self._sought_delta = min_delta

    @property
    def searching(self) -> bool:
        """Whether it looks for something that is not found yet."""
        return self._searching

    def feed(self, data: Buffer) -> None:
        """Walk over the next bytes; raises ``CorruptRecordError`` where they are not what they should be."""
        size: cython.Py_ssize_t = len(data)
        at: cython.Py_ssize_t = 0
        if not size:
            return
        while at < size and not self.found:
            at = self._walk(data, at, size)
            if self._problem:
                raise CorruptRecordError(
                    f"record {self.index} of the batch cannot be read: {_PROBLEMS[self._problem]}"
                )
            if at < 0:
                raise CorruptRecordError(f"bytes are left after the {self._count} records of the batch")
            if self.bad_count > len(self.bad_records) < MAX_BAD_RECORDS:
                self._tell_bad_record()

    @cython.cfunc
    @cython.exceptval(-3)
    def _walk(self, data: Buffer, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Run through a piece from ``at`` on, without the interpreter lock."""
        if not cython.compiled:
            return self._run(bytes(data), at, end)
        buffer: Py_buffer = Py_buffer()
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        source: cython.p_const_uchar = cython.cast(cython.p_const_uchar, buffer.buf)
        with cython.nogil:
            at = self._run(source, at, end)
        PyBuffer_Release(cython.address(buffer))
        return at

    def finish(self) -> None:
        """There are no more bytes; raises ``CorruptRecordError`` if there should be."""
        if self._state or self._shift or self.index != self._count:
            raise CorruptRecordError(
                f"the batch ends after {self.index} of the {self._count} records that its header tells of"
            )

    def _tell_bad_record(self) -> None:
        """Note the record that the walk has just passed."""
        timestamp = self._append_time
        if not self._has_append_time:
            timestamp = _sum(self._base_timestamp, self._timestamp_delta)
        self.bad_records.append(
            BadRecord(
                self.index - 1,
                self._judge(),
                timestamp,
                self._offset_delta,
                self._key_length,
                self._value_length,
            )
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Walk from ``at`` on; gives where it ended: at the end, behind a record that somebody must be told
        of, or -1 where bytes follow the last record. ``_problem`` is set where a record is broken."""
        timestamp: cython.longlong
        next_at: cython.Py_ssize_t
        while at < end:
            if self._state == 0 and self._shift == 0:
                if self.index == self._count:
                    return -1
                next_at = self._whole(source, at, end)
                if self._problem:
                    return at
                if next_at < 0:
                    # It goes on in the next piece.
                    next_at = self._piecemeal(source, at, end)
            else:
                next_at = self._piecemeal(source, at, end)
            if self._problem:
                return at
            at = next_at
            if self._state or self._shift:
                return at
            # A record is complete.
            timestamp = self._append_time
            if not self._has_append_time:
                timestamp = _sum(self._base_timestamp, self._timestamp_delta)
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.max_timestamp_delta = self._offset_delta
            if self._searching:
                if timestamp >= self._sought_timestamp and self._offset_delta >= self._sought_delta:
                    self.found = True
                    self._searching = False
                    self.found_timestamp = timestamp
                    self.found_delta = self._offset_delta
                    self.index += 1
                    return at
                self.index += 1
                continue
            if self.index == 0:
                self.first_timestamp_delta = self._timestamp_delta
            if self._offset_delta != self.index:
                self.is_consecutive = False
            self.index += 1
            if self._judge():
                self.bad_count += 1
                if self.bad_count <= _MAX_TOLD:
                    return at
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _judge(self) -> cython.Py_ssize_t:
        """What is not allowed about the record that was walked over last, 0 if nothing."""
        timestamp: cython.longlong
        if self._consecutive:
            if self._offset_delta != self.index - 1:
                return _OFFSET
        elif self._last_delta >= 0 and not 0 <= self._offset_delta <= self._last_delta:
            return _OFFSET
        if self._keys_required and self._key_length < 0:
            return _KEY
        timestamp = self._append_time
        if not self._has_append_time:
            timestamp = _sum(self._base_timestamp, self._timestamp_delta)
            if timestamp == -1:
                return 0
        return 0 if self._earliest <= timestamp <= self._latest else _TIMESTAMP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _whole(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Walk over the record at ``at`` if all of it is there; gives its end, or -1."""
        length: cython.longlong
        number: cython.longlong
        record_end: cython.Py_ssize_t
        length, at = _number(source, at, end, 32)
        if length > end - at:
            return -1
        # Attributes, timestamp delta, offset delta, key length, value length, header count: a byte each.
        if length < 6:
            self._problem = 2
            return -1
        record_end = at + length
        at += 1
        self._timestamp_delta, at = _number(source, at, record_end, 64)
        self._offset_delta, at = _number(source, at, record_end, 32)
        number, at = _number(source, at, record_end, 32)
        if at > record_end:
            self._problem = 3
            return -1
        if number < -1 or number > record_end - at:
            self._problem = 5
            return -1
        self._key_length = number
        if number > 0:
            at += number
        number, at = _number(source, at, record_end, 32)
        if at > record_end:
            self._problem = 3
            return -1
        if number < -1 or number > record_end - at:
            self._problem = 6
            return -1
        self._value_length = number
        if number > 0:
            at += number
        if at + 1 == record_end and source[at] == 0:
            # No headers, as in most records.
            return record_end
        number, at = _number(source, at, record_end, 32)
        if at > record_end:
            self._problem = 3
            return -1
        if number < 0 or number > record_end - at:
            self._problem = 7
            return -1
        self._headers = number
        while self._headers > 0:
            self._headers -= 1
            number, at = _number(source, at, record_end, 32)
            if number < 0 or number > record_end - at:
                self._problem = 8
                return -1
            number, at = _number(source, at + number, record_end, 32)
            if number < -1 or number > record_end - at:
                self._problem = 8
                return -1
            if number > 0:
                at += number
        if at != record_end:
            self._problem = 4
            return -1
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _piecemeal(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Go on with one record that lies in several pieces, up to its end or that of the piece.

        ``_state`` says which field comes next: 0 length, 1 attributes, 2 timestamp, 3 offset, 4 key length,
        5 value length, 6 header count, 7 a header's key length, 8 its value length. ``_skip`` bytes of what
        the last length spoke of, and ``_left`` of the record, are still to come.
        """
        step: cython.longlong
        byte: cython.ulonglong
        bits: cython.Py_ssize_t
        while at < end:
            if self._skip > 0:
                step = self._skip if self._skip < end - at else end - at
                at += step
                self._skip -= step
                self._left -= step
                if self._skip == 0 and self._left == 0 and self._state == 9:
                    self._state = 0
                    return at
                continue
            byte = source[at]
            at += 1
            if self._state:
                if self._left <= 0:
                    self._problem = 3
                    return at
                self._left -= 1
            if self._state == 1:
                self._state = 2
                continue
            bits = 64 if self._state == 2 else 32
            if self._shift >= bits or (byte < 0x80 and self._shift + 7 > bits and byte >> bits - self._shift):
                self._problem = 1
                return at
            self._raw |= (byte & 0x7F) << self._shift
            if byte >= 0x80:
                self._shift += 7
                continue
            step = (self._raw >> 1) ^ -(self._raw & 1)
            self._raw = 0
            self._shift = 0
            if self._take_number(step):
                return at
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_number(self, number: cython.longlong) -> cython.bint:
        """What a number means where ``_piecemeal`` stands; whether the record ends here or is broken."""
        state: cython.Py_ssize_t = self._state
        if state == 0:
            if number < 6:
                self._problem = 2
                return True
            self._left = number
            self._state = 1
            return False
        if state == 2:
            self._timestamp_delta = number
            self._state = 3
            return False
        if state == 3:
            self._offset_delta = number
            self._state = 4
            return False
        if state == 6:
            if number < 0 or number > self._left:
                self._problem = 7
                return True
            self._headers = number
            return self._next_header()
        # The others are lengths: of the key, the value, a header's key or its value.
        if number < (0 if state == 7 else -1) or number > self._left:
            self._problem = 5 if state == 4 else 6 if state == 5 else 8
            return True
        self._skip = number if number > 0 else 0
        if state == 4:
            self._key_length = number
            self._state = 5
        elif state == 5:
            self._value_length = number
            self._state = 6
        elif state == 7:
            self._state = 8
        else:
            return self._next_header()
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _next_header(self) -> cython.bint:
        """A header, or the count of them, was read: what comes next."""
        if self._headers > 0:
            self._headers -= 1
            self._state = 7
            return False
        if self._left != self._skip:
            self._problem = 4
            return True
        if self._skip:
            # The last header's value is still to come, and with it the end of the record.
            self._state = 9
            return False
        self._state = 0
        return True


def are_plain(batch: Buffer, at: int, count: int, base_timestamp: int, max_timestamp: int) -> bool:
    """Whether the ``count`` records from ``at`` to the end of ``batch`` are whole and sound, number
    themselves within the batch, and ``max_timestamp`` is the highest of them, none of them below -1.

    What is not so may still be allowed: that takes a closer look.
    """
    return (
        count > 0
        and max_timestamp >= NO_TIMESTAMP
        and (_highest_of(batch, at, count, base_timestamp) == max_timestamp)
    )


@cython.cfunc
@cython.exceptval(-3)
def _highest_of(
    batch: Buffer, start: cython.Py_ssize_t, count: cython.longlong, base_timestamp: cython.longlong
) -> cython.longlong:
    if not cython.compiled:
        return _highest(bytes(batch), start, len(batch), count, base_timestamp)
    highest: cython.longlong
    buffer: Py_buffer = Py_buffer()
    PyObject_GetBuffer(batch, cython.address(buffer), PyBUF_SIMPLE)
    source: cython.p_const_uchar = cython.cast(cython.p_const_uchar, buffer.buf)
    end: cython.Py_ssize_t = buffer.len
    if end - start < _KEEP_LOCK_BYTES:
        highest = _highest(source, start, end, count, base_timestamp)
    else:
        with cython.nogil:
            highest = _highest(source, start, end, count, base_timestamp)
    PyBuffer_Release(cython.address(buffer))
    return highest


def renumbered(body: bytes, count: int, timestamp_shift: int) -> bytearray:
    """Sound records, their offset deltas 0, 1, 2 and so on, timestamp deltas less by ``timestamp_shift``."""
    # Each of the three numbers written anew, the length among them, may grow to its largest form.
    target = bytearray(len(body) + 20 * count)
    size: cython.Py_ssize_t
    source: cython.p_const_uchar = body
    place: cython.p_uchar = target
    total: cython.Py_ssize_t = len(body)
    records: cython.longlong = count
    shift: cython.longlong = timestamp_shift
    with cython.nogil:
        size = _renumber(source, total, place, records, shift)
    if size < 0:
        raise CorruptRecordError("records that were walked over cannot be read again")
    del target[size:]
    return target


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _renumber(
    source: cython.p_const_uchar,
    end: cython.Py_ssize_t,
    target: cython.p_uchar,
    count: cython.longlong,
    shift: cython.longlong,
) -> cython.Py_ssize_t:
    at: cython.Py_ssize_t = 0
    put: cython.Py_ssize_t = 0
    index: cython.longlong = 0
    length: cython.longlong
    delta: cython.longlong
    _: cython.longlong
    record_end: cython.Py_ssize_t
    while index < count:
        length, at = _number(source, at, end, 32)
        if length < 6 or length > end - at:
            return -1
        record_end = at + length
        delta, at = _number(source, at + 1, record_end, 64)
        _, at = _number(source, at, record_end, 32)
        if at > record_end:
            return -1
        delta = _sum(delta, -shift)
        length = 1 + _number_size(delta) + _number_size(index) + record_end - at
        put = _put_number(target, put, length)
        target[put] = 0
        put = _put_number(target, put + 1, delta)
        put = _put_number(target, put, index)
        if cython.compiled:
            memcpy(cython.address(target[put]), cython.address(source[at]), record_end - at)
        else:
            target[put : put + record_end - at] = source[at:record_end]
        put += record_end - at
        at = record_end
        index += 1
    return put


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _zigzag(number: cython.longlong) -> cython.ulonglong:
    if cython.compiled:
        doubled: cython.ulonglong = cython.cast(cython.ulonglong, number) << 1
        sign: cython.ulonglong = cython.cast(cython.ulonglong, number >> 63)
        return doubled ^ sign
    return (number << 1 ^ number >> 63) & MASK_64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _number_size(number: cython.longlong) -> cython.Py_ssize_t:
    raw: cython.ulonglong = _zigzag(number)
    size: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_number(target: cython.p_uchar, at: cython.Py_ssize_t, number: cython.longlong) -> cython.Py_ssize_t:
    """Write a number; gives the position behind it."""
    raw: cython.ulonglong = _zigzag(number)
    while raw >= 0x80:
        target[at] = (raw & 0x7F) | 0x80
        raw >>= 7
        at += 1
    target[at] = raw
    return at + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _highest(
    source: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    base_timestamp: cython.longlong,
) -> cython.longlong:
    """The highest timestamp of plain records, -2 where something about them is not plain."""
    highest: cython.longlong = -1
    number: cython.longlong
    headers: cython.longlong
    index: cython.longlong = 0
    record_end: cython.Py_ssize_t
    while index < count:
        number, at = _number(source, at, end, 32)
        if number < 6 or number > end - at:
            return -2
        record_end = at + number
        number, at = _number(source, at + 1, record_end, 64)
        number = _sum(base_timestamp, number)
        if number > highest:
            highest = number
        elif number < -1:
            return -2
        number, at = _number(source, at, record_end, 32)
        if not 0 <= number < count:
            return -2
        number, at = _number(source, at, record_end, 32)
        if number < -1 or number > record_end - at:
            return -2
        if number > 0:
            at += number
        number, at = _number(source, at, record_end, 32)
        if number < -1 or number > record_end - at:
            return -2
        if number > 0:
            at += number
        if at + 1 == record_end and source[at] == 0:
            # No headers, as in most records.
            at += 1
            index += 1
            continue
        headers, at = _number(source, at, record_end, 32)
        if headers < 0:
            return -2
        while headers > 0:
            headers -= 1
            number, at = _number(source, at, record_end, 32)
            if number < 0 or number > record_end - at:
                return -2
            number, at = _number(source, at + number, record_end, 32)
            if number < -1 or number > record_end - at:
                return -2
            if number > 0:
                at += number
        if at != record_end:
            return -2
        index += 1
    return highest if at == end else -2
