"""A walk over the records of one batch, in steps that are short, whatever the batch holds.

Joins the two halves: ``body_stream`` unpacks the records piece by piece, ``record_walker`` looks at each
piece. A step is one piece, some 100 µs: whoever walks on the event loop takes a few and leaves the rest to a
thread. Steps are counted and not timed, so that the same batch is always treated alike.

Invariant: memory does not grow with what the batch holds.

Called by ``storage``: validation, offsets by time, compaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Buffer
from tidelog.records.body_stream import BodyStream
from tidelog.records.compression import Codec
from tidelog.records.record_walker import RecordWalker

PIECE_BYTES: Final = 64 * 1024


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

    def advance(self, steps: int | None = None) -> bool:
        """Take so many steps, or all; gives whether the end is reached. Raises ``CorruptRecordError``.

        A walk that looks for a record ends there, and what lies behind is not looked at. Whoever gave
        ``write`` gets every piece.
        """
        stream, walker = self._stream, self.walker
        while steps is None or steps > 0:
            piece = stream.read(PIECE_BYTES)
            self._take(piece)
            if not walker.found and not stream.finished and 0 < len(piece) < PIECE_BYTES:
                # Most likely the last: seeing that there are no more is no step of its own.
                self._take(stream.read(PIECE_BYTES) if not stream.next_bytes else b"")
            if walker.found:
                return True
            if stream.finished:
                walker.finish()
                return True
            if steps is not None:
                steps -= 1
        return False

    def _take(self, piece: Buffer) -> None:
        self.walker.feed(piece)
        if self._write is not None and piece:
            self._write(piece)

    @property
    def read_bytes(self) -> int:
        """How much has been unpacked so far."""
        return self._stream.read_bytes

    @property
    def next_bytes(self) -> int:
        """How much the next step unpacks at least, where that is known."""
        return self._stream.next_bytes


def body_stream(
    buf: Buffer, header: BatchHeader, pos: int, limits: WalkLimits, *, one_frame: bool = False
) -> BodyStream:
    """The records of the batch at ``pos``; raises ``CorruptRecordError`` for a codec that there is not.

    ``one_frame`` for batches that are to be appended, which every client must be able to read.
    """
    number = header.attributes & CODEC_MASK
    try:
        codec = Codec(number)
    except ValueError:
        raise CorruptRecordError(f"the batch has the unknown codec {number}") from None
    payload = memoryview(buf)[pos + HEADER_SIZE : pos + header.size_bytes]
    return BodyStream(codec, payload, limits.max_bytes if codec else len(payload), one_frame=one_frame)


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
