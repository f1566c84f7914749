"""Which partition of an internal topic a group or a transactional id belongs to: Java's string hash."""

from __future__ import annotations

import struct


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java: over UTF-16 units, in 32 bits with a sign."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(raw) // 2}H", raw):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition of ``key`` among ``partitions``; the smallest of all hashes counts as 0, as in Kafka."""
    value = java_hash(key)
    return 0 if value == -0x8000_0000 else abs(value) % partitions
