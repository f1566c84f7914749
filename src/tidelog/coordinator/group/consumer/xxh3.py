"""XXH3, 64 bits, seed 0: the hash that Kafka 4 keeps of the topics of a group (KIP-1101).

Written after the published specification of xxHash, and checked against what Kafka stores. It runs when
topics or subscriptions change, over some hundred bytes for each topic; a hundred bytes take some 20 µs.
"""

from __future__ import annotations

import struct

_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MIX_1, _MIX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_MASK = (1 << 64) - 1

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

_STRIPE = 64
_SECRET_STEP = 8
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // _SECRET_STEP
_BLOCK = _STRIPE * _STRIPES_PER_BLOCK
_LAST_STRIPE_SECRET = len(_SECRET) - _STRIPE - 7
_LANES = struct.Struct("<8Q")


def xxh3_64(data: bytes) -> int:
    """The hash as an unsigned number."""
    length = len(data)
    if length > 240:
        return _long(data)
    if length > 128:
        return _medium(data)
    if length > 16:
        return _short(data)
    if length > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, length - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        return _avalanche(length + _swapped(low) + high + _folded(low, high))
    if length > 3:
        return _four_to_eight(data)
    if length > 0:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        return _avalanche64(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _four_to_eight(data: bytes) -> int:
    length = len(data)
    both = _u32(data, length - 4) + (_u32(data, 0) << 32)
    mixed = both ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
    mixed ^= _rotated(mixed, 49) ^ _rotated(mixed, 24)
    mixed = mixed * _MIX_2 & _MASK
    mixed ^= (mixed >> 35) + length
    mixed = mixed * _MIX_2 & _MASK
    return mixed ^ mixed >> 28


def _short(data: bytes) -> int:
    """17 to 128 bytes: pairs of 16 bytes from both ends inwards."""
    length = len(data)
    total = length * _P64_1
    for pair in range((length - 1) // 32 + 1):
        total += _mixed16(data, 16 * pair, 32 * pair)
        total += _mixed16(data, length - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(total)


def _medium(data: bytes) -> int:
    """129 to 240 bytes."""
    length = len(data)
    total = length * _P64_1 + sum(_mixed16(data, 16 * each, 16 * each) for each in range(8))
    total = _avalanche(total)
    total += sum(_mixed16(data, 16 * each, 16 * (each - 8) + 3) for each in range(8, length // 16))
    return _avalanche(total + _mixed16(data, length - 16, 136 - 17))


def _long(data: bytes) -> int:
    """More than 240 bytes: eight lanes over stripes of 64 bytes, scrambled after each block."""
    length = len(data)
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    whole_blocks = (length - 1) // _BLOCK
    for block in range(whole_blocks):
        for stripe in range(_STRIPES_PER_BLOCK):
            _accumulate(lanes, data, block * _BLOCK + stripe * _STRIPE, stripe * _SECRET_STEP)
        secret = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
        lanes = [(lane ^ lane >> 47 ^ key) * _P32_1 & _MASK for lane, key in zip(lanes, secret, strict=True)]
    rest = whole_blocks * _BLOCK
    for stripe in range((length - 1 - rest) // _STRIPE):
        _accumulate(lanes, data, rest + stripe * _STRIPE, stripe * _SECRET_STEP)
    _accumulate(lanes, data, length - _STRIPE, _LAST_STRIPE_SECRET)
    total = length * _P64_1
    for pair in range(4):
        total += _folded(
            lanes[2 * pair] ^ _u64(_SECRET, 11 + 16 * pair),
            lanes[2 * pair + 1] ^ _u64(_SECRET, 19 + 16 * pair),
        )
    return _avalanche(total)


def _accumulate(lanes: list[int], data: bytes, pos: int, secret_pos: int) -> None:
    values = _LANES.unpack_from(data, pos)
    secret = _LANES.unpack_from(_SECRET, secret_pos)
    for lane, value in enumerate(values):
        keyed = value ^ secret[lane]
        lanes[lane ^ 1] = lanes[lane ^ 1] + value & _MASK
        lanes[lane] = lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32) & _MASK


def _mixed16(data: bytes, pos: int, secret_pos: int) -> int:
    return _folded(
        _u64(data, pos) ^ _u64(_SECRET, secret_pos), _u64(data, pos + 8) ^ _u64(_SECRET, secret_pos + 8)
    )


def _folded(one: int, other: int) -> int:
    product = one * other
    return product & _MASK ^ product >> 64


def _avalanche(value: int) -> int:
    value &= _MASK
    value ^= value >> 37
    value = value * _MIX_1 & _MASK
    return value ^ value >> 32


def _avalanche64(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _MASK
    value ^= value >> 29
    value = value * _P64_3 & _MASK
    return value ^ value >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _swapped(value: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little"), "big")


def _u64(data: bytes, pos: int) -> int:
    return int.from_bytes(data[pos : pos + 8], "little")


def _u32(data: bytes, pos: int) -> int:
    return int.from_bytes(data[pos : pos + 4], "little")
