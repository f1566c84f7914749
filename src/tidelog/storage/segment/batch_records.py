"""The records of one batch for compaction, read piece by piece, as often as needed.

A batch of a few kilobytes may unpack to gigabytes, so its records are never in memory as a whole: each walk
over them unpacks the batch anew and has one piece, and one record, at a time.

:meth:`BatchRecords.check` says before anything is decided whether a batch can be read at all: compiled,
without making objects. Afterwards the walks need not look twice at what they read. A record of more than
:data:`MAX_RECORD_BYTES` counts as unreadable. Used by ``compaction`` and ``record_filter``, in the cleaner's
process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import BatchHeader, Buffer
from tidelog.records.batch_walk import BatchWalk, WalkLimits, body_stream
from tidelog.records.record import RecordSpan
from tidelog.records.record_walker import RecordWalker
from tidelog.records.varint import decode_varint, decode_varlong

MAX_RECORD_BYTES: Final = 16 * 1024 * 1024
"""No record is taken into memory that is larger."""

_LIMITS: Final = WalkLimits(1 << 31, (1 << 31) - 1)
_PIECE_BYTES: Final = 256 * 1024
_new_tuple = tuple.__new__


class BatchRecords:
    """The records of the batch at ``pos``."""

    def __init__(self, buf: Buffer, pos: int, header: BatchHeader) -> None:
        self._buf = buf
        self._pos = pos
        self._header = header

    def check(self) -> None:
        """Raise :class:`CorruptRecordError` where the records are not what the header says, or too large."""
        header = self._header
        walker = RecordWalker(
            header.record_count, header.base_timestamp, last_delta=max(header.last_offset_delta, 0)
        )
        stream = body_stream(self._buf, header, self._pos, _LIMITS)
        BatchWalk(stream, walker).advance()
        if walker.bad_count:
            bad = walker.bad_records[0]
            raise CorruptRecordError(
                f"record {bad.record_index} of the batch has the offset delta {bad.offset_delta}"
            )
        if stream.read_bytes > MAX_RECORD_BYTES:
            for _ in self.pieces():
                continue

    def pieces(self) -> Iterator[bytes]:
        """The uncompressed records, whole ones only, a few of them at a time or a large one."""
        stream = body_stream(self._buf, self._header, self._pos, _LIMITS)
        wanted = 0
        held: list[bytes] = []
        while not stream.finished:
            piece = bytes(stream.read(_PIECE_BYTES))
            held.append(piece)
            wanted -= len(piece)
            if wanted > 0:
                continue
            data = held[0] if len(held) == 1 else b"".join(held)
            end, missing = _whole_records(data)
            if missing > MAX_RECORD_BYTES:
                raise CorruptRecordError(f"a record takes more than {MAX_RECORD_BYTES} bytes")
            if end:
                yield data[:end] if end < len(data) else data
            held = [data[end:]]
            wanted = missing

    def spans(self) -> Iterator[tuple[bytes, RecordSpan]]:
        """Every record: the piece that it lies in, and where."""
        for piece in self.pieces():
            for span in scan_sound(piece):
                yield piece, span


def _whole_records(data: bytes) -> tuple[int, int]:
    """Where the last whole record ends, and how many bytes the next one lacks (1 where that is not known)."""
    pos = 0
    size = len(data)
    while pos < size:
        if (length := data[pos]) < 0x80:
            at = pos + 1
            length >>= 1
        else:
            try:
                length, at = decode_varint(data, pos)
            except (IndexError, CorruptRecordError):
                return pos, 1
        if at + length > size:
            return pos, at + length - size
        pos = at + length
    return pos, 0


def scan_sound(body: bytes) -> Iterator[RecordSpan]:
    """Where each record of ``body`` lies, which are sound: nothing is checked but where varints end."""
    pos = 0
    size = len(body)
    while pos < size:
        start = pos
        if (length := body[pos]) < 0x80:
            length >>= 1
            pos += 1
        else:
            length, pos = decode_varint(body, pos)
        end = pos + length
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
        yield _new_tuple(
            RecordSpan,
            (start, end, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length),
        )
        pos = end
