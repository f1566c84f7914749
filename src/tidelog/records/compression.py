"""The four codecs of record batches, in the framings that Kafka's clients write and accept.

- **gzip**: an ordinary gzip stream; several members in a row are read as one.
- **snappy**: the xerial stream, a 16-byte header and then blocks of big-endian length + raw snappy, 32 KB
  of input each. A bare raw block, which some clients send, is read too; the "framed" format is not snappy
  to any Kafka client and is refused.
- **lz4**: a standard frame with independent 64 KB blocks and no stored size, the only kind that Java
  reads; on input every standard frame is taken.
- **zstd**: a standard frame; Java writes streams without content size, so none is relied on.

Invariant: ``decompress(codec, compress(codec, data)) == data``, and ``decompress`` never builds more than
``max_size`` bytes, however small the input that asks for it. Anything that cannot be read raises
:class:`CorruptRecordError`; what is too large, :class:`DecompressedTooLargeError`, which is one. Called by
``records/record``, by the append path when a topic asks for another codec, by the cleaner, and for what
clients push of their metrics.
"""

from __future__ import annotations

import enum
import functools
import struct
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Final, cast

import lz4.frame

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import Buffer


class DecompressedTooLargeError(CorruptRecordError):
    """Data that hold more than is allowed."""


@functools.cache
def cramjam() -> ModuleType:
    """The library, loaded when snappy or zstd is first needed: it takes 3 MB."""
    import cramjam

    return cramjam


class Codec(enum.IntEnum):
    """A compression codec by the number that batch attributes carry."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name that options and tools use, such as ``lz4``."""
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> Codec:
        """The codec that a ``compression.type`` names; ``ValueError`` if it names none."""
        codec = _BY_LABEL.get(label)
        if codec is None:
            raise ValueError(f"{label!r} is no compression codec; choose one of {', '.join(_BY_LABEL)}")
        return codec


_BY_LABEL: Final[dict[str, Codec]] = {
    **{codec.name.lower(): codec for codec in Codec},
    "uncompressed": Codec.NONE,
}

LEVELS: Final[dict[Codec, tuple[int, int, int]]] = {
    Codec.GZIP: (1, 9, -1),
    Codec.LZ4: (1, 17, 9),
    Codec.ZSTD: (-131072, 22, 3),
}
"""Lowest, highest and default level of each codec that has levels (Kafka's bounds)."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_HEADER_BYTES: Final = len(XERIAL_HEADER)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
# A snappy copy element of 3 bytes yields at most 64: a block that claims more is lying about its size.
SNAPPY_MAX_RATIO: Final = 64
SNAPPY_BLOCK_LENGTH: Final = struct.Struct(">I")

GZIP_WBITS: Final = 31
_GZIP_PORTION_BYTES: Final = 4 * 1024
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_MAX: Final = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED = 0, 1, 2


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """``data`` in the codec's framing; ``level`` None is the codec's default. Snappy has no levels."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, max_size: int | None = None) -> bytes:
    """The bytes that ``data`` holds; :class:`CorruptRecordError` if broken or larger than ``max_size``."""
    if codec is Codec.NONE:
        if max_size is not None and len(data) > max_size:
            raise _too_large(codec, max_size)
        return bytes(data)
    try:
        return _DECOMPRESSORS[codec](data, max_size)
    except (zlib.error, cramjam().DecompressionError, RuntimeError, EOFError, struct.error) as error:
        raise CorruptRecordError(f"{codec.label} data cannot be decompressed: {error}") from error


def _too_large(codec: Codec, max_size: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(
        f"{codec.label} data decompresses to more than the {max_size} bytes allowed"
    )


def _gzip(data: Buffer, level: int | None) -> bytes:
    encoder = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WBITS)
    return encoder.compress(data) + encoder.flush()


def _gunzip(data: Buffer, max_size: int | None) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    total = at = 0
    # Nearly always there is one member, which is read in one go. A decoder copies what follows its member, so
    # that many small ones would take quadratic time if they were not read in portions.
    portion = len(view)
    while at < len(view) or not parts:
        decoder = zlib.decompressobj(GZIP_WBITS)
        while not decoder.eof:
            given = view[at : at + portion]
            if not given:
                raise EOFError("the stream is cut short")
            if max_size is None:
                part = decoder.decompress(given)
            else:
                # max_length 0 would mean "no limit", so one byte more than allowed is asked for.
                part = decoder.decompress(given, max_size - total + 1)
                total += len(part)
                if total > max_size:
                    raise _too_large(Codec.GZIP, max_size)
            parts.append(part)
            at += len(given)
        at -= len(decoder.unused_data)
        portion = _GZIP_PORTION_BYTES
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(data: Buffer, _level: int | None) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam().snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(SNAPPY_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: Buffer, max_size: int | None) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _unsnappy_block(view, max_size)
    if len(view) < len(XERIAL_HEADER):
        raise EOFError("the xerial header is cut short")
    parts: list[bytes] = []
    total = 0
    pos = len(XERIAL_HEADER)
    while pos < len(view):
        if bytes(view[pos : pos + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            # Streams may be concatenated: Java's reader skips a header in the middle, and so must we.
            pos += len(XERIAL_HEADER)
            continue
        (length,) = SNAPPY_BLOCK_LENGTH.unpack_from(view, pos)
        pos += SNAPPY_BLOCK_LENGTH.size
        if length > len(view) - pos:
            raise EOFError(f"a block of {length} bytes has only {len(view) - pos} left")
        part = _unsnappy_block(view[pos : pos + length], None if max_size is None else max_size - total)
        total += len(part)
        parts.append(part)
        pos += length
    return b"".join(parts)


def _unsnappy_block(block: memoryview, max_size: int | None) -> bytes:
    size = cramjam().snappy.decompress_raw_len(block)
    if max_size is not None and size > max_size:
        raise _too_large(Codec.SNAPPY, max_size)
    if not len(block) or size > len(block) * SNAPPY_MAX_RATIO:
        raise CorruptRecordError(f"a snappy block of {len(block)} bytes claims to hold {size}")
    return bytes(cramjam().snappy.decompress_raw(block, size))


def lz4_strength(level: int | None) -> int:
    """The library's level for Kafka's: 9, the default, is the fast compressor, others the slow one."""
    return 0 if level is None or level == LEVELS[Codec.LZ4][2] else level


def _lz4(data: Buffer, level: int | None) -> bytes:
    return cast(
        bytes,
        lz4.frame.compress(
            data,
            compression_level=lz4_strength(level),
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        ),
    )


def _unlz4(data: Buffer, max_size: int | None) -> bytes:
    decoder = lz4.frame.LZ4FrameDecompressor()
    result = cast(bytes, decoder.decompress(data, -1 if max_size is None else max_size + 1))
    if max_size is not None and len(result) > max_size:
        raise _too_large(Codec.LZ4, max_size)
    if not decoder.eof:
        raise EOFError("the frame is cut short")
    if decoder.unused_data:
        raise CorruptRecordError(f"{len(decoder.unused_data)} stray bytes follow the lz4 frame")
    return result


def _zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam().zstd.compress(data, LEVELS[Codec.ZSTD][2] if level is None else level))


def _unzstd(data: Buffer, max_size: int | None) -> bytes:
    if max_size is None or _zstd_size_bound(memoryview(data)) <= max_size:
        return bytes(cramjam().zstd.decompress(data))
    output = bytearray(max_size)
    try:
        size = cramjam().zstd.decompress_into(data, output)
    except cramjam().DecompressionError as error:
        # The bound above is a ceiling, so data within the limit may come here; what then still fails
        # is either broken or does not fit, and the library's text says which.
        kind = DecompressedTooLargeError if "whole buffer" in str(error) else CorruptRecordError
        raise kind(
            f"zstd data cannot be decompressed within the {max_size} bytes allowed: {error}"
        ) from error
    return bytes(memoryview(output)[:size])


def _zstd_size_bound(data: memoryview) -> int:
    """A ceiling on what a zstd stream decompresses to, read from its block headers alone."""
    bound = 0
    pos = 0
    while pos < len(data):
        (magic,) = struct.unpack_from("<I", data, pos)
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            (length,) = struct.unpack_from("<I", data, pos + 4)
            pos += 8 + length
            continue
        if magic != _ZSTD_MAGIC:
            raise CorruptRecordError("zstd data does not start with a zstd frame")
        descriptor = data[pos + 4] if pos + 4 < len(data) else 0
        single_segment = descriptor >> 5 & 1
        content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
        pos += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
        last = False
        while not last:
            if pos + 3 > len(data):
                raise EOFError("the frame is cut short")
            header = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            bound += _ZSTD_BLOCK_MAX if kind == _ZSTD_COMPRESSED else size
            pos += 3 + (1 if kind == _ZSTD_RLE else size)
        pos += 4 * (descriptor >> 2 & 1)
    return bound


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
