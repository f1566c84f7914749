# cython: language_level=3
"""Walks over the batches of a coordinator's log: each record is put into a fold, or becomes an event.

Messages of formats 0 and 1, which a log of offsets may hold since before Kafka 0.11, are batches, too.

``open`` takes a chunk of whole batches, ``walk`` goes on until there is something to apply, and
``next_event`` hands that out, in the order of the log. ``walk`` touches nothing but its own memory, so that
it may run on a thread while the loop serves others; compiled, it holds the GIL for no longer than it takes to
call a decompressor. What it keeps is bounded, whatever is in the log: a number of events, and little more
than one batch uncompressed.

A batch is taken whole or not at all. One that cannot be read (checksum, codec, compressed data, the lengths
of its records) or that is more than the limits allow comes as one ``SKIPPED`` event and is stepped over.
Records without a key or of unknown types, of which a batch may hold millions, are only counted, see
``passed_over``.

Compiled and interpreted from this one source, see ``records/record_codec``; ``log_walker.pxd`` has the C
types. Used by ``log_replay``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.checksum import crc32c
from tidelog.errors import CorruptRecordError
from tidelog.records.batch import ATTRIBUTES_AT, CODEC_MASK, CONTROL_BIT, HEADER_SIZE, LOG_OVERHEAD
from tidelog.records.batch import TRANSACTIONAL_BIT as TRANSACTIONAL
from tidelog.records.batch_walk import WalkLimits
from tidelog.records.compression import Codec, decompress
from tidelog.records.legacy import batch_of, open_legacy

# Cython's compiler goes by the first branches, the interpreter and mypy by the second ones.
if not TYPE_CHECKING and False:  # noqa: SIM223
    import cython
else:
    from tidelog.records import cython_shim as cython

if cython.compiled:
    if not TYPE_CHECKING:
        from cython.cimports.tidelog.coordinator.loading.big_endian import int16, int32, int64
        from cython.cimports.tidelog.coordinator.loading.record_fold import FULL, TAKEN, RecordFold
else:
    from tidelog.coordinator.loading.big_endian import int16, int32, int64
    from tidelog.coordinator.loading.record_fold import FULL, TAKEN, RecordFold

    _CRC: Any = None

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

MAX_BATCH_BYTES = 32 * 1024 * 1024
"""What the records of one compressed batch may unpack to. Coordinators write batches of a megabyte."""
MAX_BATCH_RECORDS = 1_000_000

RECORD, MARKER, FOLDED, SKIPPED = range(4)
"""Kinds of events."""

_MAX_EVENTS = 4096
_MAX_KEPT_BYTES = 1024 * 1024
"""When bodies of this size wait to be applied, no other is unpacked before."""
_MAX_TYPES = 64

# C variables where this is compiled (see the .pxd), which imported names cannot be.
_HEADER_SIZE = HEADER_SIZE
_LOG_OVERHEAD = LOG_OVERHEAD
_ATTRIBUTES_AT = ATTRIBUTES_AT
_CODEC_MASK = CODEC_MASK
_CONTROL_BIT = CONTROL_BIT
_TRANSACTIONAL_BIT = TRANSACTIONAL
_MAGIC = 2
_MASK_32 = 0xFFFFFFFF
_POLYNOMIAL = 0x82F63B78

# The fields of an event, in one array of numbers.
_WIDTH = 9
_KIND = 0
_OFFSET = 1
_PRODUCER_ID = 2
_EPOCH = 3
_BODY = 4
_KEY_AT = 5
_KEY_LENGTH = 6
_VALUE_AT = 7
_VALUE_LENGTH = 8
_C_RECORD, _C_MARKER, _C_FOLDED, _C_SKIPPED = 0, 1, 2, 3

# Why a walk has stopped.
_DONE = 0
_APPLY = 1
_FOLD_FULL = 2
_INFLATE = 3
_OPENED = 4

# What was passed over: how many, and the first and the last offset of each.
_WITHOUT_KEY = 0
_SHORT_KEY = 1
_UNKNOWN_TYPE = 2
_PASSED = 3
_REASONS = ("without a key", "with a key that is too short", "of unknown types")

# Reasons for batches, by number; what a decompressor says is added behind them.
_UNKNOWN_FORMAT = 0
_BAD_CRC = 1
_BAD_COUNT = 2
_TOO_MANY = 3
_MALFORMED = 4
_BATCH_REASONS = (
    "the batch is of an unknown format",
    "the batch fails its CRC",
    "the batch counts its records or offsets wrongly",
    f"the batch has more than {MAX_BATCH_RECORDS} records",
    "the records of the batch are malformed",
)

_CODECS = tuple(Codec)


class PassedOver(NamedTuple):
    """Records that were not looked at."""

    what: str
    records: int
    first_offset: int
    last_offset: int


@cython.cfunc
def _fill_crc_tables() -> object:
    """The tables of CRC-32C for eight bytes at a time; zlib's and our checksum module need the GIL."""
    number: cython.uint
    bit: cython.Py_ssize_t
    table: cython.Py_ssize_t
    index: cython.Py_ssize_t
    for index in range(256):
        number = index
        bit = 0
        while bit < 8:
            bit += 1
            number = number >> 1 ^ (_POLYNOMIAL if number & 1 else 0)
        _CRC[index] = number
    for index in range(256):
        for table in range(1, 8):
            number = _CRC[(table - 1) * 256 + index]
            _CRC[table * 256 + index] = number >> 8 ^ _CRC[number & 0xFF]
    return None


if cython.compiled:
    _fill_crc_tables()


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _crc(source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    if not cython.compiled:
        return crc32c(source[at:end])
    number: cython.uint = 0
    number = ~number
    low: cython.uint
    while at + 8 <= end:
        low = number ^ (
            cython.cast(cython.uint, source[at])
            | cython.cast(cython.uint, source[at + 1]) << 8
            | cython.cast(cython.uint, source[at + 2]) << 16
            | cython.cast(cython.uint, source[at + 3]) << 24
        )
        number = (
            _CRC[0x700 + (low & 0xFF)]
            ^ _CRC[0x600 + (low >> 8 & 0xFF)]
            ^ _CRC[0x500 + (low >> 16 & 0xFF)]
            ^ _CRC[0x400 + (low >> 24)]
            ^ _CRC[0x300 + source[at + 4]]
            ^ _CRC[0x200 + source[at + 5]]
            ^ _CRC[0x100 + source[at + 6]]
            ^ _CRC[source[at + 7]]
        )
        at += 8
    while at < end:
        number = number >> 8 ^ _CRC[(number ^ source[at]) & 0xFF]
        at += 1
    return number ^ _MASK_32


@cython.final
@cython.cclass
class LogWalker:
    """Walks over one log, a chunk after the other."""

    __slots__ = (
        "_at",
        "_base_offset",
        "_bodies",
        "_body",
        "_body_number",
        "_body_view",
        "_chunk",
        "_chunk_size",
        "_chunk_view",
        "_control",
        "_count",
        "_delta",
        "_end",
        "_epoch",
        "_event_memory",
        "_event_view",
        "_events",
        "_fold",
        "_header_at",
        "_is_packed",
        "_kept_bytes",
        "_key_at",
        "_key_length",
        "_known_types",
        "_left",
        "_passed",
        "_passed_view",
        "_pos",
        "_producer_id",
        "_reasons",
        "_source",
        "_taken",
        "_transactional",
        "_type_view",
        "_value_at",
        "_value_length",
        "chunk",
        "fold_is_full",
        "max_bytes",
        "max_records",
        "next_offset",
    )

    def __init__(
        self,
        known_types: Iterable[int],
        fold: RecordFold | None = None,
        *,
        max_bytes: int = MAX_BATCH_BYTES,
        max_records: int = MAX_BATCH_RECORDS,
    ) -> None:
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.fold_is_full = False
        self.next_offset = -1
        self._known_types = bytearray(_MAX_TYPES)
        for number in known_types:
            self._known_types[number] = 1
        self._fold = RecordFold() if fold is None else fold
        self._body = b""
        self._is_packed = False
        self._bodies: list[Any] = []
        self._reasons = list(_BATCH_REASONS)
        self._event_memory = array("q", bytes(_MAX_EVENTS * _WIDTH * 8))
        self._passed = array("q", bytes(_PASSED * 3 * 8))
        if cython.compiled:
            self._type_view = self._known_types
            self._passed_view = self._passed
            self._event_view = self._event_memory
            self._events = cython.address(self._event_view[0])
        else:
            self._events = self._event_memory
        self._count = self._taken = 0
        self._left = 0
        self._pos = self._chunk_size = 0
        self._at = self._end = self._kept_bytes = 0
        self._body_number = 0
        self._base_offset = self._delta = 0
        self._producer_id = self._epoch = -1
        self._transactional = self._control = False
        self._key_at = self._key_length = self._value_at = self._value_length = 0
        self._header_at = 0
        self.open(b"")

    def open(self, chunk: bytes) -> None:
        """Begin with a chunk, of which whole batches are walked over; the one before must be done."""
        self._chunk = chunk
        self._chunk_size = len(chunk)
        self._pos = 0
        self.next_offset = -1
        self._bodies = [chunk]
        self._kept_bytes = 0
        if cython.compiled:
            self._chunk_view = chunk
            self.chunk = cython.address(self._chunk_view[0]) if self._chunk_size else cython.NULL
        else:
            self.chunk = chunk
        self._source = self.chunk

    def walk(self) -> bool:
        """Go on; True at the end of the chunk. All events have to be taken before the next call.

        With ``fold_is_full`` the fold has to be drained after the events, too.
        """
        fold: RecordFold = self._fold
        code: cython.Py_ssize_t
        self.fold_is_full = False
        self._count = self._taken = 0
        del self._bodies[1:]
        del self._reasons[len(_BATCH_REASONS) :]
        self._kept_bytes = 0
        if self._is_packed:
            self._inflate()
        elif self._body_number and self._left > 0:
            self._bodies.append(self._body)
            self._body_number = 1
        while True:
            with cython.nogil:
                code = self._walk(fold)
            if code == _DONE:
                return True
            if code == _APPLY:
                return False
            if code == _FOLD_FULL:
                if fold.can_grow:
                    fold.grow()
                    continue
                self.fold_is_full = True
                return False
            if self._kept_bytes > _MAX_KEPT_BYTES and self._count:
                return False
            self._inflate()

    def next_event(self) -> tuple[Any, ...] | None:
        """The next event, by its kind, None if there is no other.

        ``RECORD``, offset, producer id, epoch, key, value; ``MARKER``, offset, producer id, epoch, whether it
        commits; ``FOLDED``, up to which entry the fold is to be drained; ``SKIPPED``, first and last offset
        of a batch and why.
        """
        if self._taken >= self._count:
            return None
        base: cython.Py_ssize_t = self._taken * _WIDTH
        self._taken += 1
        events: cython.p_longlong = self._events
        kind: cython.Py_ssize_t = events[base + _KIND]
        if kind == _C_RECORD:
            body: bytes = self._bodies[events[base + _BODY]]
            key_at: cython.Py_ssize_t = events[base + _KEY_AT]
            value_at: cython.Py_ssize_t = events[base + _VALUE_AT]
            value_length: cython.Py_ssize_t = events[base + _VALUE_LENGTH]
            return (
                RECORD,
                events[base + _OFFSET],
                events[base + _PRODUCER_ID],
                events[base + _EPOCH],
                body[key_at : key_at + events[base + _KEY_LENGTH]],
                None if value_length < 0 else body[value_at : value_at + value_length],
            )
        if kind == _C_MARKER:
            return (
                MARKER,
                events[base + _OFFSET],
                events[base + _PRODUCER_ID],
                events[base + _EPOCH],
                events[base + _KEY_AT] == 1,
            )
        if kind == _C_FOLDED:
            return FOLDED, events[base + _OFFSET]
        return (
            SKIPPED,
            events[base + _OFFSET],
            events[base + _KEY_AT],
            self._reasons[events[base + _KEY_LENGTH]],
        )

    def end_fold(self) -> int:
        """Nothing follows: the entries up to the one with the number given here are to be drained."""
        return self._fold.cut()

    def passed_over(self) -> list[PassedOver]:
        """The records that were counted and not looked at, since the beginning."""
        return [
            PassedOver(what, *self._passed[number * 3 : number * 3 + 3])
            for number, what in enumerate(_REASONS)
            if self._passed[number * 3]
        ]

    # Batches

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _walk(self, fold: RecordFold) -> cython.Py_ssize_t:
        code: cython.Py_ssize_t
        while True:
            if self._left > 0:
                code = self._walk_records(fold)
                if code != _DONE:
                    return code
            # A batch takes an event at most before its records do.
            if self._count >= _MAX_EVENTS:
                return _APPLY
            code = self._next_batch()
            if code != _OPENED:
                return code

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _next_batch(self) -> cython.Py_ssize_t:
        """Open the next batch that can be read in place; others are left to ``_inflate`` or stepped over."""
        chunk: cython.p_const_uchar = self.chunk
        at: cython.Py_ssize_t = self._pos
        end: cython.Py_ssize_t
        attributes: cython.longlong
        if self._chunk_size - at < _LOG_OVERHEAD + 5:
            return _DONE
        end = at + _LOG_OVERHEAD + int32(chunk, at + 8)
        if end > self._chunk_size or end < at + _LOG_OVERHEAD + 5:
            return _DONE
        self._header_at = at
        self._pos = end
        self._base_offset = int64(chunk, at)
        if chunk[at + 16] != _MAGIC:
            self.next_offset = self._base_offset + 1
            if chunk[at + 16] > _MAGIC:
                return self._skip(self._base_offset, _UNKNOWN_FORMAT)
            self._is_packed = True
            return _INFLATE
        if end - at < _HEADER_SIZE:
            self.next_offset = self._base_offset + 1
            return self._skip(self._base_offset, _MALFORMED)
        last: cython.longlong = int32(chunk, at + 23)
        self.next_offset = self._base_offset + (last if last > 0 else 0) + 1
        if _crc(chunk, at + _ATTRIBUTES_AT, end) != (int32(chunk, at + 17) & _MASK_32):
            return self._skip(self.next_offset - 1, _BAD_CRC)
        self._left = int32(chunk, at + 57)
        if self._left < 0 or last < 0:
            return self._skip(self.next_offset - 1, _BAD_COUNT)
        if self._left > self.max_records:
            return self._skip(self.next_offset - 1, _TOO_MANY)
        attributes = int16(chunk, at + _ATTRIBUTES_AT)
        self._control = (attributes & _CONTROL_BIT) != 0
        self._transactional = (attributes & _TRANSACTIONAL_BIT) != 0
        self._producer_id = int64(chunk, at + 43)
        self._epoch = int16(chunk, at + 51)
        if attributes & _CODEC_MASK:
            self._is_packed = True
            return _INFLATE
        self._source = chunk
        self._body_number = 0
        return self._check_records(at + _HEADER_SIZE, end)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _skip(self, last: cython.longlong, reason: cython.Py_ssize_t) -> cython.Py_ssize_t:
        base: cython.Py_ssize_t = self._count * _WIDTH
        self._count += 1
        self._left = 0
        self._events[base + _KIND] = _C_SKIPPED
        self._events[base + _OFFSET] = self._base_offset
        self._events[base + _KEY_AT] = last
        self._events[base + _KEY_LENGTH] = reason
        return _OPENED

    @cython.cfunc
    def _inflate(self) -> object:
        """Unpack the batch whose header was read last."""
        self._is_packed = False
        header_at: cython.Py_ssize_t = self._header_at
        try:
            body = self._unpacked(memoryview(self._chunk)[header_at : self._pos])
        except Exception as error:
            # Decompressors fail in many ways; the batch is stepped over and the reason told.
            self._reasons.append(f"the batch cannot be unpacked: {error}")
            self._skip(self.next_offset - 1, len(self._reasons) - 1)
            return None
        size: cython.Py_ssize_t = len(body)
        self._body = body
        self._bodies.append(body)
        self._body_number = len(self._bodies) - 1
        self._kept_bytes += size
        if cython.compiled:
            self._body_view = body
            self._source = cython.address(self._body_view[0]) if size else self.chunk
        else:
            self._source = body
        with cython.nogil:
            self._check_records(0, size)
        return None

    @cython.cfunc
    def _unpacked(self, batch: Any) -> bytes:
        """The records of a compressed batch, or of a message of format 0 or 1 as format 2 has them."""
        codec: cython.Py_ssize_t
        if batch[16] == _MAGIC:
            codec = batch[_ATTRIBUTES_AT + 1] & _CODEC_MASK
            if codec >= len(_CODECS):
                raise CorruptRecordError(f"there is no codec {codec}")
            return decompress(_CODECS[codec], batch[_HEADER_SIZE:], self.max_bytes)
        rewritten = batch_of(open_legacy(batch), WalkLimits(self.max_bytes, self.max_records))
        self._base_offset = int.from_bytes(rewritten[:8], "big")
        self._left = int.from_bytes(rewritten[57:_HEADER_SIZE], "big")
        self._control = self._transactional = False
        self._producer_id = self._epoch = -1
        return rewritten[_HEADER_SIZE:]

    # Records

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_records(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """See whether all records of the batch can be read before the first of them is taken."""
        number: cython.longlong = self._left
        self._at = at
        self._end = end
        while number > 0:
            number -= 1
            if not self._advance():
                return self._skip(self.next_offset - 1, _MALFORMED)
        if self._at != end:
            return self._skip(self.next_offset - 1, _MALFORMED)
        self._at = at
        return _OPENED

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _advance(self) -> cython.bint:
        """Step over one record and note where its parts are; False if it cannot be read."""
        source: cython.p_const_uchar = self._source
        at: cython.Py_ssize_t = self._at
        end: cython.Py_ssize_t = self._end
        number: cython.longlong
        number, at = _varint(source, at, end, 5)
        # Attributes, timestamp delta, offset delta, key length, value length and header count: a byte each.
        if at < 0 or number < 6 or number > end - at:
            return False
        end = at + number
        number, at = _varint(source, at + 1, end, 10)
        self._delta, at = _varint(source, at, end, 5)
        number, at = _varint(source, at, end, 5)
        if at < 0 or number > end - at:
            return False
        self._key_at = at
        self._key_length = number
        if number > 0:
            at += number
        number, at = _varint(source, at, end, 5)
        # A header count must still follow.
        if at < 0 or at == end or number >= end - at:
            return False
        self._value_at = at
        self._value_length = number
        self._at = end
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _walk_records(self, fold: RecordFold) -> cython.Py_ssize_t:
        start: cython.Py_ssize_t
        kind: cython.longlong
        code: cython.Py_ssize_t
        offset: cython.longlong
        while self._left > 0:
            # What has been folded, and the record itself.
            if self._count + 2 > _MAX_EVENTS:
                return _APPLY
            start = self._at
            self._advance()
            offset = self._base_offset + self._delta
            if self._key_length < 0:
                self._left -= 1
                self._pass_over(_WITHOUT_KEY, offset)
                continue
            if self._control:
                self._left -= 1
                if self._key_length < 4 or int16(self._source, self._key_at) < 0:
                    self._pass_over(_SHORT_KEY, offset)
                    continue
                kind = int16(self._source, self._key_at + 2)
                if kind == 0 or kind == 1:
                    self._add_event(fold, _C_MARKER, offset)
                    self._events[(self._count - 1) * _WIDTH + _KEY_AT] = kind
                continue
            kind = int16(self._source, self._key_at) if self._key_length >= 2 else -1
            if kind < 0 or kind >= _MAX_TYPES or not self._is_known(kind):
                self._left -= 1
                self._pass_over(_UNKNOWN_TYPE if self._key_length >= 2 else _SHORT_KEY, offset)
                continue
            if not self._transactional:
                code = fold.put(
                    self._source, self._key_at, self._key_length, self._value_at, self._value_length, offset
                )
                if code == FULL:
                    self._at = start
                    return _FOLD_FULL
                if code == TAKEN:
                    self._left -= 1
                    continue
            self._left -= 1
            self._add_event(fold, _C_RECORD, offset)
        return _DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_event(
        self, fold: RecordFold, kind: cython.Py_ssize_t, offset: cython.longlong
    ) -> cython.Py_ssize_t:
        """An event of the present record, after what has been folded before it."""
        events: cython.p_longlong = self._events
        base: cython.Py_ssize_t = self._count * _WIDTH
        if fold.has_run():
            events[base + _KIND] = _C_FOLDED
            events[base + _OFFSET] = fold.cut()
            base += _WIDTH
            self._count += 1
        events[base + _KIND] = kind
        events[base + _OFFSET] = offset
        events[base + _PRODUCER_ID] = self._producer_id if self._transactional else -1
        events[base + _EPOCH] = self._epoch if self._transactional else -1
        events[base + _BODY] = self._body_number
        events[base + _KEY_AT] = self._key_at
        events[base + _KEY_LENGTH] = self._key_length
        events[base + _VALUE_AT] = self._value_at
        events[base + _VALUE_LENGTH] = self._value_length
        self._count += 1
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_known(self, kind: cython.longlong) -> cython.bint:
        if cython.compiled:
            return self._type_view[kind] != 0
        return bool(self._known_types[kind])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _pass_over(self, reason: cython.Py_ssize_t, offset: cython.longlong) -> cython.Py_ssize_t:
        if cython.compiled:
            if not self._passed_view[reason * 3]:
                self._passed_view[reason * 3 + 1] = offset
            self._passed_view[reason * 3] += 1
            self._passed_view[reason * 3 + 2] = offset
            return 0
        if not self._passed[reason * 3]:
            self._passed[reason * 3 + 1] = offset
        self._passed[reason * 3] += 1
        self._passed[reason * 3 + 2] = offset
        return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint(
    source: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, most: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The number at ``at`` and the position behind it: -1 where there is none, and at position -1."""
    raw: cython.ulonglong = 0
    byte: cython.ulonglong
    shift: cython.Py_ssize_t = 0
    while 0 <= at < end and shift < most * 7:
        byte = source[at]
        at += 1
        if byte < 0x80:
            # The last byte that may be there must not go beyond 32 or 64 bits.
            if shift == (most - 1) * 7 and byte >> (4 if most == 5 else 1):
                return 0, -1
            raw |= byte << shift
            return (raw >> 1) ^ -(raw & 1), at
        raw |= (byte & 0x7F) << shift
        shift += 7
    return 0, -1
