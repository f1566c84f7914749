"""Cutting received bytes into frames: a four-byte size, then that many bytes.

Sans-io: the owner of a socket receives into a buffer and asks for the whole frames in it. Frames are
handed out as views of that buffer, so they last as long as it is left alone. A size that is negative or
beyond the limit is refused before anything is received, let alone allocated, for it.
"""

from __future__ import annotations

import struct

from tidelog.errors import WireError

SIZE_BYTES = 4
_SIZE = struct.Struct(">i")


def frame_size(buf: bytes | bytearray | memoryview, pos: int, max_bytes: int) -> int:
    """Size of the frame whose prefix is at ``pos``; :class:`WireError` unless it is 0 to ``max_bytes``."""
    (size,) = _SIZE.unpack_from(buf, pos)
    if not 0 <= size <= max_bytes:
        raise WireError(f"a frame of {size} bytes is announced, where 0 to {max_bytes} are allowed")
    return int(size)


def split_frames(view: memoryview, max_bytes: int) -> tuple[list[memoryview], int]:
    """The whole frames at the start of ``view``, without their sizes, and how many bytes they took."""
    frames = []
    pos = 0
    end = len(view)
    while end - pos >= SIZE_BYTES:
        start = pos + SIZE_BYTES
        stop = start + frame_size(view, pos, max_bytes)
        if stop > end:
            break
        frames.append(view[start:stop])
        pos = stop
    return frames, pos
