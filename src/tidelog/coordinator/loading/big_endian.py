"""Signed numbers in big-endian bytes. For compiled modules, ``big_endian.pxd`` has the same in C."""

from __future__ import annotations

from collections.abc import Sequence


def int16(source: Sequence[int], at: int) -> int:
    """The signed number in two bytes."""
    value = source[at] << 8 | source[at + 1]
    return value - 0x10000 if value >= 0x8000 else value


def int32(source: Sequence[int], at: int) -> int:
    """The signed number in four bytes."""
    return int16(source, at) * 0x10000 + (source[at + 2] << 8 | source[at + 3])


def int64(source: Sequence[int], at: int) -> int:
    """The signed number in eight bytes."""
    return int32(source, at) * 0x1_0000_0000 + (int32(source, at + 4) & 0xFFFF_FFFF)
