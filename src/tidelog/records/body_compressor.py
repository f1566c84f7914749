"""Records compressed piece by piece, in the framings of ``compression``: the other way of ``body_stream``.

Memory is that of the codec and of what comes out, which may be bounded. Used by ``storage/log/validation``
where a topic asks for another codec than a producer's.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import lz4.frame

from tidelog.records.batch import Buffer
from tidelog.records.compression import (
    GZIP_WBITS,
    LEVELS,
    SNAPPY_BLOCK_LENGTH,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    Codec,
    compress,
    cramjam,
    lz4_strength,
)

if sys.version_info >= (3, 14) and not TYPE_CHECKING:
    from compression import zstd
else:
    from backports import zstd

# The highest levels would otherwise take hundreds of megabytes for a stream of unknown length.
_ZSTD_WINDOW_LOG: Final = 21


class BodyCompressor:
    """Takes the records of a batch and gives them compressed."""

    def __init__(self, codec: Codec, level: int | None) -> None:
        self.size = 0
        """How many bytes have come out."""
        self._codec = codec
        self._level = level
        self._first: bytes | None = None
        self._stream: _Compressor | None = None
        self._parts: list[bytes] = []

    def write(self, piece: Buffer) -> None:
        """Take in the next bytes."""
        if self._stream is not None:
            self._keep(self._stream[0](piece))
        elif self._first is None:
            # It may be all there is, and codecs do better if they know that.
            self._first = bytes(piece)
        else:
            self._stream = _COMPRESSORS[self._codec](self._level)
            self._keep(self._stream[0](self._first))
            self._keep(self._stream[0](piece))

    def finish(self) -> bytes:
        """Everything that came out."""
        if self._stream is None:
            self._keep(compress(self._codec, self._first or b"", self._level))
        else:
            self._keep(self._stream[1]())
        return b"".join(self._parts)

    def _keep(self, part: bytes) -> None:
        self.size += len(part)
        self._parts.append(part)


_Compressor = tuple[Callable[[Buffer], bytes], Callable[[], bytes]]


def _plain(_level: int | None) -> _Compressor:
    return bytes, bytes


def _gzip(level: int | None) -> _Compressor:
    encoder = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WBITS)
    return encoder.compress, encoder.flush


def _lz4(level: int | None) -> _Compressor:
    encoder: Any = lz4.frame.LZ4FrameCompressor(
        compression_level=lz4_strength(level),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
    )
    head: list[bytes] = [encoder.begin()]

    def write(piece: Buffer) -> bytes:
        compressed: bytes = encoder.compress(piece)
        return head.pop() + compressed if head else compressed

    def end() -> bytes:
        rest: bytes = encoder.flush()
        return head.pop() + rest if head else rest

    return write, end


def _zstd(level: int | None) -> _Compressor:
    parameters: dict[int, int] = {
        zstd.CompressionParameter.compression_level: LEVELS[Codec.ZSTD][2] if level is None else level,
        zstd.CompressionParameter.window_log: _ZSTD_WINDOW_LOG,
    }
    encoder = zstd.ZstdCompressor(options=parameters)
    return encoder.compress, encoder.flush


def _snappy(_level: int | None) -> _Compressor:
    head = [XERIAL_HEADER]
    held = bytearray()

    def block(data: Buffer) -> bytes:
        compressed = bytes(cramjam().snappy.compress_raw(data))
        return SNAPPY_BLOCK_LENGTH.pack(len(compressed)) + compressed

    def write(piece: Buffer) -> bytes:
        held.extend(piece)
        parts = [head.pop()] if head else []
        whole = len(held) - len(held) % XERIAL_BLOCK_BYTES
        for start in range(0, whole, XERIAL_BLOCK_BYTES):
            parts.append(block(bytes(held[start : start + XERIAL_BLOCK_BYTES])))
        del held[:whole]
        return b"".join(parts)

    def end() -> bytes:
        return b"".join(head) + (block(bytes(held)) if held else b"")

    return write, end


_COMPRESSORS: Final[dict[Codec, Callable[[int | None], _Compressor]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
