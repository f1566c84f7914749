"""The uncompressed records of a batch, piece by piece: no more of them is in memory than one piece.

``compression.decompress`` gives all at once, which is right for a client that has asked for the data. A
broker gets them from strangers: a megabyte can hold a gigabyte. Framings, and what is refused, are those of
``compression``; besides, lz4 frames with linked blocks are refused, which Java's clients cannot read.

A body that is to be appended (``one_frame``) is also a single gzip member or a single snappy stream, as every
known producer writes it. librdkafka drops the records of further members and aborts where the first is
empty; of snappy streams in a row every client but Java's refuses the second. Consecutive zstd frames stay
allowed: all clients read them. Three forms of a single frame are refused, too: Java stops at an lz4 block
that holds nothing, Java and Go at an lz4 frame that names a dictionary, aiokafka and Java at a snappy stream
of another version than 1. Batches that are already in a log are read as before.

Invariant: a piece is at most as large as was asked for, but for snappy, whose blocks come whole (one of ``n``
bytes holds at most ``64 n``), and a call of ``read`` does a bounded amount of work: it may give nothing
though more is to come. The decoders let go of the interpreter lock. Called through
``batch_walk``.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import lz4.frame

from tidelog.errors import CorruptRecordError
from tidelog.records.compression import (
    GZIP_WBITS,
    SNAPPY_BLOCK_LENGTH,
    SNAPPY_MAX_RATIO,
    XERIAL_HEADER,
    XERIAL_HEADER_BYTES,
    XERIAL_MAGIC,
    Codec,
    cramjam,
)

if sys.version_info >= (3, 14) and not TYPE_CHECKING:
    from compression import zstd
else:
    from backports import zstd

# Decoders copy what they have not consumed, so they get their input in small portions.
_INPUT_BYTES: Final = 16 * 1024
# Java reads windows of up to 128 MB; memory for one is taken as it fills.
_ZSTD_WINDOW: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 27}
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_HAS_CHECKSUMS: Final = 0x10
_LZ4_HAS_DICTIONARY: Final = 0x01
_LZ4_BLOCK_SIZE: Final = struct.Struct("<I")
_LZ4_NOT_COMPRESSED: Final = 1 << 31
_LZ4_BLOCKS_AT_ONCE: Final = 200


def _broken() -> tuple[type[Exception], ...]:
    """What the decoders raise for bytes that they cannot read; asked for when something was raised."""
    return (zlib.error, zstd.ZstdError, cramjam().DecompressionError, RuntimeError, EOFError, struct.error)


class BodyTooLargeError(CorruptRecordError):
    """Records that take more bytes than they may."""


class UnportableBodyError(CorruptRecordError):
    """A body that some clients read and others do not."""


class StrayBytesError(UnportableBodyError):
    """Bytes behind the one frame that a body may have."""

    def __init__(self, size: int, frame: str) -> None:
        super().__init__(
            f"{size} bytes follow the first {frame}; write the body of a batch as exactly one {frame}"
        )


class BodyStream:
    """The records of one batch, uncompressed, in their order."""

    def __init__(
        self, codec: Codec, payload: memoryview, limit_bytes: int, *, one_frame: bool = False
    ) -> None:
        self.finished = False
        """Whether everything has been read."""
        self.read_bytes = 0
        self._codec = codec
        self._limit_bytes = limit_bytes
        self._claimed: Callable[[], int] | None = None
        if codec is Codec.SNAPPY:
            self._read, self._claimed = _snappy(payload, one_frame)
        else:
            self._read = _SOURCES[codec](payload, one_frame)

    @property
    def next_bytes(self) -> int:
        """How large the next piece is at least, where it cannot be had in smaller ones; else 0."""
        try:
            return 0 if self._claimed is None else self._claimed()
        except _broken():
            # Reading it will say what is wrong.
            return 0

    def read(self, max_bytes: int) -> bytes | memoryview:
        """The next bytes, perhaps none; ``CorruptRecordError`` where they cannot be had.

        ``BodyTooLargeError`` where there are more than ``limit_bytes`` of them.
        """
        left = self._limit_bytes - self.read_bytes
        if self.next_bytes > left:
            raise self._too_large()
        try:
            piece = self._read(min(max_bytes, left + 1))
        except _broken() as error:
            raise CorruptRecordError(f"{self._codec.label} data cannot be decompressed: {error}") from error
        if piece is None:
            self.finished = True
            return b""
        self.read_bytes += len(piece)
        if self.read_bytes > self._limit_bytes:
            raise self._too_large()
        return piece

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(
            f"the {self._codec.label} data decompresses to more than {self._limit_bytes} bytes"
        )


_Read = Callable[[int], "bytes | memoryview | None"]


def _plain(payload: memoryview, _one_frame: bool) -> _Read:
    at = 0

    def read(max_bytes: int) -> memoryview | None:
        nonlocal at
        if at >= len(payload):
            return None
        piece = payload[at : at + max_bytes]
        at += len(piece)
        return piece

    return read


class _Frames:
    """Frames of one codec in a row, each read by a decoder of its own.

    ``step`` has a decoder take in some bytes: it gives what comes out and what was left of the input. A frame
    must be whole. Where ``only`` names it, no other one may follow. ``check`` looks at what begins at a
    position before a decoder takes it in, and returns how far it has looked.
    """

    def __init__(
        self,
        payload: memoryview,
        new_decoder: Callable[[], Any],
        step: Callable[[Any, bytes, int], tuple[bytes, bytes]],
        only: str = "",
        check: Callable[[int], int] | None = None,
    ) -> None:
        self._payload = payload
        self._at = 0
        self._new_decoder = new_decoder
        self._step = step
        self._only = only
        self._check = check
        self._decoder = new_decoder()
        self._rest = b""

    def read(self, max_bytes: int) -> bytes | None:
        """The next piece; None at the end."""
        if not self._rest:
            end = self._at + _INPUT_BYTES
            if self._check is not None:
                end = min(end, self._check(self._at))
            self._rest = bytes(self._payload[self._at : end])
            self._at += len(self._rest)
        if self._decoder.eof:
            if not self._rest:
                return None
            if self._only:
                raise StrayBytesError(len(self._rest) + len(self._payload) - self._at, self._only)
            self._decoder = self._new_decoder()
        had = self._rest
        piece, self._rest = self._step(self._decoder, had, max_bytes)
        if not had and not piece and not self._decoder.eof:
            raise EOFError("the data is cut short")
        return piece


def _gzip(payload: memoryview, one_frame: bool) -> _Read:
    def step(decoder: Any, data: bytes, max_bytes: int) -> tuple[bytes, bytes]:
        piece = decoder.decompress(data, max_bytes)
        return piece, decoder.unused_data if decoder.eof else decoder.unconsumed_tail

    only = "gzip member" if one_frame else ""
    return _Frames(payload, lambda: zlib.decompressobj(GZIP_WBITS), step, only).read


def _keeping(decoder: Any, data: bytes, max_bytes: int) -> tuple[bytes, bytes]:
    """A step of the decoders that keep what they have not consumed, and want no more until it is."""
    given, kept = (data, b"") if decoder.needs_input else (b"", data)
    piece = decoder.decompress(given, max_bytes)
    return piece, (decoder.unused_data or b"") + kept if decoder.eof else kept


def _lz4(payload: memoryview, one_frame: bool) -> _Read:
    check = None
    if bytes(payload[:4]) == _LZ4_MAGIC and len(payload) > 4:
        flags = payload[4]
        if not flags & _LZ4_INDEPENDENT_BLOCKS:
            raise CorruptRecordError("the lz4 frame has linked blocks, which Java's clients cannot read")
        if one_frame:
            if flags & _LZ4_HAS_DICTIONARY:
                raise UnportableBodyError(
                    "the lz4 frame names a dictionary, which Java's and Go's clients cannot read; write it "
                    "without one"
                )
            check = _Lz4Blocks(payload, flags).check
    return _Frames(payload, lz4.frame.LZ4FrameDecompressor, _keeping, "lz4 frame", check).read


class _Lz4Blocks:
    """Finds blocks of an lz4 frame that hold nothing, some blocks at a time.

    Java's reader takes the first one for the end of the data. The decoder finds whatever else is wrong.
    """

    def __init__(self, payload: memoryview, flags: int) -> None:
        self._payload = payload
        # Magic, flags, block size and the checksum of these.
        self._next = 7 + 8 * bool(flags & _LZ4_HAS_SIZE)
        self._checksum_bytes = 4 * bool(flags & _LZ4_HAS_CHECKSUMS)

    def check(self, start: int) -> int:
        """Look at the blocks that begin in the next bytes; returns where it stopped, behind ``start``."""
        payload, overhead = self._payload, _LZ4_BLOCK_SIZE.size + self._checksum_bytes
        end = start + _INPUT_BYTES
        last = min(end, len(payload)) - _LZ4_BLOCK_SIZE.size
        for _ in range(_LZ4_BLOCKS_AT_ONCE):
            if self._next > last:
                return end
            (field,) = _LZ4_BLOCK_SIZE.unpack_from(payload, self._next)
            size = field & ~_LZ4_NOT_COMPRESSED
            if not field:
                # The end of the frame.
                self._next = len(payload)
                return end
            if size <= (0 if field & _LZ4_NOT_COMPRESSED else 1):
                raise UnportableBodyError(
                    "the lz4 frame has an empty block, at which Java's clients stop; leave it out"
                )
            self._next += overhead + size
        return self._next


def _zstd(payload: memoryview, _one_frame: bool) -> _Read:
    return _Frames(payload, lambda: zstd.ZstdDecompressor(options=_ZSTD_WINDOW), _keeping).read


def _snappy(payload: memoryview, one_frame: bool) -> tuple[_Read, Callable[[], int]]:
    """Reads block by block; the second function tells how large the next one claims to be."""
    at = 0
    xerial = bytes(payload[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC

    def is_header() -> bool:
        return bytes(payload[at : at + len(XERIAL_MAGIC)]) == XERIAL_MAGIC

    def next_block() -> memoryview:
        if not xerial:
            return payload
        (length,) = SNAPPY_BLOCK_LENGTH.unpack_from(payload, at)
        start = at + SNAPPY_BLOCK_LENGTH.size
        if length > len(payload) - start:
            raise EOFError(f"a block of {length} bytes has only {len(payload) - start} left")
        return payload[start : start + length]

    def is_over() -> bool:
        return at >= len(payload) and (at > 0 or xerial)

    def claimed() -> int:
        if is_over() or (xerial and is_header()):
            return 0
        block = next_block()
        size: int = cramjam().snappy.decompress_raw_len(block)
        return min(size, len(block) * SNAPPY_MAX_RATIO)

    def read(_max_bytes: int) -> bytes | None:
        nonlocal at
        if is_over():
            return None
        if xerial and is_header():
            # Streams may be concatenated: Java's reader skips a header in the middle, and so must we.
            if one_frame and at:
                raise StrayBytesError(len(payload) - at, "snappy stream")
            if len(payload) - at < XERIAL_HEADER_BYTES:
                raise EOFError("the xerial header is cut short")
            if one_frame and payload[:XERIAL_HEADER_BYTES] != XERIAL_HEADER:
                version, compatible_version = struct.unpack_from(">ii", payload, len(XERIAL_MAGIC))
                raise UnportableBodyError(
                    f"the snappy stream has the version {version} and the compatible version "
                    f"{compatible_version}, which some clients cannot read; write 1 for both"
                )
            at += XERIAL_HEADER_BYTES
            return b""
        block = next_block()
        at += len(block) + (SNAPPY_BLOCK_LENGTH.size if xerial else 0)
        size = cramjam().snappy.decompress_raw_len(block)
        if not len(block) or size > len(block) * SNAPPY_MAX_RATIO:
            raise CorruptRecordError(f"a snappy block of {len(block)} bytes claims to hold {size}")
        return bytes(cramjam().snappy.decompress_raw(block, size))

    return read, claimed


_SOURCES: Final[dict[Codec, Callable[[memoryview, bool], _Read]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gzip,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
