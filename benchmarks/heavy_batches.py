"""Batches that are small on the wire and large when they are unpacked: what a careless or hostile peer sends.

All have a right checksum and a header that agrees with the number of their records.
"""

from __future__ import annotations

import struct
import time
import zlib
from functools import lru_cache

from benchmarks import wire

GZIP = 1
TINY_BYTES = 32 << 20
HUGE_BYTES = 1_000_000_000
DENSE_LIMIT = 1_000_000  # what max.message.bytes allows, roughly
DAY_MS = 86_400_000
_CHUNK = 1 << 20
# Length 6, no attributes, both deltas 0, an empty key (compacted topics want one), no value, no headers.
_TINY = bytes([6 << 1, 0, 0, 0, 0, 1, 0])


@lru_cache(maxsize=1)
def _tiny_body() -> bytes:
    return _gzip([_TINY * (_CHUNK // len(_TINY))] * (TINY_BYTES // _CHUNK))


def tiny(*, ahead_ms: int = 0) -> bytes:
    """Millions of records of 7 bytes, 32 MB, in 49 KB; their offsets do not rise."""
    records = (_CHUNK // len(_TINY)) * (TINY_BYTES // _CHUNK)
    return _batch(_tiny_body(), records, ahead_ms)


@lru_cache(maxsize=1)
def dense(limit_bytes: int = DENSE_LIMIT) -> bytes:
    """As many valid records as a batch of 1 MB takes, the last one the newest: there is nothing to refuse."""
    count = 10_000
    count = int(count * limit_bytes / len(_dense_body(count)) * 0.95)
    return _batch(_dense_body(count), count, 0)


def _dense_body(count: int) -> bytes:
    records = []
    for index in range(count):
        delta = 1000 if index == count - 1 else 0
        fields = b"\x00" + wire.varint(delta) + wire.varint(index) + b"\x00\x01\x00"
        records.append(wire.varint(len(fields)) + fields)
    return _gzip([b"".join(records)])


@lru_cache(maxsize=1)
def huge() -> bytes:
    """One record of 1 GB in 1 MB."""
    head = b"\x00\x00\x00\x00" + wire.varint(HUGE_BYTES)
    length = wire.varint(len(head) + HUGE_BYTES + 1)
    chunks = [bytes(_CHUNK)] * (HUGE_BYTES // _CHUNK) + [bytes(HUGE_BYTES % _CHUNK)]
    return _batch(_gzip([length + head, *chunks, b"\x00"]), 1, 0)


def _gzip(chunks: list[bytes]) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(chunk) for chunk in chunks), packer.flush()])


def _batch(body: bytes, records: int, ahead_ms: int) -> bytes:
    """A batch whose records are a second older than the newest timestamp that its header tells."""
    newest = int(time.time() * 1000) + ahead_ms
    out = bytearray(
        struct.pack(">qiibIhiqqqhii", 0, wire.HEADER_SIZE - 12 + len(body), 0, 2, 0, GZIP, records - 1,
                    newest - ahead_ms - 1000, newest, -1, -1, -1, records)
    )  # fmt: skip
    out += body
    wire.seal(out)
    return bytes(out)
