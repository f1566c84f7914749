"""Pictures of pages as small PNGs: 256 colours, those that are most frequent; others become the nearest.

Pages have few colours beside the shades at the edges of letters, so nobody sees a difference, and a picture
takes a third of the bytes.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

_COLOURS = 256
_AT_ONCE = 4096


def palette_png(pixels: bytes, width: int, height: int) -> bytes:
    """The file for ``pixels``: rows from the top, of each red, green, blue, and a byte that is left out."""
    rgb = np.frombuffer(pixels, np.uint8).reshape(height * width, 4)[:, :3].astype(np.int32)
    packed = (rgb[:, 0] << 16) | (rgb[:, 1] << 8) | rgb[:, 2]
    found, place, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = found[np.argsort(-counts, kind="stable")[:_COLOURS]]
    indexes = _nearest(_apart(found), _apart(kept))[place].astype(np.uint8).reshape(height, width)
    rows = np.hstack([np.zeros((height, 1), np.uint8), indexes])  # a byte before each row: no filter
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", _apart(kept).astype(np.uint8).tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _apart(packed: np.ndarray) -> np.ndarray:
    return np.stack([packed >> 16, (packed >> 8) & 255, packed & 255], axis=1)


def _nearest(colours: np.ndarray, kept: np.ndarray) -> np.ndarray:
    pieces = [
        ((colours[start : start + _AT_ONCE, None, :] - kept[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
        for start in range(0, len(colours), _AT_ONCE)
    ]
    return np.concatenate(pieces)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
