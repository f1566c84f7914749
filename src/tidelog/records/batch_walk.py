"""A walk over the records of one batch, in steps that end in time, whatever the batch holds.

Joins the two halves: ``body_stream`` unpacks the records piece by piece, ``record_walker`` looks at each
piece. A walk that is not finished in time on the event loop goes on where it is, in a thread.

Invariant: a step takes at most a piece longer than it may (some 100 µs), and memory does not grow with what
the batch holds. Called by ``storage``: validation, offsets by time, compaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Buffer
from tidelog.records.body_stream import BodyStream
from tidelog.records.compression import Codec
from tidelog.records.record_walker import RecordWalker

PIECE_BYTES: Final = 64 * 1024
# With nobody waiting for the next step, larger pieces cost less.
LARGE_PIECE_BYTES: Final = 256 * 1024

_now_s = time.perf_counter


class WalkLimits(NamedTuple):
    """How much a batch may hold: bytes when unpacked, and records (``message.max.…`` of the broker)."""

    max_bytes: int
    max_records: int


DEFAULT_LIMITS: Final = WalkLimits(128 * 1024 * 1024, 4_000_000)


class BatchWalk:
    """A walk in progress; ``walker`` has what it found so far."""

    __slots__ = ("_stream", "_write", "walker")

    def __init__(
        self, stream: BodyStream, walker: RecordWalker, write: Callable[[Buffer], None] | None = None
    ) -> None:
        self.walker = walker
        self._stream = stream
        self._write = write

    def advance(self, seconds: float | None = None) -> bool:
        """Go on for so long, or to the end; gives whether it is there. Raises ``CorruptRecordError``.

        A walk that looks for a record ends there, and what lies behind is not looked at. Whoever gave
        ``write`` gets every piece.
        """
        stream, walker = self._stream, self.walker
        end_s = None if seconds is None else _now_s() + seconds
        piece_bytes = LARGE_PIECE_BYTES if seconds is None else PIECE_BYTES
        while True:
            piece = stream.read(piece_bytes)
            walker.feed(piece)
            if self._write is not None and piece:
                self._write(piece)
            if walker.found:
                return True
            if stream.finished:
                walker.finish()
                return True
            if end_s is not None and _now_s() >= end_s:
                return False


def body_stream(buf: Buffer, header: BatchHeader, pos: int, limits: WalkLimits) -> BodyStream:
    """The records of the batch at ``pos``; raises ``CorruptRecordError`` for a codec that there is not."""
    number = header.attributes & CODEC_MASK
    try:
        codec = Codec(number)
    except ValueError:
        raise CorruptRecordError(f"the batch has the unknown codec {number}") from None
    payload = memoryview(buf)[pos + HEADER_SIZE : pos + header.size_bytes]
    return BodyStream(codec, payload, limits.max_bytes if codec else len(payload))


def search_walk(
    buf: Buffer, header: BatchHeader, pos: int, limits: WalkLimits, timestamp: int, start_offset: int
) -> BatchWalk:
    """A walk to the first record from ``start_offset`` on that is not older than ``timestamp``.

    What it finds, if anything, is in ``walker.found_timestamp`` and ``walker.found_delta``.
    """
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    walker = RecordWalker(header.record_count, header.base_timestamp, append_time=append_time)
    walker.look_for(timestamp, start_offset - header.base_offset)
    return BatchWalk(body_stream(buf, header, pos, limits), walker)
