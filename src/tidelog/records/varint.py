"""Zigzag varints, the integers inside records: 7 bits to a byte, lowest first, the sign in bit 0.

A *varint* has 32 bits in at most 5 bytes, a *varlong* 64 bits in at most 10; both are written alike.
Reading is strict: a longer number, or one that runs past the end, raises :class:`CorruptRecordError`.
``records/record`` keeps a copy of the one-byte case in its loops, because a call costs more than the read.
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import MASK_64, MAX_INT64, MIN_INT64

_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def wrap_int64(value: int) -> int:
    """``value`` in 64 bits with a sign, as Java has the sum or the difference of two timestamps."""
    return value if MIN_INT64 <= value <= MAX_INT64 else (value - MIN_INT64 & MASK_64) + MIN_INT64


def encode_varint(value: int) -> bytes:
    """``value`` as a zigzag varint (or varlong, if it needs more than 32 bits)."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def decode_varint(buf: bytes, pos: int, bits: int = 32) -> tuple[int, int]:
    """The number of up to ``bits`` bits at ``pos`` and the position behind it."""
    try:
        raw = byte = buf[pos]
        pos += 1
        shift = 7
        while byte >= 0x80:
            if shift >= bits:
                raise CorruptRecordError(f"a number inside a record has more than {bits} bits")
            byte = buf[pos]
            pos += 1
            # The continuation bit of the byte before stands at this byte's lowest bit: take it out again.
            raw += (byte - 1) << shift
            shift += 7
    except IndexError:
        raise CorruptRecordError("a number inside a record runs past the end of the batch") from None
    if raw >> bits:
        raise CorruptRecordError(f"a number inside a record has more than {bits} bits")
    return (raw >> 1) ^ -(raw & 1), pos


def decode_varlong(buf: bytes, pos: int) -> tuple[int, int]:
    """The 64-bit number at ``pos`` and the position behind it."""
    return decode_varint(buf, pos, 64)
